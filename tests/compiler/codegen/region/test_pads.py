"""What a pad writes: where one side of one axis is padded, each element of the result once."""

from __future__ import annotations

import math

import pytest

from dslc.compiler.codegen.lowerings import Family, lowerings
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops import registry


def filled_elements(target: Family, low: tuple[int, ...], high: tuple[int, ...], gaps: tuple[int, ...]) -> int:
    """How many elements of its result a pad of [6, 5, 4] fills before it copies its input there."""
    x = Input("x", Kind.DATA, TensorType(DType.F32, (6, 5, 4))).value
    node = Builder().node(registry.ops()["pad"], x, low=low, high=high, interior=gaps, value=-1.0)
    fill, copy = lowerings(target)["pad"](node) or []
    assert isinstance(fill.spec, Region) and isinstance(copy.spec, Region)
    assert math.prod(copy.spec.outer) == 6 * 5 * 4 and copy.reads == (x,) and fill.reads == ()
    return math.prod(fill.spec.outer)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("low", "high", "added"),
    [
        pytest.param((0, 0, 0), (3, 0, 0), 3 * 5 * 4, id="after rows"),
        pytest.param((2, 0, 0), (0, 0, 0), 2 * 5 * 4, id="before rows"),
        pytest.param((0, 0, 0), (0, 7, 0), 6 * 7 * 4, id="after each"),
    ],
)
def test_one_side_alone_is_filled(target: Family, low: tuple[int, ...], high: tuple[int, ...], added: int) -> None:
    assert filled_elements(target, low, high, (0, 0, 0)) == added


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_otherwise_the_whole_result_is_filled(target: Family) -> None:
    assert filled_elements(target, (1, 0, 0), (1, 0, 0), (0, 0, 0)) == 8 * 5 * 4
    assert filled_elements(target, (1, 0, 0), (0, 0, 0), (1, 0, 0)) == 12 * 5 * 4
    assert filled_elements(target, (0, 0, 0), (2, 1, 0), (0, 0, 0)) == 8 * 6 * 4
