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


def _parts(x: Any, *, starts: Any, shapes: Any) -> Any:
    return tuple(x[tuple(map(slice, a, np.add(a, n)))] for a, n in zip(starts, shapes))


def _placed(*xs: Any, shape: Any, starts: Any) -> Any:
    """Each part padded with zeros to the shape, and added up."""
    ends = [[(a, size - a - n) for a, n, size in zip(start, x.shape, shape)] for x, start in zip(xs, starts)]
    return sum(np.pad(x, end) for x, end in zip(xs, ends))


#: Rows at the same distance, of one element, of vectors, in two axes that are no one axis, whole, and none.
_BOXES: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    (6, 5): [((0, 0), (6, 1)), ((0, 1), (6, 3)), ((2, 4), (4, 1))],
    (5, 4, 8): [((0, 0, 0), (5, 1, 8)), ((0, 1, 0), (5, 2, 4)), ((0, 3, 7), (5, 1, 1)), ((1, 1, 4), (2, 2, 0))],
    (3, 2, 4, 6): [((0, 0, 1, 0), (2, 2, 2, 6)), ((2, 0, 0, 0), (1, 2, 4, 6)), ((0, 1, 3, 2), (2, 1, 1, 3))],
    (7,): [((0,), (7,))],
}


def _boxes() -> tuple[list[Sample], list[Sample]]:
    sliced, placed = [], []
    for whole, boxes in _BOXES.items():
        starts, shapes = (tuple(each) for each in zip(*boxes))
        sliced.append(Sample([Spec(whole)], {"starts": starts, "shapes": shapes}, differentiable=(), reference=_parts))
        specs = [Spec(shape) for shape in shapes]
        placed.append(Sample(specs, {"shape": whole, "starts": starts}, differentiable=(), reference=_placed))
    return sliced, placed


def _gathered(*xs: Any, member: str, reads: Any, each: Any) -> Any:
    return tuple(table[ids] for table, ids in zip(xs[::2], xs[1::2]))


def _scattered(*xs: Any, member: str, reads: Any, each: Any) -> Any:
    found = []
    for rows, ids, attrs in zip(xs[::2], xs[1::2], each):
        found.append(np.zeros((dict(attrs)["count"], *rows.shape[ids.ndim :])))
        np.add.at(found[-1], ids, rows)
    return tuple(found)


#: Tables of several sizes and widths, and ids of two dtypes and ranks.
_TABLES: list[tuple[tuple[int, ...], np.ndarray]] = [
    ((9, 4), np.array([8, 0, 3, 3, 1], np.int32)),
    ((300, 4), np.array([299, 7, 7], np.int32)),
    ((5, 3), np.array([[4, 4], [0, 2]], np.int64)),
    ((6, 2, 8), np.array([5], np.int32)),
]
_GATHERED = Sample(
    [x for shape, ids in _TABLES for x in (Spec(shape), ids)],
    {"member": "gather_rows", "reads": (2,) * len(_TABLES), "each": ((),) * len(_TABLES)},
    differentiable=(), reference=_gathered,
)  # fmt: skip
_SCATTERED = Sample(
    [x for shape, ids in _TABLES for x in (Spec((*ids.shape, *shape[1:])), ids)],
    {
        "member": "scatter_rows_add", "reads": (2,) * len(_TABLES),
        "each": tuple((("count", shape[0]),) for shape, _ in _TABLES),
    },
    differentiable=(), reference=_scattered,
)  # fmt: skip


def _piece(x: Any, *, first: int, shape: Any) -> Any:
    return x.flatten()[first:][: int(np.prod(shape))].reshape(shape)


SAMPLES: dict[str, list[Sample]] = {
    "piece": [
        Sample([Spec(whole)], {"first": first, "shape": shape}, differentiable=(), reference=_piece)
        for whole, first, shape in [((6, 5), 10, (3, 5)), ((7,), 3, (2, 2)), ((4, 2), 0, (4, 2)), ((4,), 4, (0,))]
    ],
    "slices": _boxes()[0],
    "placed": _boxes()[1],
    "together": [_GATHERED, _SCATTERED],
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
