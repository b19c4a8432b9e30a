"""Samples of operands as panels, and of products that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.codegen.cpu.contraction.lower import layout_of
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.panels import packed
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.spatial.conv import conv

MATMUL = {"transpose_a": False, "transpose_b": True}
CONV = {"dilation": (1, 1), "groups": 1, "pad": (1, 1), "stride": (1, 1)}


def _packed(x: Any, batch: Any, lanes: Any, inner: Any, start: Any, panel: Any) -> Any:
    """Panels of a matrix of two axes, or more of which the first are the lanes."""
    assert not batch and not start
    rows = x.reshape(lanes[0], -1) if lanes[1] != 1 else x.T
    padded = np.concatenate([rows, np.zeros((-len(rows) % panel, rows.shape[1]), x.dtype)])
    return padded.reshape(-1, panel, rows.shape[1]).swapaxes(1, 2).reshape(-1)


def _pair(op: Op, x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> tuple[Sample, Sample]:
    """The samples of both ops for a product of x and a packed w."""
    a, b = (Input(n, Kind.DATA, TensorType(DType.F32, shape)).value for n, shape in (("a", x), ("b", w)))
    node = Builder().node(op, a, b, **attrs)
    layout = layout_of(node, 1)
    assert layout is not None, "these sizes are packed"
    first, last = packed(node, 1, layout)
    one = Sample([Spec(w)], dict(first.attrs), differentiable=(), reference=_packed)
    [size] = first.types[0].ints
    return one, Sample([Spec(x), Spec((size,))], dict(last.attrs), differentiable=())


_PAIRS = [
    _pair(matmul, (197, 64), (96, 64), MATMUL),
    _pair(matmul, (150, 70), (37, 70), MATMUL),
    _pair(conv, (1, 16, 9, 9), (40, 16, 3, 3), CONV),
]
SAMPLES: dict[str, list[Sample]] = {"panels": [one for one, _ in _PAIRS], "of_panels": [other for _, other in _PAIRS]}
