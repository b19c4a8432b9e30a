"""Emits an element stage of a region for neighbours in one row, or for an element of each of several rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Reg
from dslc.compiler.codegen.cpu.region.accumulate import Accumulator, Running
from dslc.compiler.codegen.cpu.region.lanes import Lanes
from dslc.compiler.codegen.region.ir import Access, Fetch, Let, Scan, Stage
from dslc.compiler.codegen.region.queries import used_values
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.region.row import Row


@dataclass(frozen=True, slots=True)
class Elements:
    """``count`` elements, one in each lane. ``index``: of the first one along each inner axis; ``number``: its
    row-major index. ``in_one_row``: they are neighbours along the last inner axis; else they have this index in
    ``count`` adjacent rows."""

    index: list[Any]
    number: Any
    count: int
    in_one_row: bool


class ElementStage:
    """``place``: the stage's number in the region. ``scans``: by the numbers of its values. ``totals``: of its
    reductions; without them, the caller combines what an element contributes."""

    def __init__(
        self, row: Row, place: int, stage: Stage, scans: Mapping[int, Running], totals: Sequence[Accumulator]
    ) -> None:
        self.row, self.emitter, self.code = row, row.emitter, row.code
        self.place, self.stage, self.scans, self.totals = place, stage, scans, totals
        self.used = used_values(stage)

    def run(self, elements: Elements, way: int = 0) -> list[Reg | None]:
        """Emits the stage for these elements. Returns all values known then. ``way``: of the accumulators."""
        lanes = self._lanes(elements)
        self._load_inputs(lanes)
        self._take_indices(lanes, elements)
        for number, let in enumerate(self.stage.computed):
            lanes.known.append(self._computed(number, let, lanes, elements))
        if self.stage.stores or self.stage.flags:
            bases = zip(self.row.out_bases, self.emitter.region.outputs)
            lanes.store(self.stage, [self._moved(base, access, elements) for base, access in bases])
        for reduce, total in zip(self.stage.reduces, self.totals):
            total.add(lanes.values.in_lanes(lanes.value(reduce.value)), elements.count, way)
        return lanes.known

    def _lanes(self, elements: Elements) -> Lanes:
        """The elements with the values of their rows."""

        def stride(access: Access) -> int:
            return access.strides[-1] if elements.in_one_row else self.row.row_stride(access)

        bases = [self._moved(b, a, elements) for b, a in zip(self.row.bases, self.emitter.region.inputs)]
        return Lanes(self.emitter, Values(self.code, elements.count), [*self.row.known], bases, stride)

    def _moved(self, base: Any, access: Access, elements: Elements) -> Any:
        """From an argument's index at the start of a row to that of the first element."""
        for index, stride in zip(elements.index, access.strides[self.row.split :]):
            base = self.code.add(base, self.code.mul(index, self.emitter.number(stride)))
        return base

    def _load_inputs(self, lanes: Lanes) -> None:
        """Inputs that differ from element to element; one load if all lanes share the value."""
        for number, access in enumerate(self.emitter.region.inputs):
            if lanes.known[number] is None and number in self.used:
                stride = lanes.stride(access)
                values = lanes.values if stride else Values(self.code, 1)
                pointer, base = self.emitter.inputs[number], lanes.bases[number]
                lanes.known[number] = values.load(pointer, base, stride, access.dtype)

    def _take_indices(self, lanes: Lanes, elements: Elements) -> None:
        """The elements' index in their rows, and those along inner axes."""
        region, last_axis = self.emitter.region, self.row.split + len(elements.index) - 1
        if region.index in self.used:
            lanes.known[region.index] = self._index(elements.number, lanes, counts=elements.in_one_row)
        for number, axis in enumerate(region.indices, region.index + 1):
            if axis >= self.row.split and number in self.used:
                counts = elements.in_one_row and axis == last_axis
                lanes.known[number] = self._index(elements.index[axis - self.row.split], lanes, counts=counts)

    def _index(self, first: Any, lanes: Lanes, *, counts: bool) -> Reg:
        """An index as a value: ``first`` in all lanes, or counted from it."""
        return lanes.values.counting(first) if counts else Reg(self.code.int(first), DType.I64)

    def _computed(self, number: int, let: Let | Fetch | Scan, lanes: Lanes, elements: Elements) -> Reg:
        if isinstance(let, Scan):
            return self._scanned(number, let, lanes, elements)
        first = self.emitter.kept.get((self.place, number))
        if first is None:
            return lanes.compute(let)
        assert isinstance(let, Let)
        return self._kept(let, first, lanes, elements, is_first=first == (self.place, number))

    def _scanned(self, number: int, scan: Scan, lanes: Lanes, elements: Elements) -> Reg:
        reg, running = lanes.values.in_lanes(lanes.value(scan.value)), self.scans[number]
        return running.along(reg, elements.count) if elements.in_one_row else running.of_rows(reg)

    def _kept(self, let: Let, first: tuple[int, int], lanes: Lanes, elements: Elements, *, is_first: bool) -> Reg:
        """A value that several stages compute: the first of them keeps it in memory for the others."""
        memory = self.row.kept_memory(first, let.dtype)
        start = elements.number if elements.in_one_row else self.code.mul(elements.number, elements.count)
        if not is_first:
            return lanes.values.load(memory, start, 1, let.dtype)
        reg = lanes.values.in_lanes(lanes.compute(let))
        lanes.values.store(reg, memory, start, 1)
        return reg
