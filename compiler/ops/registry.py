"""All ops, functions and optimizers of the language, loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.base.folders import import_tree
from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS, Function, Optimizer
from dslc.compiler.ir.op import OPS, Op

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def load_all() -> None:
    """Imports every file of this folder and its families, which registers ops and functions. A second call costs
    nothing; numpy is not imported."""
    import_tree("dslc.compiler.ops")


def ops() -> Mapping[str, Op]:
    """Every op by its name."""
    load_all()
    return OPS


def functions() -> Mapping[str, Function]:
    """Every function of the language by its name."""
    load_all()
    return FUNCTIONS


def family_of(name: str) -> str:
    """The folder of ``compiler/ops`` that defines this function; KeyError for an unknown one."""
    return type(FUNCTIONS[name]).__module__.rpartition(".")[0].rpartition(".")[2]


def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer of the language by its name."""
    load_all()
    return OPTIMIZERS


def meanings() -> dict[str, Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]]:
    """Op name -> its numpy reference implementation, for the runtime's reference provider."""
    return {name: op.meaning for name, op in ops().items()}
