"""sin, cos and pow against many digits, division rounded down and its rest against numpy, over all arguments."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of

from dslc.compiler.codegen.cpu.llvm.trigonometry import _pi
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()
INF, NAN = np.inf, np.nan
CORNERS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e-30, 1e30, 5e-324, 1e-310, 1.7e308]
PI = Fraction(_pi(2400), 1 << 2400)  # leaves 1,300 fractional bits for 1e308
DTYPES = [np.float32, np.float64]


def run(name: str, *xs: np.ndarray) -> np.ndarray:
    return Native(Builder(name="here").node(OPS[name], *values_of(xs))).run(xs)[0]


def series(x: Fraction, start: int) -> Fraction:
    """cos (start 0) or sin (1) of a number below 1, to more than 100 bits."""
    x = Fraction(round(x * (1 << 200)), 1 << 200)
    total, term = Fraction(0), x if start else Fraction(1)
    for k in range(start, 30, 2):
        total += term
        term = Fraction(round(-term * x * x / ((k + 1) * (k + 2)) * (1 << 220)), 1 << 220)
    return total


def angle(name: str, x: float) -> Fraction:
    """sin or cos of a finite number."""
    turns = round(Fraction(x) * 2 / PI)
    r = Fraction(x) - turns * PI / 2
    quarter = (turns + (name == "cos")) % 4
    found = series(abs(r), 0 if quarter % 2 else 1)
    found = found if quarter % 2 or r >= 0 else -found
    return -found if quarter >= 2 else found


def arguments(dtype: type[np.floating], seed: int) -> np.ndarray:
    """Small, around multiples of pi/2, to the border of the first method and up to the greatest number."""
    rng, top = np.random.default_rng(seed), 37 if dtype is np.float32 else 307
    each = rng.standard_normal(60)
    halves = np.rint(rng.uniform(-1e4, 1e4, 60)) * (np.pi / 2)
    border = rng.uniform(-(2.0**31), 2.0**31, 60)
    huge = each * 10.0 ** rng.uniform(9, top, 60)
    hard = np.array([6381956970095103 * 2.0**797, np.pi, -np.pi / 2, 2.0**30, -(2.0**30), 1.7e308, 16367173 * 2.0**72])
    with np.errstate(over="ignore"):
        found = np.concatenate([each, each * 1e-5, each * 1e-20, halves, border, huge, hard]).astype(dtype)
    return found[np.isfinite(found)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_an_angle_of_any_size(name: str, dtype: type[np.floating], fuzz_seed: int) -> None:
    xs = arguments(dtype, fuzz_seed)
    bound = Fraction(51, 100) if dtype is np.float32 else Fraction(1)
    for x, got in zip(xs, run(name, xs), strict=True):
        want = angle(name, float(x))
        unit = Fraction(float(np.spacing(np.abs(dtype(float(want))))))
        assert abs(Fraction(float(got)) - want) <= bound * unit, f"{name}({x!r}) is {got!r}, {float(want)!r}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_that_are_no_numbers(name: str, dtype: type[np.floating]) -> None:
    xs = np.array([INF, -INF, NAN, 0.0, -0.0, 1e-310], np.float64).astype(dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(xs)
    got = run(name, xs)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[3:]), np.signbit(want[3:]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["pow", "mod", "floordiv"])
def test_every_pair_of_corners(name: str, dtype: type[np.floating], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    with np.errstate(over="ignore"):
        some = np.concatenate([CORNERS, rng.standard_normal(9) * 10.0 ** rng.uniform(-30, 30, 9)]).astype(dtype)
    x, y = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(some, some))
    [want] = apply(OPS[name], [x, y], {})
    got = run(name, x, y)
    if name == "pow":
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).smallest_subnormal)
    else:
        np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: type[np.floating], fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    count = 20_000
    x = np.abs(rng.standard_normal(count) * 10.0 ** rng.uniform(-30, 30, count)).astype(dtype)
    x[: count // 2] = 1 + rng.standard_normal(count // 2) * 10.0 ** rng.uniform(-7, -1, count // 2)
    y = (rng.standard_normal(count) * 10.0 ** rng.uniform(-3, 2 if dtype is np.float32 else 3, count)).astype(dtype)
    got = run("pow", x, y)
    wide = np.float64 if dtype is np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        want = np.power(x.astype(wide), y.astype(wide))
        rounded = want.astype(dtype)
    normal = np.isfinite(rounded) & (np.abs(rounded) > np.finfo(dtype).tiny)
    error = np.abs(got[normal].astype(wide) - want[normal]) / np.spacing(np.abs(rounded[normal])).astype(wide)
    assert error.max() <= (0.51 if dtype is np.float32 else 1.5)
    np.testing.assert_allclose(got[~normal], rounded[~normal], rtol=0, atol=4 * np.finfo(dtype).smallest_subnormal)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["mod", "floordiv"])
def test_a_rest_is_exact(name: str, dtype: type[np.floating], fuzz_seed: int) -> None:
    """Quotients of one bit up to those of hundreds, which no float holds."""
    rng, top = np.random.default_rng(fuzz_seed), 18 if dtype is np.float32 else 150
    x, y = ((rng.standard_normal(4000) * 10.0 ** rng.uniform(-top, top, 4000)).astype(dtype) for _ in range(2))
    x[:500], y[:500] = np.rint(rng.uniform(-99, 99, (2, 500)))
    [want] = apply(OPS[name], [x, y], {})
    np.testing.assert_array_equal(run(name, x, y), want)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("name", ["mod", "floordiv"])
def test_integers_rounded_down(name: str, dtype: type[np.integer], fuzz_seed: int) -> None:
    limits, rng = np.iinfo(dtype), np.random.default_rng(fuzz_seed)
    drawn = rng.integers(limits.min, limits.max, 60, dtype, endpoint=True)
    some = np.concatenate([[0, 1, 2, 3, limits.min, limits.max], drawn]).astype(dtype)
    if limits.min:
        some = np.concatenate([some, np.array([-1, -2, -3], dtype)])
    x, y = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(some, some))
    [want] = apply(OPS[name], [x, y], {})
    np.testing.assert_array_equal(run(name, x, y), want)
