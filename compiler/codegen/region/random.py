"""Random ops by counter: every kernel computes the Philox numbers of ``ops/random/philox.py`` for its own elements."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, dense
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr
from dslc.compiler.ops.random.quantile import STEPS, normal_probability
from dslc.compiler.ops.random.stochastic import ALL, kept_share


@described("Draw", "kind dtype elements key stepped row_elements low high")
@dataclass(frozen=True, slots=True)
class Draw:
    """A draw. ``uniform``: low + (high - low) * u; ``normal``: low + high * z, in f32; ``dropout``: x * high if its 16
    random bits are at least ``low``, else 0, in x's dtype.

    Arguments: x for dropout; the seed; step and row if ``stepped``; the output.
    """

    kind: Literal["uniform", "normal", "dropout"]
    dtype: DType
    elements: int
    key: int
    stepped: bool
    row_elements: int
    low: float
    high: float


def _drawn(node: Node, kind: Literal["uniform", "normal"], low: float, high: float, stepped: bool) -> list[Launch]:
    type = node.types[0]
    row = int_attr(node.attrs, "row_elements") if stepped else 0
    elements = type.bytes // type.dtype.itemsize
    spec = Draw(kind, type.dtype, elements, int_attr(node.attrs, "key"), stepped, row, low, high)
    return [Launch(spec, node.inputs if stepped else node.inputs[:1], node.outputs)]


@lowers("rand")
def rand(node: Node) -> list[Launch]:
    return _drawn(node, "uniform", 0.0, 1.0, True)


@lowers("randn")
def randn(node: Node) -> list[Launch]:
    return _drawn(node, "normal", 0.0, 1.0, True)


@lowers("init_uniform")
def init_uniform(node: Node) -> list[Launch]:
    """Rounds the limits to f32, then the width, as the reference implementation does."""
    import numpy as np

    low, high = np.float32(float_attr(node.attrs, "low")), np.float32(float_attr(node.attrs, "high"))
    return _drawn(node, "uniform", float(low), float(high - low), False)


@lowers("init_normal")
def init_normal(node: Node) -> list[Launch]:
    return _drawn(node, "normal", float_attr(node.attrs, "mean"), float_attr(node.attrs, "std"), False)


@lowers("init_trunc_normal")
def init_trunc_normal(node: Node) -> list[Launch]:
    """Draws uniform numbers, then applies the quantile function by the steps of ``ops/random/quantile.py``, in f64."""
    mean, std, a, b = (float_attr(node.attrs, name) for name in ("mean", "std", "a", "b"))
    type, elements = node.types[0], math.prod(node.types[0].ints)
    drawn = Scratch(0, max(1, elements) * DType.F32.itemsize)
    spec = Draw("uniform", DType.F32, elements, int_attr(node.attrs, "key"), False, 0, 0.0, 1.0)
    builder = RegionBuilder([elements], (), [Access(DType.F32, (1,))], [Access(type.dtype, (1,))])
    builder.row()

    def wide(expr: Expr) -> Expr:
        return builder.let(expr, DType.F64)

    low, high = (normal_probability((bound - mean) / std) if std else 0.5 for bound in (a, b))
    q = wide((wide(builder.input(0)) + 2.0**-25) * (high - low) + low)
    tail = wide(call("min", q, 1 - q))
    z = wide(-call("sqrt", call("max", call("log", tail * 2.0) * -2.0, 0.0)))
    for _ in range(STEPS):
        below = wide(call("max", (call("erf", z * math.sqrt(0.5)) + 1.0) * 0.5, sys.float_info.min))
        density = wide(call("exp", z * z * -0.5) / math.sqrt(2 * math.pi))
        z = wide(z + call("log", tail / below) * (below / density))
    z = wide(select(q < 0.5, z, -z))
    found = builder.let(call("min", call("max", z * std + mean, a), b), DType.F32)
    builder.store(0, builder.let(found, type.dtype))
    return [Launch(spec, node.inputs[:1], (drawn,)), Launch(builder.region(), (drawn,), node.outputs)]


@lowers("dropout")
def dropout(node: Node) -> list[Launch]:
    least, scale = kept_share(node)
    type, attrs = node.types[0], node.attrs
    own = Access(type.dtype, dense(type.ints))
    if least == 0:
        return [Launch(copy(type.ints, own, own), node.inputs[:1], node.outputs)]
    if least == ALL:
        builder = RegionBuilder(type.ints, (), [], [own])
        builder.row()
        builder.store(0, builder.let(as_expr(0.0), type.dtype))
        return [Launch(builder.region(), (), node.outputs)]
    elements = type.bytes // type.dtype.itemsize
    row, key = int_attr(attrs, "row_elements"), int_attr(attrs, "key")
    spec = Draw("dropout", type.dtype, elements, key, True, row, float(least), scale)
    return [Launch(spec, node.inputs, node.outputs)]
