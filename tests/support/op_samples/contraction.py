"""Samples of contractions with a pointwise epilogue."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

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


SAMPLES: dict[str, list[Sample]] = {
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
    ]
}  # fmt: skip
