"""Parts of one tensor on a GPU: one launch for each size of vectors, as compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.copies import boxes as module
from dslc.compiler.codegen.cuda.ops.copies.boxes import Boxes
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.boxes import MAX_BOXES, Box, as_attrs, lines

#: A tensor; its parts; how many of them each launch takes of bf16, from single elements to whole vectors.
CASES: list[tuple[tuple[int, ...], list[Box], list[int]]] = [
    ((40, 3), [Box((0, i), (40, 1)) for i in range(3)], [3]),  # columns
    ((9, 5, 5), [Box((0, i, 0), (9, 1, i)) for i in range(1, 5)], [4]),  # the lower half of pairs
    ((6, 3, 16), [Box((0, i, 0), (6, 1, 16)) for i in range(3)], [3]),
    ((6, 4, 16), [Box((0, 0, 3), (6, 1, 2)), Box((1, 1, 0), (2, 2, 16)), Box((3, 3, 8), (3, 1, 8))], [1, 2]),
    ((3, 4, 2, 6), [Box((0, 1, 0, 2), (3, 2, 1, 4)), Box((0, 0, 1, 0), (3, 4, 1, 6)), Box((1, 3, 0, 0), (0, 1, 1, 6))],
     [2]),
    ((300, 4), [Box((0, 0), (299, 4)), Box((299, 0), (1, 2))], [1, 1]),  # several blocks
]  # fmt: skip


def sliced(whole: tuple[int, ...], boxes: list[Box], dtype: DType) -> Node:
    return Builder(name="here").node(OPS["slices"], value(dtype, whole), **as_attrs(boxes))


def placed(whole: tuple[int, ...], boxes: list[Box], dtype: DType) -> Node:
    values = [value(dtype, box.shape) for box in boxes]
    return Builder(name="here").node(OPS["placed"], *values, shape=whole, starts=tuple(box.start for box in boxes))


def drawn(shape: tuple[int, ...], dtype: DType, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    return simulator.held(rng.normal(size=shape), dtype) if dtype.is_float else rng.integers(0, 99, shape, np.int32)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_THREADS", 32)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F64, DType.I32])
@pytest.mark.parametrize(("whole", "boxes", "launches"), CASES)
def test_parts_are_read(whole: tuple[int, ...], boxes: list[Box], launches: list[int], dtype: DType) -> None:
    node, x = sliced(whole, boxes, dtype), drawn(whole, dtype)
    if dtype is DType.BF16:
        assert [len(launch.writes) for launch in lower(node) or []] == launches
    for got, box in zip(on_machine(node, [x]), boxes, strict=True):
        np.testing.assert_array_equal(got, box.of(x))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.parametrize(("whole", "boxes"), [CASES[1][:2], CASES[3][:2]])
def test_parts_are_rounded(whole: tuple[int, ...], boxes: list[Box], dtype: DType) -> None:
    x = drawn(whole, DType.F32)
    node = Builder(name="here").node(OPS["slices"], value(DType.F32, whole), **as_attrs(boxes), dtype=dtype)
    for got, box in zip(on_machine(node, [x]), boxes, strict=True):
        np.testing.assert_array_equal(got, simulator.held(box.of(x), dtype))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F64, DType.I32])
@pytest.mark.parametrize(("whole", "boxes", "launches"), CASES)
def test_parts_are_written_and_the_rest_is_zero(
    whole: tuple[int, ...], boxes: list[Box], launches: list[int], dtype: DType
) -> None:
    node, xs = placed(whole, boxes, dtype), [drawn(box.shape, dtype, i) for i, box in enumerate(boxes)]
    wanted = np.zeros(whole, xs[0].dtype)
    for x, box in zip(xs, boxes):
        box.of(wanted)[...] = x
    np.testing.assert_array_equal(on_machine(node, xs)[0], wanted)


def test_a_tensor_without_a_rest_is_not_cleared() -> None:
    halves = [Box((0, 0), (8, 4)), Box((0, 4), (8, 4))]
    assert [type(launch.spec) for launch in lower(placed((8, 8), halves, DType.F32)) or []] == [Boxes]
    assert len(lower(placed((8, 9), halves, DType.F32)) or []) == 2


def test_as_many_parts_as_a_node_may_have_fit_the_arguments_of_a_kernel() -> None:
    [launch] = lower(sliced((8, MAX_BOXES), [Box((0, i), (8, 1)) for i in range(MAX_BOXES)], DType.F32)) or []
    assert 8 * (1 + MAX_BOXES) + 4 * len(launch.scalar_args) <= 4096


def test_a_block_loads_the_numbers_of_its_own_part_alone() -> None:
    """Branches lead to them. A selection among those of all parts loads all of them."""
    boxes = [Box((0, 39 * i), (64, 39)) for i in range(26)]
    [launch] = lower(sliced((64, 39 * 26), boxes, DType.BF16)) or []
    ptx = cuda_compile.compiled(launch.code, "k", "sm_90").ptx.decode("ascii")
    assert ptx.count("selp") < 4 * 26 < len(launch.scalar_args) < ptx.count("ld.param")


def test_a_thread_copies_as_many_bytes_of_odd_rows_as_of_others() -> None:
    elements = {}
    for width in (39, 40):
        [launch] = lower(sliced((4096, 2 * width), [Box((0, width), (4096, width))], DType.BF16)) or []
        elements[width] = 4096 * width / launch.spec.geometry.grid[0] / 32
    assert 7 < elements[39] <= 8 and 31 < elements[40] <= 32


@pytest.mark.parametrize("other", [Box((1, 2), (2, 3)), Box((2, 3), (2, 3)), Box((-1, 3), (1, 1))])
def test_parts_that_overlap_or_leave_the_tensor_are_refused(other: Box) -> None:
    with pytest.raises(Mismatch, match="parts"):
        placed((3, 5), [Box((0, 0), (2, 3)), other], DType.F32)


def test_a_part_of_more_axes_has_no_kernel() -> None:
    box = Box((0, 0, 0, 0), (2, 2, 2, 2))
    assert len(lines(box, (3, 3, 3, 3))[1]) == 4 and lower(sliced((3, 3, 3, 3), [box], DType.F32)) is None


def test_blocks_may_come_in_any_order() -> None:
    whole, boxes, _ = CASES[3]
    x = drawn(whole, DType.F32)
    for one, other in zip(on_machine(sliced(whole, boxes, DType.F32), [x], backwards=True), boxes):
        np.testing.assert_array_equal(one, other.of(x))
