"""Samples of the elementwise ops: broadcasting, sizes 0, 1 and odd, integers, values that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from op_samples.sample import Sample, Spec

from dslc.compiler.ir.types import DType

INF, NAN = math.inf, math.nan
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30, -1e-30, 700.0, -700.0])


def each(function: Callable[[float], float]) -> Callable[..., np.ndarray]:
    """A reference from a function of the math module, element by element."""

    def reference(x: np.ndarray, **attrs: Any) -> np.ndarray:
        return np.array([function(float(v)) for v in x.reshape(-1)]).reshape(x.shape)

    return reference


def unary(
    reference: Callable[..., Any],
    low: float = -2.0,
    high: float = 2.0,
    gap: float = 0.0,
    corners: bool = True,
    **attrs: Any,
) -> list[Sample]:
    shapes = [(), (0,), (1,), (7,), (2, 3, 1), (3, 0, 2)]
    made = [Sample([Spec(s, low=low, high=high, gap=gap)], attrs, reference=reference) for s in shapes]
    if corners:
        made.append(Sample([CORNERS], attrs, differentiable=(), near=False, outputs=()))
    return made


SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((), (2, 3)),
    ((2, 1, 3), (5, 1)),
    ((0, 3), (1, 3)),
    ((1,), (1,)),
    ((7,), ()),
]


def binary(reference: Callable[..., Any], y_gap: float = 0.0, low: float = -2.0, corners: bool = True) -> list[Sample]:
    made = [
        Sample([Spec(a, low=low), Spec(b, low=low, gap=y_gap)], reference=lambda x, y: reference(x, y))
        for a, b in SHAPES
    ]
    if corners:
        made.append(Sample([CORNERS[:, None], CORNERS], outputs=(), near=False, reference=lambda x, y: reference(x, y)))
    return made


def integers(
    reference: Callable[..., Any], dtypes: tuple[str, ...] = ("int32", "int64", "uint8", "int16", "int8")
) -> list[Sample]:
    return [
        Sample([Spec((3, 4), d, 0, 9), Spec((4,), d, 1, 9)], reference=lambda x, y, **_: reference(x, y))
        for d in dtypes
    ]


def comparisons(reference: Callable[..., Any]) -> list[Sample]:
    tied = [Spec((4, 5), "int32", 0, 2), Spec((5,), "int32", 0, 2)]
    return [*binary(reference), *integers(reference), Sample(tied, reference=lambda x, y: reference(x, y))]


def logistic(x: np.ndarray, **_: Any) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def pick(test: Callable[[float, float], bool]) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = np.broadcast_arrays(x, y)
        return np.array([a if math.isnan(a) or test(a, b) else b for a, b in zip(x.flat, y.flat)]).reshape(x.shape)

    return reference


def floored(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.floor(x.astype(float) / y)


def truncated(x: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    return np.array(
        [0 if math.isnan(v) else int(min(max(v, info.min), info.max)) for v in x.reshape(-1)], object
    ).astype(info.dtype)


_UNSIGNED = ("uint16", "uint32", "uint64")


def _edges(dtype: str) -> np.ndarray:
    """The limits of an unsigned dtype and of a signed one of its size, and numbers that an f32 rounds up and down."""
    bits = 8 * np.dtype(dtype).itemsize
    odd = [(1 << bits - 1) + sign * (1 << low) + 1 for low in range(bits - 1) for sign in (1, -1)]
    return np.array([0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1, *odd], dtype)


def _low_bits(x: np.ndarray, dtype: str) -> np.ndarray:
    bits, kept = int(dtype[1:]), []
    for value in map(int, x):
        low = value % (1 << bits)
        kept.append(low - (1 << bits) if dtype[0] == "i" and low >> bits - 1 else low)
    return np.array(kept, object).astype(np.float64)


SAMPLES: dict[str, list[Sample]] = {
    "add": [*binary(lambda x, y: x - (0 - y)), *integers(lambda x, y: x - (0 - y))],
    "sub": [*binary(lambda x, y: x + (-1 * y)), *integers(lambda x, y: x + (-1 * y), ("int32", "int64"))],
    "mul": [*binary(lambda x, y: np.einsum("...,...->...", x, y)), *integers(lambda x, y: y * x)],
    "div": binary(lambda x, y: x * (1 / y), y_gap=0.5, corners=False)
    + [Sample([CORNERS[:, None], CORNERS], outputs=(), near=False)],
    "floordiv": [
        *binary(floored, y_gap=0.5, corners=False),
        *integers(floored, ("int32", "int64", "uint8", "uint16", "uint32", "uint64")),
        Sample(
            [np.array([7, -7, 7, -7, 5], "i4"), np.array([2, 2, -2, -2, 0], "i4")],
            reference=lambda x, y: np.array([3, -4, -4, 3, 0]),
        ),
    ],
    "mod": [
        *binary(lambda x, y: x - np.floor(x / y) * y, y_gap=0.5, corners=False),
        *integers(lambda x, y: x - np.floor(x / y) * y, ("int32", "int64", "uint8", "uint16", "uint32", "uint64")),
        Sample(
            [np.array([7, -7, 7, -7, 5], "i4"), np.array([2, 2, -2, -2, 0], "i4")],
            reference=lambda x, y: np.array([1, 1, -1, -1, 0]),
        ),
    ],
    "pow": [
        *[Sample([Spec(a, low=0.2), Spec(b)], reference=lambda x, y: np.exp(y * np.log(x))) for a, b in SHAPES],
        # a base of 0 has a gradient where the exponent is above 1; the exponent's is 0 there
        Sample([np.zeros(3), np.array([2.0, 3.0, 4.0])], reference=lambda x, y: np.zeros(3)),
        Sample([CORNERS[:, None], CORNERS], outputs=(), near=False),
    ],
    "powi": [
        s
        for n in (0, 1, 2, 3, 5, 8, -1, -2, 11)
        for s in unary(lambda x, exponent: x ** float(exponent), gap=0.5, corners=n > 0, exponent=n)
    ]
    + [Sample([Spec((5,), "int32", -9, 9)], {"exponent": 3}, reference=lambda x, exponent: x * x * x)],
    "neg": [*unary(lambda x: 0 - x), Sample([Spec((5,), "int32", -9, 9)], reference=lambda x: 0 - x)],
    "abs": [
        *unary(each(math.fabs), gap=0.1),
        Sample([Spec((5,), "int32", -9, 9)], reference=lambda x: np.maximum(x, -x)),
    ],
    "sign": [*unary(lambda x: (x > 0) * 1.0 - (x < 0), gap=0.1), Sample([Spec((5,), "int8", -9, 9)])],
    "exp": unary(each(math.exp)),
    "expm1": unary(each(math.expm1)),
    "log": unary(each(math.log), low=0.1),
    "log1p": unary(each(math.log1p), low=-0.5),
    "sqrt": unary(each(math.sqrt), low=0.1),
    "rsqrt": unary(each(lambda v: 1 / math.sqrt(v)), low=0.1),
    "sin": unary(each(math.sin)),
    "cos": unary(each(math.cos)),
    "erf": [*unary(each(math.erf)), *unary(each(math.erf), low=-7, high=7)],
    "floor": [
        Sample([np.array([-1.5, -0.5, 0.5, 1.5, 2.25])], reference=each(math.floor)),
        *unary(each(math.floor), gap=0.1),
    ],
    "round": [
        Sample([np.array([-1.5, -0.5, 0.5, 1.5, 2.5])], outputs=(), reference=each(round)),
        Sample([np.array([-1.7, 0.2, 3.9])], reference=each(round)),
        Sample([CORNERS], outputs=(), near=False),
    ],
    "relu": [
        *unary(lambda x: x * (x > 0), gap=0.1),
        Sample([Spec((5,), "int32", -9, 9)], reference=lambda x: x * (x > 0)),
    ],
    "leaky_relu": unary(lambda x, slope: x * (x > 0) + slope * x * (x <= 0), gap=0.1, slope=0.2),
    "elu": [
        *unary(lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(x) - 1)), gap=0.1, alpha=0.5),
        *unary(lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(x) - 1)), gap=0.1, alpha=-0.5),
    ],
    "sigmoid": unary(logistic),
    "tanh": unary(each(math.tanh)),
    "silu": unary(lambda x: x * logistic(x)),
    "softplus": unary(lambda x: np.log(1 + np.exp(x))),
    "hardswish": [
        *unary(lambda x: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6))),
        Sample(
            [np.array([-9.0, -3.5, -2.9, 0.0, 2.9, 3.1, 50.0])], {}, reference=lambda x: x * np.clip(x + 3, 0, 6) / 6
        ),
        Sample([np.array([-3.0, 3.0])], {}, outputs=(), reference=lambda x: np.array([0.0, 3.0])),
    ],
    "gelu": unary(each(lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2))), approximate=False)
    + unary(lambda x, approximate: x * logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)), approximate=True),
    "gelu_grad": [
        Sample([Spec(s), Spec(s)], {"approximate": a}, differentiable=())
        for s in ((5,), (2, 0), (2, 3))
        for a in (False, True)
    ],
    "minimum": [*binary(pick(lambda a, b: a < b)), *integers(lambda x, y: np.where(x < y, x, y))],
    "maximum": [
        *binary(pick(lambda a, b: a > b)),
        *integers(lambda x, y: np.where(x > y, x, y)),
        Sample([np.array([1.0, 2.0]), np.array([1.0, 3.0])]),
    ],
    "clip": [
        s
        for limits in ({"low": -1.0, "high": 0.5}, {"low": 0}, {"high": 1.5})
        for s in unary(
            lambda x, low=-INF, high=INF: np.array([min(max(v, low), high) for v in x.flat]).reshape(x.shape), **limits
        )
    ]
    + [Sample([Spec((7,), "int32", -9, 9)], {"low": -3, "high": 4})],
    "lt": comparisons(lambda x, y: y > x),
    "le": comparisons(lambda x, y: y >= x),
    "gt": comparisons(lambda x, y: y < x),
    "ge": comparisons(lambda x, y: y <= x),
    "eq": [
        *comparisons(lambda x, y: (x <= y) & (x >= y)),
        Sample([Spec((9,), "bool"), Spec((9,), "bool")], reference=lambda x, y: ~(x ^ y)),
    ],
    "ne": [
        *comparisons(lambda x, y: ~((x <= y) & (x >= y))),
        Sample([Spec((9,), "bool"), Spec((9,), "bool")], reference=lambda x, y: x ^ y),
    ],
    "logical_and": [Sample([Spec(a, "bool"), Spec(b, "bool")], reference=lambda x, y: x & y) for a, b in SHAPES],
    "logical_or": [Sample([Spec(a, "bool"), Spec(b, "bool")], reference=lambda x, y: x | y) for a, b in SHAPES],
    "logical_not": [Sample([Spec(s, "bool")], reference=lambda x: ~x) for s in ((), (0,), (5,), (2, 3))],
    "where": [
        Sample([Spec((3, 4), "bool"), Spec(a), Spec(b)], reference=lambda c, x, y: c * x + (1 - c) * y)
        for a, b in (((3, 4), (3, 4)), ((4,), ()), ((3, 1), (1, 4)))
    ]
    + [
        Sample(
            [Spec((5,), "bool"), Spec((5,), "int32", 0, 9), Spec((), "int32", 0, 9)],
            reference=lambda c, x, y: c * x + (1 - c) * y,
        ),
        Sample([Spec((3, 0), "bool"), Spec((3, 0)), Spec((1,))]),
    ],
    "stop_gradient": [Sample([Spec((3, 4))], differentiable=(), reference=lambda x: x), Sample([Spec((0,), "int32")])],
    "cast": [
        Sample([Spec((3, 4))], {"dtype": DType.FLOAT}, reference=lambda x, dtype: x),
        # in f32 the gradient passes two roundings; the difference quotient would see them
        Sample([Spec((3, 4))], {"dtype": DType.F32}, outputs=()),
        Sample([Spec((3, 4), "int32", -9, 9)], {"dtype": DType.FLOAT}, reference=lambda x, dtype: x * 1.0),
        Sample([Spec((7,), "bool")], {"dtype": DType.FLOAT}, reference=lambda x, dtype: x * 1.0),
        Sample([Spec((7,), "int32", -1, 1)], {"dtype": DType.B1}, reference=lambda x, dtype: x != 0),
        Sample([Spec((7,), "int32", -9, 9)], {"dtype": DType.I64}, reference=lambda x, dtype: x),
        Sample(
            [Spec((7,), "uint8", 0, 255)],
            {"dtype": DType.I8},
            reference=lambda x, dtype: np.where(x > 127, x - 256.0, x),
        ),
        *(
            Sample([Spec((9,), low=-200, high=200)], {"dtype": d}, reference=truncated, near=False)
            for d in (DType.I64, DType.I32, DType.I16)
        ),
        *(
            Sample([Spec((9,), low=0, high=200)], {"dtype": d}, reference=truncated, near=False)
            for d in (DType.U64, DType.U32, DType.U16, DType.U8)
        ),
        *(
            Sample([_edges(source)], {"dtype": DType(new)}, reference=_low_bits, near=False)
            for source in _UNSIGNED
            for new in ("i8", "i32", "i64", "u8", "u16", "u32", "u64")
        ),
        *(
            Sample([_edges(source)], {"dtype": DType.FLOAT}, reference=lambda x, dtype: x.astype(float), near=False)
            for source in _UNSIGNED
        ),
    ],
}

for _corner in ("log", "log1p", "sqrt", "rsqrt", "exp", "sigmoid", "gelu", "softplus", "tanh", "relu"):
    assert len(SAMPLES[_corner]) >= 6
