"""Rows that are split although their axes were merged: each element still meets the numbers of its own channel."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import split_choice
from dslc.compiler.codegen.cuda.region.merge_axes import merge_axes, with_axes_apart
from dslc.compiler.codegen.cuda.region.schedule import is_flat
from dslc.compiler.codegen.device_model import SplitLimits
from dslc.compiler.codegen.region.ir import Access, MixedRadix, Region
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType


@pytest.fixture(autouse=True)
def split_short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_choice, "GPU_ROW_SPLITS", SplitLimits(busy=64, wanted=8, min_elements=1, min_part=8))


def value(dtype: DType, *shape: int) -> Value:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def nodes(dtype: DType) -> dict[str, Node]:
    image, vector, statistic = value(dtype, 1, 8, 4, 8), value(DType.F32, 8), value(DType.F32, 1, 2)
    b = Builder()
    return {
        "groupnorm": b.node(OPS["groupnorm"], image, vector, value(DType.F32, 8), groups=2, eps=1e-5),
        "groupnorm_grad": b.node(
            OPS["groupnorm_grad"], image, vector, statistic, value(DType.F32, 1, 2), value(dtype, 1, 8, 4, 8)
        ),
    }


@pytest.mark.parametrize("name", ["groupnorm", "groupnorm_grad"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_a_channel_of_a_split_group_has_its_own_weight(name: str, dtype: DType) -> None:
    node = nodes(dtype)[name]
    launches = lower(node)
    assert launches is not None and len(launches) > 2, "the rows are split"
    rng = np.random.default_rng(3)
    xs = [
        simulator.held(rng.normal(size=t.ints).astype(np.float32) + 10 * np.arange(8).reshape(t.ints), t.dtype)
        if t.rank == 1
        else simulator.held(np.abs(rng.normal(size=t.ints)).astype(np.float32), t.dtype)
        for t in node.input_types
    ]
    found = on_machine(node, xs)
    wanted = node.op.meaning([np.asarray(x, np.float64) for x in xs], dict(node.attrs))
    for y, other, type in zip(found, wanted, node.types, strict=True):
        near = 1e-5 if type.dtype is DType.F32 else 2**-7
        np.testing.assert_allclose(y, other, rtol=near, atol=near * np.abs(other).max())


def test_merged_axes_come_apart_again() -> None:
    [launch] = [x for x in lower(nodes(DType.F32)["groupnorm"]) or [] if isinstance(x.spec, Region)][:1]
    region = launch.spec
    assert with_axes_apart(merge_axes(region)).inner == with_axes_apart(region).inner
    plain = Access(DType.F32, (64, 1))
    own = Access(DType.F32, (8, 0), mixed_radix=(MixedRadix((0, 1), (8, 2, 4), (1, 0, 100)),))
    other = Access(DType.F32, (0, 0), mixed_radix=(MixedRadix((0, 1), (16, 4), (7, 5)),))
    apart = with_axes_apart(Region((2,), (64,), (plain, own, other), (plain,), ()))
    assert apart.inner == (8, 2, 4)
    assert [a.strides for a in apart.inputs] == [(64, 8, 4, 1), (8, 1, 0, 100), (0, 14, 7, 5)]
    assert apart.outputs[0].strides == (64, 8, 4, 1) and is_flat(apart)
