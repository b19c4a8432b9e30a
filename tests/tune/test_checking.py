"""What counts as a right result: rounding passes, 1 % and one wrong element do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tuning import planted

from dslc.tune.checking import Difference, combined, damage

UNITS = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-50}


def difference(got: np.ndarray, reference: np.ndarray) -> Difference:
    """As the kernel computes it, in two blocks; the root mean square is the usual size."""
    usual = float(np.sqrt(np.mean(reference[np.isfinite(reference)] ** 2)))
    halves = zip(np.array_split(got, 2), np.array_split(reference, 2), strict=True)
    return combined(np.array([planted.parts_of(a, b, usual) for a, b in halves]))


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(3).standard_normal(200_000)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_one_unit_in_the_last_place_is_right(dtype: str, scale: float, values: np.ndarray) -> None:
    """Each tenth element is rounded the other way: by a unit of its binade."""
    got = values.copy()
    got[::10] += UNITS[dtype] * 2.0 ** np.floor(np.log2(np.abs(values[::10])))
    assert difference(scale * got, scale * values).refusal(dtype, False) is None


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_one_per_cent_is_wrong(dtype: str, scale: float, values: np.ndarray) -> None:
    why = difference(1.01 * scale * values, scale * values).refusal(dtype, False)
    assert why is not None and why.startswith("wrong result (error ")
    assert difference(1.01 * scale * values, scale * values).refusal(dtype, True) is not None  # TF32, too


@pytest.mark.parametrize("dtype", UNITS)
def test_what_is_computed_from_16_bit_values_may_differ_as_much(dtype: str, values: np.ndarray) -> None:
    """By the rounding of a few values of a loop's state the other way. 1 % is wrong there, too."""
    got = values * (1 + 2.0**-8 * np.where(np.arange(values.size) % 9, 0, 1))
    found = difference(got, values)
    assert found.refusal(dtype, False, "bf16") is None
    assert (found.refusal(dtype, False) is None) == (dtype == "bf16")
    assert difference(1.01 * values, values).refusal(dtype, False, "bf16") is not None
    assert difference(values + 1.0, values).refusal("i32", False, "bf16") is not None


@pytest.mark.parametrize("dtype", UNITS)
def test_one_element_that_is_wrong_is_found(dtype: str, values: np.ndarray) -> None:
    got = values.copy()
    got[77] = 0.5 - got[77]
    assert difference(got, values).refusal(dtype, False) is not None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_element_that_is_not_finite_is_found(bad: float, values: np.ndarray) -> None:
    got = values.copy()
    got[5] = bad
    found = difference(got, values)
    assert found.error == math.inf and found.refusal("f32", False) is not None
    assert difference(got, got).refusal("f32", False) is None  # where the reference has the same


def test_integers_must_be_equal(values: np.ndarray) -> None:
    whole = np.round(100 * values)
    assert difference(whole, whole).refusal("i32", False) is None
    got = whole.copy()
    got[9] += 1
    assert difference(got, whole).refusal("i32", False) is not None


def test_a_reference_of_zeros_allows_zeros_alone() -> None:
    zeros = np.zeros(10)
    assert difference(zeros, zeros).refusal("f32", False) is None
    assert difference(zeros + 1e-30, zeros).refusal("f32", False) is not None


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
