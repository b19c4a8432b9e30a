"""Binds a plan's instructions for a GPU: computes addresses, finds kernels, and turns bulks into graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DslcError, EnvironmentFault
from dslc.runtime.artifact.instructions import (
    BulkBegin,
    BulkEnd,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    accesses,
)
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.graphs.graph import Bulk, Join, Launch, LibraryCall, Mark, Move, Placed, Step, Tell, fill_steps

if TYPE_CHECKING:
    from dslc.runtime.cuda.lane import Lane
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.runtime.cuda.modules import Modules
    from dslc.runtime.cuda.owned import Owned

_LASTING: Final = ("state", "prepared")  # the regions that lanes share
_SIZES: Final = {"i32": 4, "f32": 4}  # bytes of arguments passed by value; all others have 8


@dataclass(frozen=True, slots=True)
class Group:
    """What is submitted together: a bulk, or single steps, one after another, which the host ``waits`` for one by one
    or not at all. ``writes_state``: it writes the state, or what is prepared from it. ``stages``: the numbers of the
    first and of the last bulk of the plan whose work it has."""

    bulk: Bulk | None
    steps: tuple[Step, ...]
    writes_state: bool
    waits: bool = True
    stages: tuple[int, int] = (0, 0)


class Binder:
    """Binds a plan's instructions to the memory of a lane. ``bases``: the regions' addresses; ``name`` is the
    program's.

    Raises EnvironmentFault R202 for an instruction or a region that this runtime does not support, R205 for a library
    that is not installed, ArtifactError R301 for code that does not fit the plan.
    """

    def __init__(self, plan: Plan, bases: Mapping[str, int], modules: Modules, libraries: Libraries, name: str) -> None:
        self._plan, self._bases, self._name = plan, bases, name
        self._modules, self._libraries = modules, libraries

    def address(self, index: int) -> int:
        buffer = self._plan.buffers[index]
        if buffer.region not in self._bases:
            raise EnvironmentFault(
                "R202",
                f"{self._name} keeps state between calls, which this runtime does not support",
                place=self._name,
                help="load it with a newer dslc",
            )
        return self._bases[buffer.region] + buffer.offset

    def base(self, region: str) -> int:
        """The address of a region."""
        return self._bases[region]

    def groups(
        self, lane: Lane, bulk: int | None, owned: Owned, *, once: bool, told: Sequence[tuple[int, Any]] = ()
    ) -> list[Group]:
        """All instructions. ``bulk``: None for the plan's bulks, else the most instructions in one, 0 for none.
        ``once``: of a plan that hardly ever runs, for which no graph is made: its bulks are submitted step by step.
        ``told``: events, each with the number of instructions after which it is recorded, in their order."""
        found, begun, bound, waiting = [], 0, 0, deque(told)
        for instructions, together in _cut(self._plan, bulk):
            begins = [isinstance(i, BulkBegin) for i in instructions]
            first = begun - 1 + (begins[:1] == [True])
            begun += sum(begins)
            placed: list[Placed] = []
            for instruction in instructions:
                placed += self.placed(instruction)
                bound += 1
                while waiting and waiting[0][0] <= bound:
                    placed.append((0, Tell(waiting.popleft()[1], self._name)))
            writes = any(self._plan.buffers[b].region in _LASTING for i in instructions for b in accesses(i)[1])
            steps = steps_of(placed)
            if steps:
                made = Bulk(lane.device, placed, lane.stream, owned) if together and not once else None
                stages = max(0, first), max(0, begun - 1)
                found.append(Group(made, steps, writes, waits=not together, stages=stages))
        return found

    def placed(self, instruction: Instruction) -> list[Placed]:
        """The items that an instruction adds to its stream."""
        names = self._plan.names
        match instruction:
            case Gemm(stream=stream, where=where) | GraphOp(stream=stream, where=where):
                return [(stream, self._library_call(instruction, names[where]))]
            case Kernel(stream=stream):
                return [(stream, self._launch(instruction))]
            case Copy(src=src, dst=dst, stream=stream, where=where):
                size, target, source = self._plan.buffers[dst].bytes, self.address(dst), self.address(src)
                return [(stream, Move(target, source, size, names[where]))] if size and target != source else []
            case Fill(dst=dst, pattern=pattern, stream=stream, where=where):
                count = self._plan.buffers[dst].bytes // len(pattern)
                return [(stream, step) for step in fill_steps(self.address(dst), pattern, count, names[where])]
            case EventRecord(event=event, stream=stream):
                return [(stream, Mark(event, False))]
            case EventWait(event=event, stream=stream):
                return [(stream, Mark(event, True))]
            case BulkBegin() | BulkEnd():
                return []
        raise EnvironmentFault(
            "R202",
            f"the plan holds a {type(instruction).__name__}, which the GPU's runtime cannot run",
            place=self._name,
            help="build it with --providers own",
        )

    def _library_call(self, instruction: Gemm | GraphOp, where: str) -> LibraryCall:
        try:
            call = self._libraries.call(instruction, self._plan.buffers, self.address)
        except DslcError as error:
            error.place = f"{where}: {error.place}" if error.place else where
            raise
        return LibraryCall(call, self._libraries.recorder, where)

    def _launch(self, kernel: Kernel) -> Launch:
        where = self._plan.names[kernel.where]
        values: list[tuple[str, int | float]] = []
        for kind, value in kernel.args:
            if kind in ("in", "out", "inout"):
                values.append(("pointer", self.address(int(value))))
            elif kind == "scalar":
                values.append(("pointer", self._bases["io"] + self._plan.scalars[int(value)].offset))
            else:
                values.append((kind, value))
        sizes = [_SIZES.get(kind, 8) for kind, _ in values]
        function = self._modules.function(kernel.blob, kernel.symbol, kernel.block, kernel.shared_bytes, sizes, where)
        blocks = prod(kernel.grid)
        how = self._modules.waits(kernel.blob), self._modules.together(kernel.blob, blocks, where)
        return Launch(function, kernel.grid, kernel.block, kernel.shared_bytes, Arguments(values), where, *how)


def steps_of(placed: Sequence[Placed]) -> tuple[Step, ...]:
    """The steps without marks and joins, in order."""
    return tuple(item for _, item in placed if not isinstance(item, Mark | Join))


def _cut(plan: Plan, bulk: int | None) -> Iterator[tuple[list[Instruction], bool]]:
    """The instructions in groups, and whether each is one bulk."""
    if bulk == 0:
        yield list(plan.instructions), False
        return
    group: list[Instruction] = []
    working = 0  # instructions of the group that do work
    inside = bulk is not None
    for instruction in plan.instructions:
        if bulk is None and isinstance(instruction, BulkBegin | BulkEnd):
            yield group, inside
            inside = isinstance(instruction, BulkBegin)
            group = [instruction] if inside else []
            continue
        group.append(instruction)
        working += bool(accesses(instruction)[1])
        if bulk is not None and working >= bulk:
            yield group, inside
            group, working = [], 0
    yield group, inside
