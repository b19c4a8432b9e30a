"""Random kernels draw the reference's numbers: uniform ones and masks bit for bit, at any row and step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.evaluation import apply, values_of

from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry

OPS = registry.ops()
SCALARS = [(0, 0, 0), (-3, (1 << 40) + 7, 5), ((1 << 63) - 1, 3, (1 << 33) + 1)]
KEY = 0xF123456789ABCDEF


def both(name: str, xs: list[np.ndarray], attrs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    native = Native(Builder(name="here").node(OPS[name], *values_of(xs), **attrs))
    [got], [again] = native.run(xs), native.run(xs, splits=3)
    assert got.tobytes() == again.tobytes()
    return got, apply(OPS[name], xs, attrs)[0]


@pytest.mark.parametrize("scalars", SCALARS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_uniform_numbers_have_the_bits_of_the_reference(scalars: tuple[int, ...], dtype: DType) -> None:
    numbers = [np.array(v, np.int64) for v in scalars]
    attrs = {"shape": (97, 101), "dtype": dtype, "key": KEY, "row_elements": 101}
    got, want = both("rand", numbers, attrs)
    assert got.tobytes() == want.tobytes()
    initial = {"shape": (40, 7), "dtype": dtype, "key": KEY, "low": -0.1, "high": 0.3}
    got, want = both("init_uniform", numbers[:1], initial)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("scalars", SCALARS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_masks_have_the_bits_of_the_reference(scalars: tuple[int, ...], p: float) -> None:
    x = np.random.default_rng(7).standard_normal((93, 61)).astype(np.float32)
    numbers = [np.array(v, np.int64) for v in scalars]
    got, want = both("dropout", [x, *numbers], {"p": p, "key": KEY, "row_elements": 61})
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("scalars", SCALARS)
def test_normal_numbers_agree(scalars: tuple[int, ...]) -> None:
    numbers = [np.array(v, np.int64) for v in scalars]
    attrs = {"shape": (200, 131), "dtype": DType.F32, "key": KEY, "row_elements": 131}
    got, want = both("randn", numbers, attrs)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert abs(got.mean()) < 0.03 and abs(got.std() - 1) < 0.03
