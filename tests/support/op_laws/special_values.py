"""Inputs at which float arithmetic goes wrong, for any sample of any op: zeros of both signs, denormals, infinities,
nan, the greatest number, values near saturation, ties, and large common offsets.

A ``Feed`` is a sample's inputs in f32 with one float input, or all of them, made of such values. The laws over feeds
are in ``test_special_values.py`` (ops), ``test_special_kernels.py`` (codegen/cpu) and ``test_special_texts.py``
(codegen/cuda).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

INF, NAN = np.inf, np.nan
MOST = float(np.finfo(np.float32).max)
LEAST = float(np.finfo(np.float32).smallest_subnormal)
NORMAL = float(np.finfo(np.float32).tiny)

#: name -> the values that an input is filled with, in turn
PALETTES: dict[str, list[float]] = {
    "zeros": [0.0, -0.0, -0.0, 0.0, 0.0, -0.0],
    "minus zero": [-0.0],
    "ones and zeros": [1.0, -0.0, 0.0, -1.0, 1.0],
    "ties": [1.5],
    "halves": [0.5, 1.5, -0.5, 2.5, -2.5, -1.5, 1.0],
    "denormal": [LEAST, -LEAST, 1e-40, -1e-39, 0.0, -0.0, NORMAL, -NORMAL, 3e-38],
    "small": [1e-5, -1e-6, 1e-8, -1e-10, 1e-20, -1e-25, 1e-30],
    "saturated": [-9.5, 9.5, -17.5, 17.5, -12.0, 5.9, -5.6, -30.0, 30.0, -3.5, 3.9],
    "far": [-87.0, 87.0, -88.8, 88.8, -95.0, -103.0, -104.5, 120.0, -150.0, 50.0],
    "large": [1e4, -1e5, 1e10, -1e12, 1e18, -3e18, 2e19, -2e19],
    "larger": [1e25, -3e30, 1e38, -MOST, MOST, 1e20, -1e36],
    "most": [MOST],
    "least": [-MOST],
    "an infinity": [INF, 1.0, -2.0, 0.5, 0.0, -0.0],
    "minus infinity": [-INF, 1.0, -2.0, 0.5, 0.0, -0.0],
    "both infinities": [INF, -1.0, -INF, 1.0],
    "infinite": [INF],
    "minus infinite": [-INF],
    "nan": [NAN, 1.0, -2.0, 0.5],
}
OFFSETS = {"offset 1e4": 1e4, "offset 1e6": 1e6, "offset -1e6": -1e6}


@dataclass(frozen=True)
class Feed:
    """``name``: which values, and in which input; ``xs``: the inputs, floats in f32."""

    name: str
    xs: list[np.ndarray]


def is_fed(arrays: list[np.ndarray]) -> bool:
    """Whether there is a float input with elements."""
    return any(x.dtype == np.float64 and x.size for x in arrays)


def crossed(arrays: list[np.ndarray]) -> Feed:
    """One feed for a pointwise op, with one axis: every value of the palettes in every float input, and for two float
    inputs each value with each; of more, each value with some."""
    values = np.unique(np.array([v for palette in PALETTES.values() for v in palette], np.float32).view(np.int32))
    values = values.view(np.float32)
    floats = [i for i, x in enumerate(arrays) if x.dtype == np.float64]
    count = len(values) ** min(len(floats), 2)
    number = np.arange(count)
    xs = [np.resize(x, (count,)) for x in arrays]
    for place, i in enumerate(floats):
        xs[i] = values[(number // len(values) ** place if place < 2 else number * (2 * place + 1)) % len(values)]
    return Feed("every special value", xs)


def feeds(arrays: list[np.ndarray]) -> Iterator[Feed]:
    """All feeds of a sample's inputs, whose floats are f64. Deterministic."""
    plain = [np.asarray(x, np.float32) if x.dtype == np.float64 else x for x in arrays]
    places = [i for i, x in enumerate(arrays) if x.dtype == np.float64 and x.size]
    groups = [(i,) for i in places] + ([tuple(places)] if len(places) > 1 else [])
    for group in groups:
        where = "all inputs" if len(group) > 1 else f"input {group[0]}"
        for name, values in PALETTES.items():
            yield Feed(f"{name} in {where}", _with(plain, group, lambda x, n, v=values: _filled(x, n, v)))  # type: ignore[misc]
        for name, offset in OFFSETS.items():
            yield Feed(f"{name} in {where}", _with(plain, group, lambda x, n, by=offset: x + np.float32(by)))  # type: ignore[misc]


def _with(plain: list[np.ndarray], group: tuple[int, ...], made: Any) -> list[np.ndarray]:
    return [np.asarray(made(x, i), np.float32) if i in group else x for i, x in enumerate(plain)]


def _filled(x: np.ndarray, start: int, values: list[float]) -> np.ndarray:
    """Input ``start`` begins with another value than its neighbours, so that pairs of values differ between inputs."""
    return np.resize(np.roll(np.array(values, np.float32), -start), x.shape)


def classes(x: np.ndarray) -> np.ndarray:
    """What may not differ between two computations of one float: 3 for nan, 2 and -2 for infinities, 1 and -1 for zeros
    by their signs, 0 for other numbers."""
    found = np.where(np.isnan(x), 3, np.where(np.isinf(x), 2, np.where(x == 0, 1, 0)))
    return np.where(np.signbit(x) & (found != 3), -found, found)
