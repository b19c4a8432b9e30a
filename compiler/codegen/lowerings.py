"""The lowerings of all ops: functions that turn a node into launches, by the names of ops.

A lowering stands in ``codegen/region`` if it serves every target, else in a folder of its target: ``attention``,
``contraction`` or ``ops`` with its sub-folders. All of them are listed, so a new file needs no entry elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias, TypeVar

from dslc.base.folders import import_tree
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node

#: Returns a node's launches in order; None if the node has no kernel. All sizes are ints.
Lowering: TypeAlias = Callable[[Node], list[Launch] | None]
Family: TypeAlias = Literal["cpu", "cuda"]
Function = TypeVar("Function", bound=Lowering)

_FOLDERS: Final = ("attention", "contraction", "ops")
_DECLARED: Final[dict[tuple[str, Family | None], Lowering]] = {}


def lowers(*ops: str, target: Family | None = None) -> Callable[[Function], Function]:
    """Decorator of the function that lowers these ops: on ``target``, or on each target without a function of its own.

    If a function is for some nodes of an op only, it calls the one for the others. TypeError if an op already has a
    function for that target.
    """

    def declare(function: Function) -> Function:
        for op in ops:
            other = _DECLARED.setdefault((op, target), function)
            if other is not function:
                both = " and ".join(f"{f.__module__}.{f.__qualname__}" for f in (other, function))
                raise TypeError(f"two lowerings of `{op}` for {target or 'all targets'}: {both}")
        return function

    return declare


def lowerings(target: Family) -> Mapping[str, Lowering]:
    """Op name -> the function that lowers it on a target."""
    for folder in ("region", *(f"{target}.{name}" for name in _FOLDERS)):
        import_tree(f"dslc.compiler.codegen.{folder}")
    shared, own = ({op: f for (op, of), f in _DECLARED.items() if of == each} for each in (None, target))
    return shared | own
