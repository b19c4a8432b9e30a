"""All ops, functions and optimizers of the language, loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS, Function, Optimizer
from dslc.compiler.ir.op import OPS, Op

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

# One file a family. A new file must stand here, and a test compares this with the folder.
FAMILIES: Final = (
    "activation",
    "adaptive_pool",
    "attention",
    "batchnorm",
    "bits",
    "broadcast",
    "channels_last",
    "class_losses",
    "clip_norm",
    "constant",
    "contraction",
    "conv",
    "conv_layers",
    "convert",
    "cross_entropy",
    "cumulative",
    "distance",
    "division",
    "einsum",
    "elementwise",
    "embedding",
    "fused",
    "fused_sums",
    "gelu",
    "groupnorm",
    "indexing",
    "interpolate",
    "layernorm",
    "layerwise",
    "linear",
    "literal",
    "logic",
    "losses",
    "many",
    "masks",
    "multi_update",
    "nonfinite",
    "normalize",
    "optim",
    "optimizers",
    "ordering",
    "orthogonal",
    "pool",
    "powers",
    "rearrange",
    "reduce",
    "rmsprop",
    "selection",
    "slicing",
    "softmax",
    "stochastic",
    "transcendental",
    "variance",
    "views",
)


def load_all() -> None:
    """Imports every family, which registers its ops and functions. Costs nothing the second time; numpy stays out."""
    for family in FAMILIES:
        importlib.import_module(f"dslc.compiler.ops.{family}")


def ops() -> Mapping[str, Op]:
    """Every op by its name."""
    load_all()
    return OPS


def functions() -> Mapping[str, Function]:
    """Every function of the language by its name."""
    load_all()
    return FUNCTIONS


def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer of the language by its name."""
    load_all()
    return OPTIMIZERS


def meanings() -> dict[str, Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]]:
    """Op name -> its numpy meaning, for the reference provider of the runtime."""
    return {name: op.meaning for name, op in ops().items()}
