"""exp, log, tanh, erf and their kin: the error in units of the last place over the whole range, and the corners."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import values_of

from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()
INF, NAN = math.inf, math.nan
CORNERS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-30, -1e-30, 88.7, -103.9, 709.7, -745.0, 1e-310, 3e38]
#: op -> the largest error in ulp; of erf, whose bound is absolute, in units of 2^-24 and 2^-53
BOUNDS = {
    "exp": 2.0,
    "expm1": 2.0,
    "log": 2.0,
    "log1p": 2.0,
    "tanh": 4.0,
    "erf": 4.0,
    "sqrt": 0.5,
    "floor": 0,
    "round": 0,
    "tan": 3.0,
    "asin": 4.0,
    "acos": 4.0,
    "atan": 1.0,
    "sinh": 5.0,
    "cosh": 5.0,
    "asinh": 4.0,
    "acosh": 4.0,
    "atanh": 4.0,
    "exp2": 2.0,
    "log2": 1.0,
    "log10": 1.0,
    "erfc": 6.0,
}
NUMPY = {"round": "rint", **{name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}}


def inputs(name: str, dtype: type[np.floating], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    span = 90.0 if dtype is np.float32 else 740.0
    small = rng.standard_normal(3000) * 10.0 ** rng.uniform(-20, 0, 3000)
    wide = rng.uniform(-span, span, 3000)
    if name in ("log", "log2", "log10", "sqrt"):
        wide = 10.0 ** rng.uniform(-37, 38, 3000) if dtype is np.float32 else 10.0 ** rng.uniform(-307, 308, 3000)
        small = 1 + np.abs(small) * 0.4
    if name in ("asin", "acos", "atanh"):
        small, wide = np.clip(small, -1, 1), rng.uniform(-1, 1, 3000)
    if name in ("atan", "asinh", "acosh"):
        wide = wide**5
    if name == "acosh":
        small, wide = 1 + np.abs(small), 1 + np.abs(wide)
    if name == "exp2":
        wide = wide * 1.44
    if name == "erfc":
        wide = wide / (9 if dtype is np.float32 else 28)
    if name == "log1p":
        small, wide = np.maximum(small, -0.999), np.abs(wide)
    if name in ("tanh", "erf"):
        wide = wide / 20
    with np.errstate(over="ignore"):
        return np.concatenate([small, wide, CORNERS]).astype(dtype)


def exact(name: str, xs: np.ndarray) -> np.ndarray:
    if name in ("erf", "erfc"):
        return np.array([getattr(math, name)(x) for x in xs.astype(np.float64)])
    found: Callable[..., np.ndarray] = getattr(np, NUMPY.get(name, name))
    kind = np.float64 if xs.dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return np.asarray(found(xs.astype(kind)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_error_is_bounded(name: str, dtype: type[np.floating], fuzz_seed: int) -> None:
    xs = inputs(name, dtype, fuzz_seed)
    [got] = Native(Builder(name="here").node(OPS[name], *values_of([xs]))).run([xs])
    want = exact(name, xs)
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    if name == "erf":
        unit = np.full(xs.shape, 2.0**-24 if dtype is np.float32 else 2.0**-53)[finite]
    else:
        unit = np.spacing(np.abs(rounded[finite])).astype(want.dtype)
    error = np.abs(got[finite].astype(want.dtype) - want[finite]) / unit
    worst = int(np.argmax(error))
    assert error[worst] <= BOUNDS[name] + 0.01, f"{name}({xs[finite][worst]!r}) is {error[worst]} units off"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_powers_are_exact(dtype: type[np.floating]) -> None:
    for name, base, most in (("log2", 2.0, 126), ("log10", 10.0, 10 if dtype is np.float32 else 22)):
        powers = np.arange(-most if base == 2.0 else 0, most + 1)
        xs = (base**powers).astype(dtype)
        [got] = Native(Builder(name="here").node(OPS[name], *values_of([xs]))).run([xs])
        np.testing.assert_array_equal(got, powers.astype(dtype))
    xs = np.arange(-126, 127).astype(dtype)
    [got] = Native(Builder(name="here").node(OPS["exp2"], *values_of([xs]))).run([xs])
    np.testing.assert_array_equal(got, 2.0 ** xs.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_angle_of_a_point(dtype: type[np.floating], fuzz_seed: int) -> None:
    """All pairs of corners to the bit and the sign, and points of all sizes within 3 units in the last place."""
    rng = np.random.default_rng(fuzz_seed)
    each = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30, -1e30], dtype)
    points = rng.standard_normal((2, 4000)) * 10.0 ** rng.uniform(-18, 18, (2, 4000))
    y, x = (np.concatenate([a, b.astype(dtype)]) for a, b in zip((np.repeat(each, 9), np.tile(each, 9)), points))
    [got] = Native(Builder(name="here").node(OPS["atan2"], *values_of([y, x]))).run([y, x])
    kind = np.float64 if dtype is np.float32 else np.longdouble
    want = np.arctan2(y.astype(kind), x.astype(kind))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(got)]))
    np.testing.assert_allclose(got.astype(kind), want, rtol=3 * float(np.finfo(dtype).eps))


def test_erf_stays_in_its_range_and_small_values_are_right_relatively() -> None:
    ends = np.arange(np.float32(3.5).view(np.int32), np.float32(4.5).view(np.int32), dtype=np.int32).view(np.float32)
    small = np.arange(np.float32(1e-30).view(np.int32), np.float32(1).view(np.int32), 9973, dtype=np.int32)
    xs = np.concatenate([ends, -ends, small.view(np.float32)])
    [got] = Native(Builder(name="here").node(OPS["erf"], *values_of([xs]))).run([xs])
    assert np.abs(got).max() == 1.0
    assert got[len(ends) - 1] == 1.0 and got[2 * len(ends) - 1] == -1.0
    few = got[2 * len(ends) :]
    np.testing.assert_allclose(few, exact("erf", small.view(np.float32)), rtol=4e-7)
