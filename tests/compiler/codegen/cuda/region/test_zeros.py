"""Quotients and roots of f32, whose kernels choose the results of 0 by themselves: the bits are numpy's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gpu_kernels.compiled_regions import ptx_of
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

TINY = np.finfo(np.float32).smallest_subnormal
SPECIAL = np.array([0, 1, 3, np.inf, np.nan, TINY, 2**-126, 2**127], np.float32)
ALL = np.concatenate([SPECIAL, -SPECIAL])


def same_bits(got: np.ndarray, wanted: np.ndarray) -> bool:
    nan = np.isnan(wanted)
    return bool((np.isnan(got) == nan).all()) and got[~nan].tobytes() == wanted[~nan].tobytes()


@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_zeros_and_other_special_numbers_have_the_bits_of_numpy(name: str) -> None:
    x, y = (np.ascontiguousarray(each.reshape(-1)) for each in np.meshgrid(ALL, ALL))
    xs = [x, y] if name == "div" else [x]
    node = Builder(name="here").node(OPS[name], *(value(DType.F32, x.shape) for _ in xs))
    with np.errstate(all="ignore"):
        wanted = x / y if name == "div" else np.sqrt(x)
    assert same_bits(on_machine(node, xs)[0], wanted)


@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_no_zero_is_divided_and_no_root_of_it_is_taken(name: str) -> None:
    count = 2 if name == "div" else 1
    node = Builder(name="here").node(OPS[name], *(value(DType.F32, (512,)) for _ in range(count)))
    [launch] = lower(node) or []
    text = ptx_of(launch, "sm_90")
    given = re.findall(rf"{name}\.rn\.f32\s+%f\d+, (%f\d+)", text)
    assert given
    for each in given:
        assert re.search(rf"selp\.f32\s+{each}, 0f3F800000,", text), "the operand is 1 where it was 0"
