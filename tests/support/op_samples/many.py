"""Samples of what joins many small tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType


def _picked(*xs: Any, source: Any, place: Any) -> Any:
    starts = np.cumsum([0, *(len(x) for x in xs)])
    return np.concatenate(xs)[[starts[s] + p for s, p in zip(source, place)]]


SAMPLES: dict[str, list[Sample]] = {
    "casts": [
        Sample(
            [Spec((3, 4)), Spec(()), Spec((0, 2)), Spec((4099,))],
            {"dtype": DType.F32},
            differentiable=(),
            reference=lambda *xs, dtype: tuple(np.asarray(x, np.float32) for x in xs),
        ),
        Sample(
            [Spec((7,))],
            {"dtype": DType.I32},
            differentiable=(),
            reference=lambda x, dtype: np.trunc(x).astype(np.int32),
        ),
    ],
    "pick": [
        Sample(
            [Spec((5,)), Spec((1,)), Spec((3,))],
            {"source": (0, 0, 1, 2, 0, 2), "place": (0, 4, 0, 1, 2, 1)},
            differentiable=(),
            reference=_picked,
        ),
        Sample(
            [Spec((130,), "bool"), Spec((2,), "bool")],
            {"source": (*[0] * 130, 1), "place": (*range(130), 1)},
            differentiable=(),
            reference=_picked,
        ),
    ],
}
