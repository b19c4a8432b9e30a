"""Checks that a plan is consistent: every index, offset, size, alignment, event and bulk, before anything runs.

Works on a decoded plan with Python ints, which do not overflow. It checks each instruction on its own. The compiler,
which knows the values, proves that reads follow writes and that live values share no byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final, NoReturn

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import ITEMSIZE, MOST_ELEMENTS, elements_of_axes
from dslc.runtime.artifact.instructions import (
    BulkBegin,
    BulkEnd,
    Collective,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    Loop,
    LoopEnd,
    Reference,
    accesses,
)
from dslc.runtime.artifact.library_check import collective_fault, gemm_fault, graph_fault
from dslc.runtime.artifact.open_loops import OpenLoops
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.artifact.plan_schema import THREADS
from dslc.runtime.artifact.prepared_check import check_prepared
from dslc.runtime.artifact.reserved import STEP_BLOCK
from dslc.runtime.extents import Extents, extent_fault

CODE_KINDS: Final = ("ptx", "cubin", "object")


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """The facts about another blob of the artifact that a plan depends on."""

    kind: str
    bytes: int


def check(
    plan: Plan,
    state_bytes: int,
    context_bytes: int,
    io_bytes: int,
    work_bytes: int,
    *,
    prepared_bytes: int = 0,
    blobs: Mapping[str, BlobInfo] | None = None,
    extents: Extents | None = None,
    writes_state: bool = True,
    prepares: bool = False,
    place: str = "plan",
) -> None:
    """Raise ArtifactError R301 with the field and the rule if a plan does not fit regions of these sizes.

    ``blobs``: the artifact's blobs, for kernels and constants. ``extents``: what kernels touch, where the artifact says
    it. ``writes_state``: whether the entry may write the state. ``prepares``: whether it is the entry that writes what
    others read prepared; it then writes all of that region.
    """
    regions = {
        "state": state_bytes, "context": context_bytes, "prepared": prepared_bytes, "io": io_bytes, "work": work_bytes,
    }  # fmt: skip
    _Checker(plan, regions, blobs or {}, extents, writes_state, place).run()
    check_prepared(plan, prepared_bytes, prepares=prepares, place=place)


class _Checker:
    def __init__(
        self,
        plan: Plan,
        regions: Mapping[str, int],
        blobs: Mapping[str, BlobInfo],
        extents: Extents | None,
        writes_state: bool,
        place: str,
    ) -> None:
        self.plan, self.regions, self.blobs = plan, regions, blobs
        self.extents, self.writes_state, self.place = extents, writes_state, place
        self.sizes = [b.bytes for b in plan.buffers]
        self.recorded: set[int] = set()
        self.bulks = 0
        self.bulk_open = False
        self.loops = OpenLoops(self._at, regions, self.sizes, self._refuse)

    def run(self) -> None:
        for index, buffer in enumerate(self.plan.buffers):
            self._buffer(f"buffers[{index}]", buffer, self.sizes[index])
        self._scalars()
        self._ports()
        held = self._constants()
        for index, instruction in enumerate(self.plan.instructions):
            self._instruction(f"instructions[{index}]", instruction, held)
        if self.loops.open:
            self._refuse("instructions", "a loop has no end")
        if self.bulk_open:
            self._refuse("instructions", f"bulk {self.bulks} has no end")
        self._work()

    def _work(self) -> None:
        last = -1
        for index, work in enumerate(self.plan.work):
            if not last < work.first < len(self.plan.instructions):
                self._refuse(f"work[{index}]", f"instruction {work.first} is not after {last}, or not in the plan")
            last = work.first

    def _refuse(self, field: str, rule: str) -> NoReturn:
        raise ArtifactError("R301", rule, place=f"{self.place}: {field}", help="build the artifact again")

    def _at(self, field: str, index: int) -> Buffer:
        if not 0 <= index < len(self.plan.buffers):
            self._refuse(field, f"there is no buffer {index}, only {len(self.plan.buffers)}")
        return self.plan.buffers[index]

    def _buffer(self, field: str, buffer: Buffer, taken: int) -> None:
        if buffer.offset + taken > self.regions[buffer.region]:
            size = self.regions[buffer.region]
            self._refuse(field, f"{buffer} ends at {buffer.end}, the region has {size} bytes")
        if not taken and elements_of_axes(buffer.shape) > MOST_ELEMENTS:
            self._refuse(field, f"the axes of {buffer} multiply to more than {MOST_ELEMENTS} elements")
        if buffer.offset % ITEMSIZE[buffer.dtype]:
            self._refuse(field, f"{buffer} is not aligned to its elements")

    def _scalars(self) -> None:
        taken: dict[int, str] = {}
        names: set[str] = set()
        if self.plan.scalars and self.regions["io"] < STEP_BLOCK:
            self._refuse("scalars", f"the io region is smaller than the step block of {STEP_BLOCK} bytes")
        for index, scalar in enumerate(self.plan.scalars):
            field, size = f"scalars[{index}]", ITEMSIZE[scalar.dtype]
            if scalar.name in names:
                self._refuse(field, f"{scalar.name!r} occurs twice")
            if scalar.offset % size or scalar.offset + size > STEP_BLOCK:
                self._refuse(field, f"{scalar.name!r} is not aligned, or not within the {STEP_BLOCK} bytes")
            if scalar.name in ("step", "seed", "row") and scalar.dtype != "i64":
                self._refuse(field, f"{scalar.name!r} is i64")
            for byte in range(scalar.offset, scalar.offset + size):
                if byte in taken:
                    self._refuse(field, f"{scalar.name!r} shares bytes with {taken[byte]!r}")
                taken[byte] = scalar.name
            names.add(scalar.name)

    def _ports(self) -> None:
        names: set[str] = set()
        spans: list[tuple[int, int, str]] = []
        for index, port in enumerate(self.plan.inputs):
            field = f"inputs[{index}]"
            buffer = self._at(field, port.buffer)
            if port.name in names:
                self._refuse(field, f"{port.name!r} occurs twice")
            if buffer.region != "io" or buffer.offset < STEP_BLOCK:
                self._refuse(field, f"{port.name!r} lies at {buffer}, not in io after the step block")
            names.add(port.name)
            if buffer.bytes:
                spans.append((buffer.offset, buffer.end, port.name))
        self._disjoint("inputs", spans)
        seen: set[tuple[str, str]] = set()
        for index, port in enumerate(self.plan.outputs):
            self._at(f"outputs[{index}]", port.buffer)
            if (port.name, port.kind) in seen:
                self._refuse(f"outputs[{index}]", f"{port.kind} {port.name!r} occurs twice")
            seen.add((port.name, port.kind))

    def _disjoint(self, field: str, spans: list[tuple[int, int, str]]) -> None:
        spans.sort()
        for (_, end, name), (start, _, other) in pairwise(spans):
            if start < end:
                self._refuse(field, f"{name!r} and {other!r} share bytes")

    def _constants(self) -> list[tuple[int, int, str]]:
        """The ranges of the work region that hold constants, sorted and disjoint."""
        spans: list[tuple[int, int, str]] = []
        for index, constant in enumerate(self.plan.constants):
            field = f"constants[{index}]"
            buffer = self._at(field, constant.buffer)
            blob = self.blobs.get(constant.blob)
            if blob is None or blob.kind != "constant":
                self._refuse(field, f"the artifact has no blob of kind constant named {constant.blob!r}")
            if constant.offset + buffer.bytes > blob.bytes:
                self._refuse(field, f"{buffer} from offset {constant.offset} of a blob of {blob.bytes} bytes")
            if buffer.region != "work":
                self._refuse(field, f"{buffer} is not in the work region")
            if buffer.bytes:
                spans.append((buffer.offset, buffer.end, constant.blob))
        self._disjoint("constants", spans)
        return spans

    def _instruction(self, field: str, instruction: Instruction, held: list[tuple[int, int, str]]) -> None:
        reads, writes = accesses(instruction)
        for index in reads:
            self._at(field, index)
            if self.loops.open:
                self.loops.reach(field, index)
        for index in writes:
            buffer, taken = self._at(field, index), self.sizes[index]
            if self.loops.open:
                buffer, taken = self.loops.reach(field, index)
            self._written(field, buffer, taken, held)
        if self.loops.open:
            self.loops.count(field, instruction)
        where = getattr(instruction, "where", None)
        if where is not None and where >= len(self.plan.names):
            self._refuse(f"{field}.where", f"there is no name {where}, only {len(self.plan.names)}")
        match instruction:
            case Reference():
                self._apart(field, instruction.outputs)
            case Kernel():
                self._kernel(field, instruction)
            case Gemm():
                self._fits(field, gemm_fault(instruction, self.plan.buffers))
            case GraphOp():
                self._apart(field, instruction.outputs)
                self._fits(field, graph_fault(instruction, self.plan.buffers))
            case Copy(src=src, dst=dst):
                self._copy(field, self._at(field, src), self._at(field, dst))
            case Fill(dst=dst, pattern=pattern):
                if len(pattern) != ITEMSIZE[self._at(field, dst).dtype]:
                    self._refuse(f"{field}.pattern", f"{len(pattern)} bytes for {self._at(field, dst)}")
            case Collective(kind=kind, src=src, dst=dst):
                self._fits(field, collective_fault(kind, self._at(field, src), self._at(field, dst)))
            case Loop():
                self.loops.begin(field, instruction)
            case LoopEnd():
                self.loops.end(field)
            case EventRecord(event=event):
                self.recorded.add(event)
            case EventWait(event=event):
                if event not in self.recorded:
                    self._refuse(field, f"event {event} is waited for before it is recorded")
            case BulkBegin(index=index):
                if self.bulk_open or index != self.bulks:
                    self._refuse(field, f"bulk {index} begins, but bulk {self.bulks} is next or still open")
                self.bulk_open = True
            case BulkEnd(index=index):
                if not self.bulk_open or index != self.bulks:
                    self._refuse(field, f"bulk {index} ends, but is not open")
                self.bulk_open, self.bulks = False, self.bulks + 1

    def _written(self, field: str, buffer: Buffer, taken: int, held: list[tuple[int, int, str]]) -> None:
        if not taken:
            return
        if buffer.region == "state" and not self.writes_state:
            self._refuse(field, f"{buffer} is written; this entry may not change the state")
        if buffer.region == "io" and buffer.offset < STEP_BLOCK:
            self._refuse(field, f"{buffer} is written; it lies in the step block")
        if buffer.region == "work" and held:
            # They are sorted and disjoint: only the last one that begins before the buffer's end can reach into it.
            before = bisect_left(held, (buffer.offset + taken,))
            if before and held[before - 1][1] > buffer.offset:
                self._refuse(field, f"{buffer} is written; it holds the constant {held[before - 1][2]!r}")

    def _apart(self, field: str, outputs: tuple[int, ...]) -> None:
        if len(outputs) < 2:
            return
        spans = sorted((b.region, b.offset, b.end) for b in (self.plan.buffers[o] for o in outputs) if b.bytes)
        for (region, _, end), (other, start, _) in pairwise(spans):
            if region == other and start < end:
                self._refuse(field, "two outputs share bytes")

    def _kernel(self, field: str, kernel: Kernel) -> None:
        blob = self.blobs.get(kernel.blob)
        if blob is None or blob.kind not in CODE_KINDS:
            self._refuse(f"{field}.blob", f"the artifact has no blob of code named {kernel.blob!r}")
        if prod(kernel.block) > THREADS:
            self._refuse(f"{field}.block", f"more than {THREADS} threads")
        for kind, value in kernel.args:
            if kind == "scalar" and value >= len(self.plan.scalars):
                self._refuse(f"{field}.args", f"there is no scalar {value}, only {len(self.plan.scalars)}")
        if self.extents is not None:
            fault = extent_fault(kernel, self.plan, self.sizes, self.extents)
            if fault is not None:
                self._refuse(field + fault[0], fault[1])

    def _fits(self, field: str, fault: str | None) -> None:
        if fault is not None:
            self._refuse(field, fault)

    def _copy(self, field: str, src: Buffer, dst: Buffer) -> None:
        if src.dtype != dst.dtype or src.bytes != dst.bytes:
            self._refuse(field, f"{src} does not fit {dst}")
        if src.overlaps(dst) and src.offset != dst.offset:
            self._refuse(field, f"{src} and {dst} overlap in part")
