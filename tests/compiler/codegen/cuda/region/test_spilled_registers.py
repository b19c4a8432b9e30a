"""Kernels that would keep many values in local memory get the registers of fewer blocks."""

from __future__ import annotations

from typing import Any

import pytest

from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.codegen.cuda.kernel_spec import Compiled
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import source
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.cuda.code import cubin_code


def sums_of_a_gradient() -> Compiled:
    """Column sums of a gradient of silu in f32, and of its product with the input, as batchnorm's gradient has them."""
    rows, row = (TensorType(DType.F32, shape) for shape in ((4096, 144), (1, 144)))
    values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate((rows, row, row, rows, row, row))]
    body: Any = (
        ("sub", (0, 1), ()),
        ("mul", (6, 2), ()),
        ("mul", (7, 4), ()),
        ("add", (8, 5), ()),
        ("sigmoid", (9,), ()),
        ("silu", (9,), ()),
        ("sub", (10, 11), ()),
        ("mul", (12, 10), ()),
        ("add", (13, 10), ()),
        ("mul", (14, 3), ()),
        ("mul", (15, 7), ()),
    )
    attrs: dict[str, Any] = {"body": body, "summed": (15, 16), "over": (0,), "kept": ()}
    first = (lower(Builder(name="here").node(OPS["fused_sums"], *values, **attrs)) or [])[0]
    return compiled(first.code, first.symbol, "sm_90")


def test_a_kernel_that_spills_has_fewer_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sums_of_a_gradient()
    assert cubin_code(found.cubin, "k")[1] <= source._MOST_SPILLED
    monkeypatch.setattr(source, "_MOST_SPILLED", 1 << 20)
    spilled = sums_of_a_gradient()
    assert cubin_code(spilled.cubin, "k")[1] > 64
    assert spilled.ptx.replace(b".minnctapersm 4", b".minnctapersm 2") == found.ptx
