"""Random ops by counting: every kernel computes the numbers of ``ops/philox.py`` for its own elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.pointwise import copy
from dslc.compiler.codegen.region import Access, RegionBuilder, dense
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import as_expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr, int_attr

ALL: Final = 1 << 16  # dropout compares 16 bits


@dataclass(frozen=True, slots=True)
class Draw:
    """``uniform``: low + (high - low) * u; ``normal``: low + high * z, in f32; ``dropout``: x * high where 16 bits are
    at least ``low``, else 0, in x's dtype.

    Arguments: x for dropout; the seed; step and row where ``stepped``; the output.
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


def rand(node: Node) -> list[Launch]:
    return _drawn(node, "uniform", 0.0, 1.0, True)


def randn(node: Node) -> list[Launch]:
    return _drawn(node, "normal", 0.0, 1.0, True)


def init_uniform(node: Node) -> list[Launch]:
    """The width is rounded to f32 after the limits are, as the meaning does."""
    import numpy as np

    low, high = np.float32(float_attr(node.attrs, "low")), np.float32(float_attr(node.attrs, "high"))
    return _drawn(node, "uniform", float(low), float(high - low), False)


def init_normal(node: Node) -> list[Launch]:
    return _drawn(node, "normal", float_attr(node.attrs, "mean"), float_attr(node.attrs, "std"), False)


def dropout(node: Node) -> list[Launch]:
    threshold = math.floor(float_attr(node.attrs, "p") * ALL + 0.5)
    type, attrs = node.types[0], node.attrs
    own = Access(type.dtype, dense(type.ints))
    if threshold == 0:
        return [Launch(copy(type.ints, own, own), node.inputs[:1], node.outputs)]
    if threshold == ALL:
        builder = RegionBuilder(type.ints, (), [], [own])
        builder.row()
        builder.store(0, builder.let(as_expr(0.0), type.dtype))
        return [Launch(builder.region(), (), node.outputs)]
    import numpy as np

    inner = np.float64 if type.dtype is DType.F64 else np.float32
    scale = float(inner(ALL) / inner(ALL - threshold))
    elements = type.bytes // type.dtype.itemsize
    row, key = int_attr(attrs, "row_elements"), int_attr(attrs, "key")
    spec = Draw("dropout", type.dtype, elements, key, True, row, float(threshold), scale)
    return [Launch(spec, node.inputs, node.outputs)]


LOWERED: Final = {
    "rand": rand,
    "randn": randn,
    "init_uniform": init_uniform,
    "init_normal": init_normal,
    "dropout": dropout,
}
