"""Numbers of a finished Program for the report: buffers over time, nodes by the roofline model, source lines.

Steps count the nodes that do work, in execution order; the moves at the end are one more step. Nothing here makes a
decision: the numbers are those of the schedule and of the memory plan.
"""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.cost import Machine, machine_of, roof
from dslc.compiler.cost import seconds as modelled
from dslc.compiler.ir.bodies.scans import scans
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import ALIGNMENT, MemoryPlan, Program
from dslc.compiler.ir.scan import scan
from dslc.compiler.ops.compound.fused import FusedOp, steps
from dslc.compiler.ops.compound.fused_sums import FusedSums
from dslc.compiler.passes.plan.schedule import contents
from dslc.compiler.passes.plan.stream_timeline import HappensBefore, timeline
from dslc.dsl.span import Span

_SHOWN_STEPS: Final = 6  # ops listed for a fused node
#: The names of libraries in reports.
TITLES: Final = {"cublaslt": "cuBLASLt", "cudnn": "cuDNN"}


class Line(NamedTuple):
    """A line of the source: the file's base name, the number from 1, and the text."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.number else "-"


#: The line of a node without a place in the source.
NO_LINE: Final = Line("", 0, "")


def line_of(node: Node) -> Line:
    """The source line of a node."""
    span = node.span
    if span is None:
        return NO_LINE
    return Line(os.path.basename(span.source.path), span.line, span.source.line(span.line).strip())


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of the work region that one tensor (or the scratch memory of a kernel) occupies from step ``start`` to step
    ``end``, both included."""

    what: str
    type: str
    line: Line
    start: int
    end: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Work:
    """A node that does work. ``where``: its kernel, library or numpy. ``flops`` and ``bytes`` are those of the
    artifact's plan. ``seconds`` follow the roofline model; ``roof`` is the time at the roof itself, named by
    ``bound``."""

    step: int
    stream: int
    what: str
    name: str
    line: Line
    phase: str
    where: str
    flops: int
    bytes: int
    seconds: float
    roof: float
    bound: str
    begin: float


@dataclass(frozen=True, slots=True)
class LineRow:
    """A source line: the number of its nodes, their cost, and its bytes at the peak."""

    line: Line
    nodes: int
    flops: int
    bytes: int
    seconds: float
    at_peak: int


