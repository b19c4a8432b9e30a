"""Samples of random ops; their references draw one element after the other, in plain integers."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from op_samples.elementwise import CORNERS
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType

MASK = (1 << 32) - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 on Python's ints."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k0, q & MASK, (p >> 32) ^ d ^ k1, p & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [a, b, c, d]


def draw(number: int, key: int, seed: int, step: int) -> list[int]:
    mixed = (key ^ seed) % 2**64
    return philox([number & MASK, number >> 32, step & MASK, step >> 32], [mixed & MASK, mixed >> 32])


def element(e: int, key: int, seed: int, step: int) -> int:
    return draw(e // 4, key, seed, step)[e % 4]


def dropped(x: np.ndarray, seed: Any, step: Any, row: Any, p: float, key: int, row_elements: int) -> np.ndarray:
    r = round(p * 65536)
    y = np.zeros(x.size)
    for i in range(x.size):
        e = int(row) * row_elements + i
        word = draw(e // 8, key, int(seed), int(step))[e % 8 // 2]
        if (word >> 16 if e % 2 else word & 0xFFFF) >= r:
            y[i] = x.reshape(-1)[i] * (65536 / (65536 - r))
    return y.reshape(x.shape)


def fractions(seed: Any, step: Any, row: Any, shape: list[int], key: int, row_elements: int, dtype: str) -> np.ndarray:
    first = int(row) * row_elements
    count = math.prod(shape)
    return np.array([(element(first + i, key, int(seed), int(step)) >> 8) / 2**24 for i in range(count)]).reshape(shape)


def gauss(e: int, key: int, seed: int, step: int) -> float:
    pair = draw(e // 4, key, seed, step)[e % 4 // 2 * 2 :][:2]
    u = float(np.float32(np.float32(pair[0]) * np.float32(2.0**-32)) + np.float32(2.0**-33))
    v = pair[1] - 2**32 if pair[1] >= 2**31 else pair[1]
    angle = math.pi * (v >> 8) / 2**23
    return float(np.float32(math.sqrt(-2 * math.log(u)) * (math.sin(angle) if e % 2 else math.cos(angle))))


def normals(seed: Any, step: Any, row: Any, shape: list[int], key: int, row_elements: int, dtype: str) -> np.ndarray:
    first, count = int(row) * row_elements, math.prod(shape)
    return np.array([gauss(first + i, key, int(seed), int(step)) for i in range(count)]).reshape(shape)


def scalars(seed: int, step: int, row: int) -> list[np.ndarray]:
    return [np.array(v, "i8") for v in (seed, step, row)]


KEY = 0xFEDC_BA98_7654_3210
PLACES = [(0, 0, 0), (1, 5, 3), (-1, 2**40, 7), (123456789, 1, 2**35)]


def sources(reference: Any) -> list[Sample]:
    made = []
    for shape, row_elements in (((2, 5), 5), ((7,), 1), ((), 0), ((0, 3), 3), ((3, 11), 0), ((1,), 1)):
        for place in PLACES:
            attrs = {"shape": shape, "key": KEY, "row_elements": row_elements, "dtype": DType.FLOAT}
            made.append(Sample(scalars(*place), attrs, reference=reference))
    return made


def _start(reference: Any, **numbers: float) -> list[Sample]:
    return [
        Sample([np.array(3, "i8")], {"shape": s, "key": KEY, "dtype": DType.FLOAT, **numbers}, reference=reference)
        for s in ((4, 3), (), (0,), (7,))
    ]


def start_uniform(seed: Any, shape: list[int], key: int, dtype: str, low: float, high: float) -> np.ndarray:
    u = fractions(seed, 0, 0, shape, key, 0, dtype).astype(np.float32)
    return (np.float32(low) + (np.float32(high) - np.float32(low)) * u).astype(float)


def start_normal(seed: Any, shape: list[int], key: int, dtype: str, mean: float, std: float) -> np.ndarray:
    z = normals(seed, 0, 0, shape, key, 0, dtype).astype(np.float32)
    return (np.float32(mean) + np.float32(std) * z).astype(float)


def start_trunc_normal(
    seed: Any, shape: list[int], key: int, dtype: str, mean: float, std: float, a: float, b: float
) -> np.ndarray:
    u = fractions(seed, 0, 0, shape, key, 0, dtype) + 2.0**-25
    if std == 0:
        return np.full(shape, np.float32(mean)).astype(float)
    gauss = NormalDist(mean, std)
    low, high = gauss.cdf(a), gauss.cdf(b)
    found = [gauss.inv_cdf(low + (high - low) * p) for p in u.reshape(-1)]
    return np.array(found, np.float32).reshape(shape).astype(float)


def start_orthogonal(seed: Any, shape: list[int], key: int, dtype: str, gain: float) -> np.ndarray:
    """The unique QR decomposition with a positive diagonal, of the taller of the matrix and its transpose."""
    drawn = normals(seed, 0, 0, shape, key, 0, dtype).reshape(shape[0], -1)
    wide = drawn.shape[0] < drawn.shape[1]
    q, r = np.linalg.qr(drawn.T if wide else drawn)
    q = gain * q * np.sign(np.diag(r))
    return np.asarray(q.T if wide else q).reshape(shape).astype(np.float32).astype(float)


SAMPLES: dict[str, list[Sample]] = {
    "dropout": [
        Sample([Spec(shape), *scalars(*place)], {"p": p, "key": KEY, "row_elements": row_elements}, reference=dropped)
        for shape, row_elements in (((3, 5), 5), ((17,), 1), ((2, 3, 3), 0), ((0, 4), 4), ((), 0))
        for place in PLACES
        for p in (0.0, 0.1, 0.5)
    ]
    + [
        Sample(
            [Spec((5,)), *scalars(0, 0, 0)], {"p": p, "key": KEY, "row_elements": 1}, reference=lambda x, *a, **k: 0 * x
        )
        for p in (1.0, 0.999999)
    ],
    "dropped": [
        Sample(
            [Spec(shape), (np.arange(math.prod(shape)) % 3 * 0.75).reshape(shape)],
            differentiable=(0,),
            reference=lambda x, factors: x * factors,
        )
        for shape in ((), (0,), (7,), (2, 3, 1))
    ]
    + [Sample([CORNERS, np.zeros(CORNERS.shape)], differentiable=(), reference=lambda x, factors: factors)],
    "rand": sources(fractions),
    "randn": sources(normals),
    "init_uniform": _start(start_uniform, low=-0.5, high=0.25),
    "init_normal": _start(start_normal, mean=0.1, std=0.02),
    "init_orthogonal": [
        Sample(
            [np.array(3, "i8")],
            {"shape": shape, "key": KEY, "dtype": DType.FLOAT, "gain": gain},
            reference=start_orthogonal,
        )
        for shape, gain in (
            ((3, 3), 1.0),
            ((5, 3), 1.5),
            ((2, 3, 2), 1.0),
            ((1, 5), 0.0),
            ((5, 1), 2.0),
            ((40, 36), 1.0),
        )
    ],
    "init_trunc_normal": [
        *_start(start_trunc_normal, mean=0.0, std=0.02, a=-0.04, b=0.04),
        *_start(start_trunc_normal, mean=1.0, std=2.0, a=3.0, b=9.0),
        *_start(start_trunc_normal, mean=0.5, std=0.0, a=0.5, b=0.5),
    ],
}
