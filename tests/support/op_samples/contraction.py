"""Samples of contractions with a pointwise epilogue, of products that read an operand as panels, and of Fourier
transforms, whose formula is the sum itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.codegen.cpu.contraction.lower import layout_of
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder, Op
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.panels import packed
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.products.staged_fourier import plan_of_node
from dslc.compiler.ops.spatial.conv import conv

_PLAIN = (("transpose_a", False), ("transpose_b", False))
_BIAS_RELU = (("add", (0, 1), ()), ("relu", (2,), ()))


def _small(*shape: int) -> Spec:
    """Of a sum that stays near 1, so that 16 bits round it to as much as its neighbours."""
    return Spec(shape, low=-0.5, high=0.5)


def _matmul(rows: int, inner: int, cols: int, bias: tuple[int, ...]) -> Sample:
    attrs = {"product": "matmul", "each": _PLAIN, "body": _BIAS_RELU}
    specs = [_small(rows, inner), _small(inner, cols), _small(*bias)]
    return Sample(specs, attrs, differentiable=(), reference=lambda a, b, c, **_: np.maximum(a @ b + c, 0))


def _clamped(a: Any, b: Any, low: Any, **_: Any) -> Any:
    return np.where(a @ b < low, low, a @ b) / np.abs(low)


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


def transform(
    *x: np.ndarray, axis: int, count: int, sign: int, outputs: int, parts: str, scale: float, twice: str
) -> Any:
    z = np.moveaxis(x[0] + (1j * x[1] if len(x) == 2 else 0), axis, -1)
    n, k = np.arange(z.shape[-1])[:, None], np.arange(outputs)
    often = [np.where((i == 0) | (2 * i == count), 1, 2) for i in (n[:, 0], k)]
    z, after = (z * often[0], 1) if twice == "given" else (z, often[1] if twice else 1)
    y = np.moveaxis(scale * (z @ np.exp(sign * 2j * np.pi * (n * k % count) / count)) * after, -1, axis)
    return {"re": (y.real,), "im": (y.imag,), "both": (y.real, y.imag)}[parts]


#: shape, axis, order, sign, results, inputs, parts, what counts twice
TRANSFORMS: list[tuple[tuple[int, ...], int, int, int, int, int, str, str]] = [
    ((2, 12), 1, 12, -1, 12, 2, "both", ""), ((3, 9), 1, 9, -1, 5, 1, "both", ""),
    ((2, 2, 5), 2, 8, 1, 8, 2, "re", "given"), ((7,), 0, 7, 1, 3, 1, "re", ""),
    ((2, 3), 1, 70, -1, 66, 1, "both", ""), ((0, 4), 1, 4, -1, 4, 1, "re", ""), ((2, 6), 1, 6, -1, 6, 1, "im", ""),
    ((2, 5), 1, 5, 1, 4, 2, "im", ""), ((6, 3), 0, 6, 1, 4, 1, "both", "results"),
    ((2, 19, 3), 1, 19, 1, 19, 2, "both", ""),
    ((2, 5, 2), 1, 9, 1, 9, 2, "re", "given"), ((3, 20, 2), 1, 20, -1, 20, 1, "both", ""),
]  # fmt: skip
_EACH_TRANSFORM: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    (shape, inputs, {"axis": axis, "count": count, "sign": sign, "outputs": outputs, "parts": parts, "scale": 0.5,
                     "twice": twice})
    for shape, axis, count, sign, outputs, inputs, parts, twice in TRANSFORMS
]  # fmt: skip


def _roots(shape: tuple[int, ...], inputs: int, attrs: dict[str, Any]) -> np.ndarray:
    x = [Input("x", Kind.DATA, TensorType(DType.F32, shape)).value] * inputs
    plan = plan_of_node(Builder().node(fourier, *x, **attrs))
    assert plan is not None
    return plan.roots(attrs["sign"])


def _staged(*x: np.ndarray, **attrs: Any) -> Any:
    return transform(*x[:-1], **attrs)


SAMPLES: dict[str, list[Sample]] = {
    "fourier": [Sample([Spec(shape)] * inputs, attrs, reference=transform) for shape, inputs, attrs in _EACH_TRANSFORM],
    "staged_fourier": [
        Sample([*[Spec(shape)] * inputs, _roots(shape, inputs, attrs)], attrs, differentiable=(), reference=_staged)
        for shape, inputs, attrs in _EACH_TRANSFORM
    ],
    "contraction": [
        _matmul(3, 4, 5, (5,)),
        _matmul(33, 40, 9, (33, 1)),
        _matmul(7, 1500, 6, (7, 6)),
        _matmul(3, 0, 4, (4,)),
        _matmul(2, 3, 4, ()),
        Sample(
            [Spec((2, 5, 3)), Spec((3, 4)), Spec((5, 1), gap=0.5)],
            {
                "product": "matmul",
                "each": _PLAIN,
                "body": (("lt", (0, 1), ()), ("where", (2, 1, 0), ()), ("abs", (1,), ()), ("div", (3, 4), ())),
            },
            differentiable=(),
            reference=_clamped,
        ),
        Sample(
            [_small(2, 3, 6, 5), _small(4, 3, 3, 3), _small(4, 1, 1), _small(2, 4, 3, 3)],
            {
                "product": "conv",
                "each": (("dilation", (1, 1)), ("groups", 1), ("pad", (1, 1)), ("stride", (2, 2))),
                "body": (("mul", (0, 1), ()), ("sub", (3, 2), ()), ("maximum", (4, 2), ()), ("neg", (5,), ())),
            },
            differentiable=(),
        ),
        Sample(
            [_small(2, 4, 3, 3), _small(4, 3, 3, 3), Spec((2, 3, 6, 6))],
            {
                "product": "conv_dgrad",
                "each": (
                    ("dilation", (1, 1)), ("groups", 1), ("pad", (1, 1)), ("size", (6, 6)), ("stride", (2, 2)),
                ),
                "body": (("gelu", (1,), (("approximate", False),)), ("mul", (0, 2), ())),
            },
            differentiable=(),
        ),
    ],
    "panels": [one for one, _ in _PAIRS],
    "of_panels": [other for _, other in _PAIRS],
}  # fmt: skip
