"""Samples of constants whose numbers differ: literals and ramps."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample

from dslc.compiler.ir.types import DType

_INTEGERS = {DType.I64: "int64", DType.I32: "int32", DType.U8: "uint8", DType.B1: "bool"}


def _literal(*, values: Any, shape: Any, dtype: Any) -> Any:
    kinds = {name.value: kind for name, kind in _INTEGERS.items()}
    numbers = [float(v) if isinstance(v, str) else v for v in values]
    return np.array(numbers, kinds.get(dtype, "float64")).reshape(shape)


def _ramp(*, shape: Any, start: float, dtype: Any, step: float | None = None, stop: float | None = None) -> Any:
    if stop is not None:
        return np.linspace(start, stop, *shape)
    assert step is not None
    return np.array([start + i * step for i in range(*shape)])


_LITERALS: list[tuple[tuple[Any, ...], tuple[int, ...], DType]] = [
    ((0.5, -1.25, 3.0), (3, 1, 1), DType.FLOAT),
    ((0.1,), (), DType.FLOAT),
    ((), (0, 2), DType.FLOAT),
    ((1.0, 2.0), (1, 2), DType.FLOAT),
    (("inf", -0.0, "nan", "-inf", 0.5), (5,), DType.FLOAT),
    ((2**62 + 1, -3, 0), (3,), DType.I64),
    ((-(2**31), 7, 2**31 - 1, 0), (2, 2), DType.I32),
    ((255, 0, 3), (3,), DType.U8),
    ((True, False, True), (3, 1), DType.B1),
    ((), (0,), DType.B1),
    (tuple(range(-3, 97)), (100,), DType.I32),
]
_RAMPS = [
    *({"shape": (n,), "start": a, "stop": b} for n in (0, 1, 2, 7, 33) for a, b in ((0.0, 1.0), (3.5, -0.1))),
    *({"shape": (n,), "start": a, "step": s} for n in (0, 1, 10, 65) for a, s in ((0.0, 0.1), (-2.5, -1e-3))),
]
SAMPLES: dict[str, list[Sample]] = {
    "literal": [
        Sample([], {"values": values, "shape": shape, "dtype": dtype}, reference=_literal)
        for values, shape, dtype in _LITERALS
    ],
    "ramp": [Sample([], {**attrs, "dtype": DType.FLOAT}, reference=_ramp) for attrs in _RAMPS],
}
