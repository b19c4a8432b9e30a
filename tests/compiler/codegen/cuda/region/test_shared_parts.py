"""Parts of large trees that several others share are emitted once."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.region.pointwise import flat_source
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.region.pointwise import pointwise
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


@pytest.mark.parametrize(
    ("name", "attrs", "dtype", "calls"),
    [
        ("lgamma", {}, DType.F32, {"log": 2, "div": 1, "round": 1}),
        ("lgamma", {}, DType.F64, {"log": 2, "div": 1, "round": 1}),
        ("polygamma", {"n": 0}, DType.F32, {"log": 1, "div": 3, "round": 1}),
        ("polygamma", {"n": 1}, DType.F64, {"div": 3, "round": 1}),
    ],
)
def test_functions_of_large_trees(name: str, attrs: dict[str, Any], dtype: DType, calls: dict[str, int]) -> None:
    x = Input("x", Kind.DATA, TensorType(dtype, (64, 64))).value
    [launch] = pointwise(Builder(name="here").node(OPS[name], x, **attrs))
    assert isinstance(launch.spec, Region)
    found = schedule(launch.spec)
    assert isinstance(found, Flat)
    source = flat_source("k", launch.spec, found)[0]
    assert {call: source.text.count(f"{call}(") for call in calls} == calls
    assert source.resident == 2, "so that registers leave room for another block"
