"""What counts as a right result: rounding passes, 1 % and one wrong element do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tuning import planted

from dslc.tune.checking import EQUAL, Difference, Limits, combined, damage, limits_of

UNITS = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-50}


def refusal(got: np.ndarray, reference: np.ndarray, dtype: str, tf32: bool = False, rounds: str = "") -> str | None:
    """As the kernel and the host compute it, in two blocks."""
    limits = limits_of(dtype, tf32, rounds)
    return difference(got, reference, limits).refusal(limits)


def difference(got: np.ndarray, reference: np.ndarray, limits: Limits) -> Difference:
    halves = zip(np.array_split(got, 2), np.array_split(reference, 2), strict=True)
    parts = [planted.parts_of(a, b, limits.unit, limits.far) for a, b in halves]
    return combined(np.array(parts), reference.size)


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(3).standard_normal(200_000)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_one_unit_in_the_last_place_is_right(dtype: str, scale: float, values: np.ndarray) -> None:
    """Each tenth element is rounded the other way: by a unit of its binade."""
    got = values.copy()
    got[::10] += UNITS[dtype] * 2.0 ** np.floor(np.log2(np.abs(values[::10])))
    assert refusal(scale * got, scale * values, dtype) is None


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_one_per_cent_is_wrong(dtype: str, scale: float, values: np.ndarray) -> None:
    why = refusal(1.01 * scale * values, scale * values, dtype)
    assert why is not None and why.startswith("wrong result (error ")
    assert refusal(1.01 * scale * values, scale * values, dtype, True) is not None  # TF32, too


@pytest.mark.parametrize("dtype", UNITS)
def test_what_is_computed_from_16_bit_values_may_differ_as_much(dtype: str, values: np.ndarray) -> None:
    """By the rounding of a few values of a loop's state the other way. 1 % is wrong there, too."""
    got = values * (1 + 2.0**-8 * np.where(np.arange(values.size) % 9, 0, 1))
    assert refusal(got, values, dtype, False, "bf16") is None
    assert (refusal(got, values, dtype) is None) == (dtype == "bf16")
    assert refusal(1.01 * values, values, dtype, False, "bf16") is not None
    assert refusal(values + 1.0, values, "i32", False, "bf16") is not None


@pytest.mark.parametrize("dtype", UNITS)
def test_one_element_that_is_wrong_is_found(dtype: str, values: np.ndarray) -> None:
    got = values.copy()
    got[77] = 0.5 - got[77]
    assert refusal(got, values, dtype) is not None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_element_that_is_not_finite_is_found(bad: float, values: np.ndarray) -> None:
    got = values.copy()
    got[5] = bad
    assert difference(got, values, EQUAL).error == math.inf and refusal(got, values, "f32") is not None
    assert refusal(got, got, "f32") is None  # where the reference has the same


def bf16(values: np.ndarray, up: np.ndarray | bool = False) -> np.ndarray:
    """Rounded to nearest; where ``up`` says so away from zero, as another right way may."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.where(up, 0xFFFF, 0x8000).astype(np.uint32)) & 0xFFFF0000).view(np.float32).astype(np.float64)


def gram(rows: int, terms: int) -> np.ndarray:
    """A product of a tensor with itself: its diagonal is sqrt(terms) times as large as its other elements."""
    x = np.random.default_rng(1).standard_normal((rows, terms))
    return x @ x.T


def test_a_product_of_a_tensor_with_itself_may_be_rounded_either_way() -> None:
    values = gram(1024, 4096)
    other_way = np.broadcast_to(np.arange(1024) % 8 == 0, values.shape)  # of the diagonal, too
    assert refusal(bf16(values, other_way), bf16(values), "bf16") is None
    apart = np.abs(bf16(values, other_way) - bf16(values))
    assert apart.max() / np.sqrt(np.mean(values**2)) > limits_of("bf16").most  # without the unit it would be wrong
    wrong = bf16(values)
    wrong[7, 8] += 40  # its size is 64
    assert refusal(wrong, bf16(values), "bf16") is not None


@pytest.mark.parametrize(("rows", "terms"), [(16, 65536), (64, 4096), (512, 512)])
def test_one_per_cent_off_the_diagonal_is_wrong(rows: int, terms: int) -> None:
    """It is little in units of the mean square, in which the diagonal of few rows counts most."""
    values = gram(rows, terms)
    changed = np.where(np.eye(rows, dtype=bool), values, 1.01 * values)
    assert refusal(bf16(changed), bf16(values), "bf16") is not None
    assert refusal(bf16(values, np.arange(rows) % 3 == 0), bf16(values), "bf16") is None


def test_rows_of_very_different_sizes_may_be_rounded_by_their_own_size() -> None:
    """As of attention's gradient for random operands. Terms that cancel leave small elements with the errors of large
    ones."""
    rng = np.random.default_rng(5)
    size = np.exp(1.5 * rng.standard_normal((500, 1)))
    values = size * rng.standard_normal((500, 400))
    got = values + 0.0033 * size * rng.standard_normal(values.shape)
    assert refusal(got, values, "bf16") is None
    assert refusal(1.01 * values, values, "bf16") is not None


def test_integers_must_be_equal(values: np.ndarray) -> None:
    whole = np.round(100 * values)
    assert refusal(whole, whole, "i32") is None
    got = whole.copy()
    got[9] += 1
    assert refusal(got, whole, "i32") is not None


def test_a_reference_of_zeros_allows_zeros_alone() -> None:
    zeros = np.zeros(10)
    assert refusal(zeros, zeros, "f32") is None
    assert refusal(zeros + 1e-30, zeros, "f32") is not None


def test_writes_outside_are_named() -> None:
    clean = bytes([0xA5]) * 64
    assert damage([("result 0", clean, clean)], 0xA5) is None
    assert damage([("result 0", clean, b"\0" + clean[1:])], 0xA5) == "writes 1 bytes after the end of result 0"
    assert damage([("result 0", clean, clean[:8] + b"\0" + clean[9:])], 0xA5) == (
        "writes 9 bytes after the end of result 0"
    )
    assert damage([("a", clean, clean), ("input 1", clean[:-4] + b"\0\0\0\0", clean)], 0xA5) == (
        "writes 4 bytes before input 1"
    )
