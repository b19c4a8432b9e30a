"""Samples of the ops that move elements: constants, views, broadcasting, slices, concat, rows by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType


def filled(value: Any, dtype: str, shape: list[int]) -> np.ndarray:
    count = int(np.prod(shape, dtype=int))
    kinds = {"f64": float, "i32": "int32", "b1": bool, "u8": "uint8"}
    return np.array([float(value) if isinstance(value, str) else value] * count, kinds[dtype]).reshape(shape)


def summed(x: np.ndarray, shape: list[int]) -> np.ndarray:
    total = np.zeros(shape)
    wide = [1] * (x.ndim - len(shape)) + list(shape)
    for at in np.ndindex(x.shape):
        total.reshape(wide)[tuple(i if n > 1 else 0 for i, n in zip(at, wide))] += x[at]
    return total


def padded(x: np.ndarray, low: list[int], high: list[int], interior: list[int], value: float) -> np.ndarray:
    shape = [n + a + z + max(n - 1, 0) * g for n, a, z, g in zip(x.shape, low, high, interior)]
    y = np.full(shape, value, x.dtype)
    for at in np.ndindex(x.shape):
        y[tuple(a + i * (g + 1) for i, a, g in zip(at, low, interior))] = x[at]
    return y


def taken(x: np.ndarray, starts: list[int], stops: list[int], steps: list[int]) -> np.ndarray:
    for axis, part in enumerate(zip(starts, stops, steps)):
        x = np.take(x, np.arange(*part), axis=axis)
    return x


def scattered(rows: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    table = np.zeros((count, *rows.shape[ids.ndim :]))
    for at in np.ndindex(ids.shape):
        table[ids[at]] += rows[at]
    return table


def bordered(x: np.ndarray, low: list[int], high: list[int], mode: str) -> np.ndarray:
    """Element by element, along one axis after the other."""
    for axis, (n, a, z) in enumerate(zip(x.shape, low, high)):
        at = range(-a, n + z)
        match mode:
            case "reflect":
                found = [-i if i < 0 else 2 * (n - 1) - i if i >= n else i for i in at]
            case "circular":
                found = [i % n for i in at] if n else []
            case _:
                found = [min(max(i, 0), n - 1) for i in at] if n else []
        x = np.take(x, found, axis)
    return x


def bordered_back(dy: np.ndarray, low: list[int], high: list[int], mode: str) -> np.ndarray:
    shape = [n - a - z for n, a, z in zip(dy.shape, low, high)]
    dx = np.zeros(int(np.prod(shape)), dy.dtype)
    where = bordered(np.arange(dx.size).reshape(shape), low, high, mode)
    np.add.at(dx, where.reshape(-1), dy.reshape(-1))
    return dx.reshape(shape)


#: shape, low, high
_BORDERS = [
    ((5,), (2,), (3,)),
    ((2, 4, 6), (0, 1, 3), (0, 3, 0)),
    ((3, 5), (0, 0), (0, 0)),
    ((0, 4), (0, 1), (0, 2)),
    ((4, 1, 5), (3, 0, 4), (3, 0, 4)),
]


def _borders(back: bool) -> list[Sample]:
    samples = []
    for mode in ("reflect", "replicate", "circular"):
        more = [((1, 3), (4, 0), (2, 0)), ((2, 2), (20, 5), (17, 9))] if mode == "replicate" else []
        for shape, low, high in [*_BORDERS, *more]:
            given = tuple(n + a + z for n, a, z in zip(shape, low, high)) if back else shape
            attrs = {"low": low, "high": high, "mode": mode}
            slopes = () if max(low) > 9 else None
            reference = bordered_back if back else bordered
            samples.append(Sample([Spec(given)], attrs, differentiable=slopes, reference=reference))
    return samples


def _slice(shape: tuple[int, ...], starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]) -> Sample:
    return Sample([Spec(shape)], {"starts": starts, "stops": stops, "steps": steps}, reference=taken)


def _pad(
    shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...], gaps: tuple[int, ...], value: float
) -> Sample:
    return Sample([Spec(shape)], {"low": low, "high": high, "interior": gaps, "value": value}, reference=padded)


def _expand(small: tuple[int, ...], large: tuple[int, ...]) -> Sample:
    return Sample([Spec(small)], {"shape": large}, reference=lambda x, shape: x + np.zeros(shape))


def _sum_to(large: tuple[int, ...], small: tuple[int, ...]) -> Sample:
    return Sample([Spec(large)], {"shape": small}, reference=summed)


def rolled(x: np.ndarray, shifts: list[int]) -> np.ndarray:
    y = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        y[tuple((i + s) % n for i, s, n in zip(at, shifts, x.shape))] = x[at]
    return y


PAIRS = [
    ((3,), (2, 3)),
    ((), (2, 3)),
    ((2, 1, 3), (2, 5, 3)),
    ((1,), (4,)),
    ((1, 1), (3, 2, 2)),
    ((2, 3), (2, 3)),
    ((1, 3), (0, 3)),
    ((0,), (2, 0)),
    ((), ()),
]

SAMPLES: dict[str, list[Sample]] = {
    "full": [
        Sample([], {"value": 1.5, "dtype": DType.FLOAT, "shape": (2, 3)}, reference=filled),
        Sample([], {"value": 2, "dtype": DType.FLOAT, "shape": ()}, reference=filled),
        Sample([], {"value": "-inf", "dtype": DType.FLOAT, "shape": (1,)}, reference=filled),
        Sample([], {"value": "nan", "dtype": DType.FLOAT, "shape": (3,)}, reference=filled),
        Sample([], {"value": -7, "dtype": DType.I32, "shape": (0, 3)}, reference=filled),
        Sample([], {"value": True, "dtype": DType.B1, "shape": (3,)}, reference=filled),
        Sample([], {"value": 255, "dtype": DType.U8, "shape": (3,)}, reference=filled),
    ],
    "reshape": [
        Sample([Spec(a)], {"shape": b}, reference=lambda x, shape: np.array(list(x.flat)).reshape(shape))
        for a, b in (
            ((6,), (2, 3)),
            ((2, 3, 4), (2, 12)),
            ((4, 3), (2, 2, 3)),
            ((), (1, 1)),
            ((0, 3), (3, 0)),
            ((2, 6), (4, 3)),
            ((3, 2, 4), (6, 4)),
            ((3, 4), (3, 2, 2)),
        )
    ]
    + [Sample([Spec((2, 3), "int32", 0, 9)], {"shape": (3, 2)})],
    "transpose": [
        Sample([Spec(s)], {"perm": p}, reference=lambda x, perm: np.einsum(x, list(range(x.ndim)), perm))
        for s, p in (
            ((2, 3), (1, 0)),
            ((2, 3, 4), (2, 0, 1)),
            ((2, 1, 3, 5), (0, 3, 1, 2)),
            ((), ()),
            ((4,), (0,)),
            ((0, 2), (1, 0)),
        )
    ],
    "expand": [_expand(small, large) for small, large in PAIRS],
    "sum_to": [_sum_to(large, small) for small, large in PAIRS],
    "slice": [
        _slice((5,), (1,), (4,), (1,)),
        _slice((7, 4), (0, 1), (7, 3), (2, 1)),
        _slice((3, 4), (0, 0), (3, 4), (1, 1)),
        _slice((5,), (2,), (2,), (1,)),
        _slice((8,), (1,), (8,), (3,)),
        _slice((0, 3), (0, 0), (0, 2), (1, 1)),
        _slice((6, 2, 5), (3, 0, 1), (4, 2, 5), (1, 1, 4)),
        _slice((5,), (0,), (5,), (9,)),
        _slice((5,), (4,), (-1,), (-1,)),
        _slice((7, 4), (6, 3), (0, -1), (-2, -3)),
        _slice((3, 4), (2, 0), (-1, 4), (-1, 1)),
        _slice((2, 9, 3), (0, 5, 2), (2, 0, -1), (1, -2, -2)),
        _slice((5,), (3,), (3,), (-1,)),
        _slice((5,), (2,), (-1,), (-9,)),
        _slice((0, 3), (-1, 2), (-1, -1), (-1, -1)),
        _slice((1, 33), (0, 32), (-1, -1), (-1, -1)),
    ],
    "roll": [
        Sample([Spec(shape)], {"shifts": shifts}, reference=rolled)
        for shape, shifts in (
            ((7,), (2,)),
            ((3, 5), (0, -8)),
            ((3, 5), (1, 0)),
            ((3, 5), (0, 0)),
            ((4, 3, 5), (-1, 2**70, 3)),
            ((2, 6, 7, 3), (0, -3, 4, 0)),
            ((2, 6, 7, 4), (0, -3, 4, 0)),  # what moves together is words of 8 bytes
            ((2, 0), (1, 1)),
            ((1, 1), (5, -5)),
            ((33, 70), (40, -1)),
        )
    ]
    + [Sample([Spec((2, 9), "uint8", 0, 255)], {"shifts": (1, -2)}, reference=rolled)],
    "pad": [
        _pad((3,), (1,), (2,), (0,), 0.0),
        _pad((2, 3), (0, 1), (0, 2), (0, 1), -1.5),
        _pad((4,), (0,), (0,), (2,), 0.0),
        _pad((0, 2), (2, 0), (1, 0), (1, 0), 7.0),
        _pad((1,), (0,), (0,), (3,), 1.0),
        _pad((2, 2), (0, 0), (0, 0), (0, 0), 1.0),
        _pad((5, 3), (0, 0), (2, 0), (0, 0), -2.0),
        _pad((2, 3, 4), (0, 2, 0), (0, 0, 0), (0, 0, 0), 0.5),
        Sample(
            [Spec((3,), "int32", 0, 9)], {"low": (1,), "high": (0,), "interior": (0,), "value": 4}, reference=padded
        ),
    ],
    "border": [
        *_borders(back=False),
        Sample([Spec((4,), "int32", 0, 9)], {"low": (2,), "high": (3,), "mode": "reflect"}, reference=bordered),
    ],
    "border_grad": _borders(back=True),
    "concat": [
        Sample([Spec((2, 3)), Spec((2, 1))], {"axis": 1}, reference=lambda *xs, axis: np.hstack(xs)),
        Sample([Spec((2, 3)), Spec((0, 3)), Spec((1, 3))], {"axis": 0}, reference=lambda *xs, axis: np.vstack(xs)),
        Sample([Spec((4,))], {"axis": 0}, reference=lambda x, axis: x),
        Sample([Spec((2, 3, 2)), Spec((2, 3, 4))], {"axis": 2}, reference=lambda *xs, axis: np.dstack(xs)),
        Sample([Spec((3,), "int32", 0, 9), Spec((2,), "int32", 0, 9)], {"axis": 0}),
    ],
    "gather_rows": [
        Sample(
            [Spec((5, 3)), Spec(s, dtype, 0, 4)],
            reference=lambda t, i: np.array([t[k] for k in i.flat]).reshape(*i.shape, 3),
        )
        for s, dtype in (((4,), "int32"), ((2, 3), "int64"), ((), "int32"), ((0,), "int32"), ((9,), "uint8"))
    ]
    + [Sample([Spec((4,)), Spec((6,), "int32", 0, 3)], reference=lambda t, i: np.array([t[k] for k in i]))],
    "scatter_rows_add": [
        Sample([Spec((*s, 3)), Spec(s, "int32", 0, 4)], {"count": 5}, reference=scattered)
        for s in ((4,), (2, 5), (), (0,), (17,))
    ]
    + [Sample([Spec((6,)), Spec((6,), "int32", 0, 2)], {"count": 3}, reference=scattered)]
    + [  # many of each id, more than a block puts in order, and few
        Sample([Spec((n, m)), Spec((n,), "int32", 0, most)], {"count": 12}, differentiable=(), reference=scattered)
        for n, m, most in ((2500, 2, 1), (300, 130, 9), (40, 1030, 11))
    ],
    "one_hot": [
        Sample(
            [Spec(s, "int32", 0, 3)],
            {"count": 4, "dtype": DType.FLOAT},
            reference=lambda i, count, dtype: np.eye(count)[i],
        )
        for s in ((5,), (2, 3), (), (0,))
    ],
    "tri": [
        Sample([], {"shape": shape, "diagonal": d}, reference=lambda shape, diagonal: np.tri(*shape, diagonal) > 0)
        for shape in ((3, 3), (2, 5), (4, 1), (0, 3), (2, 0))
        for d in (0, -1, 2, -9)
    ],
    "arange": [
        Sample(
            [],
            {"shape": (n,), "start": start, "step": step},
            reference=lambda shape, start, step: np.array([start + step * i for i in range(*shape)], np.int32),
        )
        for n, start, step in ((1, 0, 1), (5, 3, -2), (33, -7, 1), (0, 0, 1), (2, -(2**31), 2**31 - 1))
    ],
    "fused": [
        Sample(
            [Spec((3, 4)), Spec((4,))],
            {"body": (("mul", (0, 1), ()), ("relu", (2,), ()))},
            differentiable=(),
            reference=lambda x, y, body: np.maximum(x * y, 0),
        ),
    ],
}