class Facts:
    """All facts of a Program that has a schedule and a memory plan."""

    def __init__(self, program: Program) -> None:
        assert program.schedule is not None and program.memory is not None, f"{program.entry} is not planned"
        self.program = program
        self.memory: MemoryPlan = program.memory
        self.schedule = program.schedule
        self._lines: dict[Span, Line] = {}
        self.step_of: list[int] = []  # the step of each node of the schedule; a view belongs to the step before it
        for node in self.schedule:
            self.step_of.append((self.step_of[-1] if self.step_of else -1) + (not node.op.view))
        self.steps = (self.step_of[-1] if self.step_of else -1) + 2  # the moves at the end are the last one

    @property
    def context_bytes(self) -> int:
        """Bytes that each caller of the program needs: inputs, results and intermediate values."""
        return self.memory.io_bytes + self.memory.work_bytes

    def line(self, node: Node) -> Line:
        """The source line of a node."""
        if node.span is None:
            return NO_LINE
        if node.span not in self._lines:
            self._lines[node.span] = line_of(node)
        return self._lines[node.span]

    @cached_property
    def work(self) -> list[Work]:
        """The nodes that do work, in execution order."""
        program = self.program
        machine = self._machine
        native = set(program.kernels)
        found: list[Work] = []
        for time, node in enumerate(self.schedule):
            if node.op.view:
                continue
            moving, arithmetic = roof(node, machine)
            seconds = modelled(node, machine)
            cost = node.op.cost(node)
            bound = max((machine.device.launch, "launch"), (moving, "memory"), (arithmetic, "arithmetic"))[1]
            found.append(
                Work(self.step_of[time], program.streams.get(node, 0), what(node), node.name or node.op.name,
                     self.line(node), node.phase.value, self._runs(node, native), cost.flops, cost.bytes, seconds,
                     max(moving, arithmetic), bound, self._times[node][0])
            )  # fmt: skip
        return found

    def _runs(self, node: Node, native: set[Node]) -> str:
        if node in self.program.loops:
            return "loop"
        if node not in native:
            return "numpy"
        specs = (launch.spec for launch in self.program.kernels[node])
        if node.op in (scan, scans):
            return "resident kernel"
        library = next((spec.library for spec in specs if isinstance(spec, LibraryCall)), None)
        return "kernel" if library is None else TITLES[library]

    @cached_property
    def seconds(self) -> float:
        """The end of the last node, by the roofline model."""
        return max((end for _, end in self._times.values()), default=0.0)

    @cached_property
    def _machine(self) -> Machine:
        return machine_of(self.program.target, "vendor" if self.program.vendor else "own")

    @cached_property
    def _times(self) -> dict[Node, tuple[float, float]]:
        program = self.program
        return timeline(self.schedule, program.streams, program.waits, self._machine)

    @cached_property
    def _happens(self) -> HappensBefore:
        return HappensBefore(self.schedule, self.program.streams, self.program.waits)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of the work region, ordered by their first step."""
        content, last = self._content, self._last
        found: list[Block] = []
        for time, node in enumerate(self.schedule):
            if node.op.view:
                continue
            step, line, name = self.step_of[time], self.line(node), f"{what(node)} {node.name}".strip()
            for value in node.outputs:
                place = self.memory.places[value]
                if place.region == "work" and content[value] is value and value.type.bytes:
                    end = self._step(last[value])
                    found.append(Block(name, str(value.type), line, step, end, place.offset, value.type.bytes))
            until = self._happens.until[node] - 1
            for place, size in zip(self.memory.scratch.get(node, ()), self.program.scratch.get(node, ())):
                found.append(Block(f"scratch of {name}", "", line, step, self._step(until), place.offset, size))
        for move in self.memory.moves:
            if move.target.region == "work":
                end = self.steps - 1
                found.append(Block(f"saved {move.name}", str(move.type), NO_LINE, end, end, move.target.offset,
                                   move.type.bytes))  # fmt: skip
        return found

    def life(self, value: Value) -> tuple[int, int]:
        """The first and the last step in which a value's bytes are in use."""
        made = self._content[value].producer
        first = self.step_of[self._time[made]] if isinstance(made, Node) else 0
        return first, self._step(self._last[self._content[value]])

    def _step(self, time: int) -> int:
        return self.step_of[time] if time < len(self.schedule) else self.steps - 1

    @cached_property
    def _time(self) -> dict[Node, int]:
        return {node: time for time, node in enumerate(self.schedule)}

    @cached_property
    def _content(self) -> dict[Value, Value]:
        return contents(self.program.graph)

    @cached_property
    def _last(self) -> dict[Value, int]:
        """For each value that is not a view: the time of its last use, or of the last node that may run
        concurrently."""
        content = self._content
        last: dict[Value, int] = {}
        for node in self.schedule:
            until = self._happens.until[node] - 1
            for value in (*node.inputs, *node.outputs):
                last[content[value]] = max(last.get(content[value], 0), until)
        for value in self.program.graph.roots:
            last[content[value]] = len(self.schedule)
        return last

    @cached_property
    def alive(self) -> list[int]:
        """Bytes of the work region in use at each step. A result computed in place of its operand counts once."""
        change = [0] * (self.steps + 1)
        for block, end in self._in_turn():
            size = -(-block.bytes // ALIGNMENT) * ALIGNMENT
            change[block.start] += size
            change[end + 1] -= size
        total, found = 0, []
        for each in change[:-1]:
            total += each
            found.append(total)
        return found

    def _in_turn(self) -> Iterator[tuple[Block, int]]:
        """Each block and its last step; the step before its successor's first one if that is computed in its place."""
        ordered = sorted(self.blocks, key=lambda b: (b.offset, b.start))
        for block, after in zip(ordered, [*ordered[1:], None]):
            succeeded = after is not None and after.offset == block.offset and after.start == block.end
            yield block, block.end - 1 if succeeded else block.end

    @cached_property
    def peak(self) -> int:
        """The first step with the most live bytes."""
        return max(range(self.steps), key=lambda s: (self.alive[s], -s))

    @cached_property
    def lines(self) -> list[LineRow]:
        """The source lines, the longest time first."""
        at_peak: dict[Line, int] = defaultdict(int)
        for block, end in self._in_turn():
            if block.start <= self.peak <= end:
                at_peak[block.line] += block.bytes
        together: dict[Line, list[Work]] = defaultdict(list)
        for each in self.work:
            together[each.line].append(each)
        rows = [
            LineRow(line, len(own), sum(w.flops for w in own), sum(w.bytes for w in own), sum(w.seconds for w in own),
                    at_peak.get(line, 0))
            for line, own in together.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda r: (-r.seconds, r.line))


def what(node: Node) -> str:
    """A node's op; for a fused node, its ops in order. Sums that are computed together may have none."""
    if not isinstance(node.op, FusedOp):
        return node.op.name
    names = [name for name, _, _ in steps(node.attrs) if name != "full"]
    shown = " + ".join(names[:_SHOWN_STEPS]) + (f" + {len(names) - _SHOWN_STEPS} more" * (len(names) > _SHOWN_STEPS))
    return f"sums of {shown or 'inputs'}" if isinstance(node.op, FusedSums) else shown


def ranked(facts: Facts, count: int) -> Sequence[Line]:
    """The at most ``count`` lines with the largest area in the picture: bytes times steps."""
    area: dict[Line, int] = defaultdict(int)
    for block in facts.blocks:
        area[block.line] += block.bytes * (block.end - block.start + 1)
    return sorted((line for line in area if line.number), key=lambda line: (-area[line], line))[:count]
