"""Samples of what joins many small tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType


def _picked(*xs: Any, source: Any, place: Any) -> Any:
    starts = np.cumsum([0, *(len(x) for x in xs)])
    return np.concatenate(xs)[[starts[s] + p for s, p in zip(source, place)]]


def _put(*xs: Any, reads: Any) -> Any:
    """Tables with rows of the last axis but the first of sources; the last of equal ids wins."""
    count = len(xs) // 2
    found = []
    for x, src, (shape, strides, start) in zip(xs[:count], xs[count:-1], reads):
        places = start + sum(np.indices(shape)[axis] * stride for axis, stride in enumerate(strides))
        rows, y = src.reshape(-1)[places], x.copy()
        for n in range(len(x)):
            hits = np.flatnonzero(xs[-1] == n)
            y[n] = rows[hits[-1]] if len(hits) else x[n]
        there = ((xs[-1] >= 0) & (xs[-1] < len(x))).all()
        found.append(y if there or x.dtype.kind != "f" else np.full_like(y, np.nan))
    return tuple(found)


_PAIR = tuple(((3, 2, 8), (48, 8, 1), start) for start in (16, 32))  # the second and third of three parts of a row
_PUTS: list[Sample] = [
    Sample(
        [Spec((6, 2, 8)), Spec((6, 2, 8)), Spec((3, 48)), Spec((3, 48)), np.array(ids, np.int32)], {"reads": _PAIR},
        differentiable=(), reference=_put,
    )
    for ids in ((4, 0, 4), (5, 6, 1))
]  # fmt: skip
_PUTS += [
    Sample([Spec((5, 3)), Spec((2, 3)), np.array([4, 4])], {"reads": (((2, 3), (3, 1), 0),)}, differentiable=(),
           reference=_put),
    Sample([Spec((5,)), Spec((7,)), np.array([4, 1, 0], np.int32)], {"reads": (((3,), (2,), 1),)}, differentiable=(),
           reference=_put),
    Sample([Spec((5, 4), "int"), Spec((2, 4), "int"), np.array([-1, 3], np.int32)], {"reads": (((2, 4), (4, 1), 0),)},
           differentiable=(), reference=_put),
]  # fmt: skip


SAMPLES: dict[str, list[Sample]] = {
    "put_rows": _PUTS,
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
