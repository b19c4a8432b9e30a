"""Splitting the rows of a reduction into parts, with the choice of each target."""

from __future__ import annotations

import pytest

from dslc.compiler.codegen.cpu.region import split_choice as cpu
from dslc.compiler.codegen.cuda.region import split_choice as cuda
from dslc.compiler.codegen.device_model import GPU_ROW_SPLITS
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.cut import wanted_parts
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.region.split_rows import split_rows
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.types import DType, TensorType

CHOICES = {"cpu": cpu.split_choice, "cuda": cuda.split_choice}


@pytest.mark.parametrize("written", [("store",), ("flag",), ("store", "flag")], ids="+".join)
@pytest.mark.parametrize("element", [False, True], ids=["rows", "rows and elements"])
@pytest.mark.parametrize("target", CHOICES)
def test_a_split_writes_all_that_the_whole_writes(target: str, written: tuple[str, ...], element: bool) -> None:
    """Whatever the stages after the sums of few long rows write: values, flags, or both."""
    rows, length = 8, 1 << 16
    whole = Access(DType.F32, (length, 1))
    outputs = [Access(DType.B1, (1, 0)) if kind == "flag" else Access(DType.F32, (1, 0)) for kind in written]
    builder = RegionBuilder((rows,), (length,), [whole], [*outputs, *([whole] if element else [])])
    builder.element()
    total = builder.reduce("sum", builder.input(0))
    builder.row()
    for number, kind in enumerate(written):
        if kind == "flag":
            builder.set_flag(number, builder.let(total > 0.0, DType.B1))
        else:
            builder.store(number, builder.let(total * 2.0, DType.F32))
    if element:
        builder.element()
        builder.store(len(outputs), builder.let(builder.input(0) - total, DType.F32))
    region = builder.region()
    names = [f"out{n}" for n in range(len(region.outputs))]
    values = [
        Input(n, Kind.DATA, TensorType(a.dtype, (rows, length) if a is whole else (rows,))).value
        for n, a in zip(["x", *names], [whole, *region.outputs])
    ]
    parts = split_rows([Launch(region, (values[0],), tuple(values[1:]))], CHOICES[target], ())
    assert len(parts) > 1
    stored = {p.writes[s.output] for p in parts for stage in p.spec.stages for s in stage.stores}
    raised = {p.writes[s.output] for p in parts for stage in p.spec.stages for s in stage.flags}
    for number, value in enumerate(values[1:]):
        flag = number < len(written) and written[number] == "flag"
        assert value in (raised if flag else stored), names[number]


@pytest.mark.parametrize("target", CHOICES)
def test_a_row_that_is_overwritten_is_written_last(target: str) -> None:
    """An element stage reads the row's old value, in whose memory the new one may be stored."""
    rows, length = 8, 1 << 16
    whole, row = Access(DType.F32, (length, 1)), Access(DType.F32, (1, 0))
    builder = RegionBuilder((rows,), (length,), [whole, row], [row, whole])
    builder.element()
    total = builder.reduce("sum", builder.input(0))
    builder.row()
    builder.store(0, builder.let(total + builder.input(1), DType.F32))
    builder.element()
    builder.store(1, builder.let(builder.input(0) - builder.input(1), DType.F32))
    shapes = {"x": (rows, length), "old": (rows,), "new": (rows,), "y": (rows, length)}
    x, old, new, y = (Input(n, Kind.DATA, TensorType(DType.F32, s)).value for n, s in shapes.items())
    launch = Launch(builder.region(), (x, old), (new, y))
    for conflicts, late in (((), False), (((old, new),), True)):
        launches = split_rows([launch], CHOICES[target], conflicts)
        last = max(i for i, each in enumerate(launches) if y in each.writes)
        [stored] = [i for i, each in enumerate(launches) if new in each.writes]
        assert (stored > last) == late


@pytest.mark.parametrize(("inner", "axis"), [((256, 999), 0), ((2, 40_000), 1), ((40_000, 2), 0), ((41, 4096), 0)])
def test_parts_on_a_cpu_read_runs_of_memory(inner: tuple[int, int], axis: int) -> None:
    """The axes keep their order, also if the last one is the longest; no part is larger than the others."""
    outer, last = inner
    whole, row = Access(DType.F32, (outer * last, last, 1)), Access(DType.F32, (1, 0, 0))
    builder = RegionBuilder((2,), inner, [whole, Access(DType.F32, (0, 1, 0))], [row])
    builder.element()
    total = builder.reduce("sum", builder.let(builder.input(0) * builder.input(1), DType.F32))
    builder.row()
    builder.store(0, total)
    chosen = cpu.split_choice(builder.region())
    assert chosen is not None
    region, cut = chosen
    assert region == builder.region() and cut.axis == axis and cut.count > 4
    assert cut.parts * cut.size + cut.rest == inner[axis] and cut.rest <= cut.size


def test_limits_are_inclusive() -> None:
    """Few tasks with many elements are split, as long as each part is long enough."""
    limits = GPU_ROW_SPLITS
    elements = limits.min_elements
    assert wanted_parts(limits, 1, elements, 3 * limits.min_part) == 3
    assert wanted_parts(limits, 1, elements - 1, 3 * limits.min_part) == 1
    assert wanted_parts(limits, limits.busy, elements, 3 * limits.min_part) == 1
    assert wanted_parts(limits, limits.busy - 1, elements, elements) == 3
    assert wanted_parts(limits, 1, elements, limits.min_part - 1) == 1


@pytest.mark.parametrize(("rows", "columns", "split"), [(8192, 12, True), (512, 12, False), (1024, 20, False)])
def test_one_block_does_not_add_many_elements_of_few_columns(rows: int, columns: int, split: bool) -> None:
    builder = RegionBuilder((columns,), (rows,), [Access(DType.F32, (1, columns))], [Access(DType.F32, (1, 0))])
    builder.element()
    total = builder.reduce("sum", builder.input(0))
    builder.row()
    builder.store(0, total)
    assert (cuda.split_choice(builder.region()) is not None) is split
