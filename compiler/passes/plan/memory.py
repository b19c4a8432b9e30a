"""Assigns offsets: every value gets bytes in the state, context, prepared, io or work region.

Before: a schedule. After: ``program.memory``. For example, in a chain ``a = conv x; b = relu a; y = mul b, b`` with the
result ``y``::

    x  io+256      a data input: bytes of its own, after the step block
    y  io+25856    a result: the same
    a  work+0
    b  work+0      relu may write in place, and a dies there

- A view shares the bytes of its source, or a part of them. The build gives the places of parameters, buffers and
  optimizer slots, and of the states of a training step. Those of other entries lie in the context region, by name.
- The new value of a state is computed in place if the last reader of the old value is earlier, or is the computing op
  itself and allows it. Otherwise a move at the end copies it.
- Constants lie at the start of the work region. Nothing overwrites them.
- What ``prepare`` computes from the weights lies in the region prepared, in the order of names.
- All other values share the rest of the work region by lifetime (``allocate.py``), and so does the scratch memory of
  kernels. With several streams, a lifetime ends when all later nodes follow those that access the value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from dslc.compiler.ir.build import SHARD, Build
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.program import TRAINING, MemoryPlan, Move, Place, Program, aligned
from dslc.compiler.ir.types import TensorType, alike
from dslc.compiler.passes.plan.allocate import Buffer, assign, lower_bound
from dslc.compiler.passes.plan.schedule import contents, first_bytes
from dslc.compiler.passes.plan.step_block import scalar_offsets
from dslc.compiler.passes.plan.stream_timeline import HappensBefore
from dslc.runtime.artifact.reserved import LOSS_SUM, OF_STATE, STEP_BLOCK


def memory(program: Program, build: Build) -> Program:
    """The pass; keeps an existing plan. n log n in nodes."""
    if program.memory is not None:
        return program
    assert program.schedule is not None, "memory is planned on a schedule"
    planner = _Planner(program, program.schedule, build)
    return dataclasses.replace(program, memory=planner.plan())


def work_bound(program: Program, build: Build) -> int:
    """The most bytes of work alive at one time if all nodes run one after another: a lower bound of every plan."""
    assert program.schedule is not None, "memory is planned on a schedule"
    alone = dataclasses.replace(program, streams={}, waits={})
    return _Planner(alone, program.schedule, build).bound()


#: The most bytes of flags and numbers, which would tie an update's slices to one order if they took turns in a place.
_SMALL: Final = 4096  # a byte for each of as many parameters


@dataclass(slots=True)
class _Range:
    """One range of the work region: values that replace each other in place."""

    size: int
    start: int
    end: int
    values: list[Value]
    scratch: Node | None = None  # the node whose kernels use it as scratch


class _Planner:
    def __init__(self, program: Program, schedule: tuple[Node, ...], build: Build) -> None:
        self.graph = graph = program.graph
        self.scratch = program.scratch
        self.happens = HappensBefore(schedule, program.streams, program.waits)
        self.schedule = schedule
        self.build = build
        self.content, self.first_byte = contents(graph), first_bytes(graph)
        self.end = len(schedule)  # the time of the moves
        self.users: dict[Value, list[Node]] = {}
        self.last: dict[Value, int] = {}  # in use until all later nodes follow the nodes that access it
        for node in schedule:
            until = self.happens.until[node] - 1
            for content in dict.fromkeys(self.content[v] for v in (*node.inputs, *node.outputs)):
                self.last[content] = max(self.last.get(content, 0), until)
                if not node.op.view:
                    self.users.setdefault(content, []).append(node)
        self.kept = {self.content[value] for value in graph.roots}
        self.last.update(dict.fromkeys(self.kept, self.end))
        self.places: dict[Value, Place] = {}  # by content (not by view)
        self.in_context = program.entry not in TRAINING
        self.may_be_cut = program.entry == "update_step"  # whose slices several processes update in an order of stages
        self.carried: list[tuple[str, TensorType, int]] = []
        self.io_bytes = STEP_BLOCK
        self.constant_bytes = 0
        self.prepared_bytes = 0
        self.results: dict[str, Place] = {}
        self.moves: list[Move] = []

    def bound(self) -> int:
        """Lower bound of the plan: the most bytes alive at one time."""
        buffers = self._buffers()[2]
        return self.constant_bytes + lower_bound(buffers)

    def _buffers(self) -> tuple[list[_Range], list[tuple[Input, Value]], list[Buffer]]:
        """Places the values with bytes of their own. Returns the ranges of the work region, the updates that need a
        move, and all buffers that share the work region: the ranges, then copies saved by these moves."""
        self._inputs()
        self._results()
        late = self._updates()
        work = self._work()
        saves = [_Range(aligned(v.type.bytes), self.end, self.end, []) for _, v in late if self._in_state(v)]
        return work, late, [Buffer(w.size, w.start, w.end) for w in (*work, *saves)]

    def plan(self) -> MemoryPlan:
        work, late, buffers = self._buffers()
        offsets, work_bytes, least = assign(buffers)
        offsets = [self.constant_bytes + offset for offset in offsets]
        scratch: dict[Node, tuple[Place, ...]] = {}
        for piece, offset in zip(work, offsets):
            if piece.scratch is not None:
                scratch[piece.scratch] = (*scratch.get(piece.scratch, ()), Place("work", offset))
            for value in piece.values:
                self.places[value] = Place("work", offset)
        self._late_moves(late, [Place("work", o) for o in offsets[len(work) :]])
        places = {v: self._place(v) for v in self.content}
        work_bytes, least = self.constant_bytes + work_bytes, self.constant_bytes + least
        amounts = self.io_bytes, work_bytes, least
        lasting = tuple(self.carried), self.prepared_bytes
        return MemoryPlan(places, self.results, tuple(self.moves), *amounts, scratch, *lasting)

    def _place(self, value: Value) -> Place:
        """The place of a value whose content has one."""
        whole, first = self.places[self.content[value]], self.first_byte[value]
        return Place(whole.region, whole.offset + first) if first else whole

    def _io(self, size: int) -> Place:
        place = Place("io", self.io_bytes)
        self.io_bytes += aligned(size)
        return place

    def _inputs(self) -> None:
        """Places all inputs: the step block's scalars, data in io, constants in work, and what lasts."""
        scalars = scalar_offsets([i.name for i in self.graph.inputs if i.kind is Kind.SCALAR])
        for source in self.graph.inputs:
            match source.kind:
                case Kind.SCALAR:
                    assert source.value.type.rank == 0, f"the scalar {source.name} is {source.value.type}"
                    self.places[source.value] = Place("io", scalars[source.name])
                case Kind.DATA:
                    self.places[source.value] = self._io(source.value.type.bytes)
                case Kind.CONSTANT:
                    self.places[source.value] = Place("work", self.constant_bytes)
                    self.constant_bytes += aligned(source.value.type.bytes)
                case Kind.PREPARED:
                    pass
                case Kind.STATE:
                    if not self.in_context:
                        self._state(OF_STATE + source.name, source.value)
                case _:
                    self._state(source.name, source.value)
        self._prepared()
        if self.in_context:
            self._context()

    def _state(self, name: str, value: Value) -> None:
        """Places an input of the state region, where the build has assigned its bytes."""
        assert name in self.build.state, f"{name} is not part of the state"
        self.places[value] = Place("state", self.build.state[name])

    def _prepared(self) -> None:
        """Places what ``prepare`` computes, in the order of names, so that all programs agree."""
        for source in self._sorted(Kind.PREPARED):
            self.places[source.value] = Place("prepared", self.prepared_bytes)
            self.prepared_bytes += aligned(source.value.type.bytes)

    def _context(self) -> None:
        """Places the states that a caller carries from run to run, in the order of names."""
        end = 0
        for source in self._sorted(Kind.STATE):
            self.places[source.value] = Place("context", end)
            self.carried.append((source.name, source.value.type, end))
            end += aligned(source.value.type.bytes)

    def _sorted(self, kind: Kind) -> list[Input]:
        return sorted((i for i in self.graph.inputs if i.kind is kind), key=lambda i: i.name)

    def _results(self) -> None:
        for name, value in sorted(self.graph.outputs.items(), key=self._order_of_result):
            content = self.content[value]
            shared = name.startswith(SHARD) and content in self.places  # each sum of shards has bytes of its own
            if content not in self.places:
                self.places[content] = self._io(content.type.bytes)
            place = self._place(value)
            if shared or place.region != "io":  # a state or a constant
                target = self._io(value.type.bytes)
                self.moves.append(Move(value.type, place, target, name))
                place = target
            self.results[name] = place

    def _order_of_result(self, output: tuple[str, Value]) -> tuple[int, str]:
        """What shards give follows other results: gradients as their parameters in the state, buffers, and the loss;
        what has 16 bits before all else."""
        of = output[0].removeprefix(SHARD)
        if of == output[0]:
            return 0, ""
        if output[1].type.dtype.itemsize == 2:
            return 1, of
        return (2 if of in self.build.pieces else 4 if of == LOSS_SUM else 3), of

    def _updates(self) -> list[tuple[Input, Value]]:
        """Assigns new values the places of their states if possible; returns the updates that need a move."""
        late: list[tuple[Input, Value]] = []
        for source, value in self.graph.updates:
            content = self.content[value]
            if content is source.value:
                continue
            assert value.type.bytes == content.type.bytes, f"the new {source.name} is a piece of a tensor"
            if content not in self.places and self._in_place(source.value, content):
                self.places[content] = self.places[source.value]
            else:
                late.append((source, value))
        return late

    def _in_place(self, old: Value, new: Value) -> bool:
        """Whether ``new`` may be computed over the bytes of ``old``, because all its other readers run before."""
        node = new.producer
        assert isinstance(node, Node)
        return self._is_last(node, old) and self._allows(node, old, new)

    def _is_last(self, node: Node, old: Value) -> bool:
        """Whether ``old`` is not needed after the node, and all other nodes that access it have ended before the node
        starts."""
        return old not in self.kept and all(
            user is node or self.happens.before(user, node) for user in self.users.get(old, ())
        )

    def _allows(self, node: Node, old: Value, new: Value) -> bool:
        """Whether the op may write output ``new`` over its input ``old``."""
        read = [i for i, v in enumerate(node.inputs) if self.content[v] is old]
        return all(
            (i, new.index) in node.op.in_place(node)
            and alike(node.inputs[i].type, new.type)
            and node.inputs[i].type.bytes == old.type.bytes
            for i in read
        )

    def _in_state(self, value: Value) -> bool:
        place = self.places.get(self.content[value])
        return place is not None and place.region in ("state", "context", "prepared")

    def _late_moves(self, late: list[tuple[Input, Value]], saves: list[Place]) -> None:
        """Moves new values to their states. Values that lie in other states are saved before any state is
        overwritten."""
        after: list[Move] = []
        free = iter(saves)
        for source, value in late:
            place = self.places[self.content[value]]
            target = self.places[source.value]
            if place.region in ("state", "context", "prepared"):
                saved = next(free)
                self.moves.append(Move(value.type, place, saved, source.name))
                place = saved
            after.append(Move(value.type, place, target, source.name))
        self.moves += after

    def _work(self) -> list[_Range]:
        """The ranges of the work region with their lifetimes; in-place successors share a range."""
        ranges: list[_Range] = []
        holds: dict[Value, _Range] = {}
        for time, node in enumerate(self.schedule):
            if node.op.view:
                continue
            taken: set[int] = set()
            for new in node.outputs:
                if new in self.places:
                    continue
                size = aligned(new.type.bytes)
                piece = self._inherited(node, new, holds, taken) if size else None
                if piece is None:
                    piece = _Range(size, time, time, [])
                    ranges.append(piece)
                piece.values.append(new)
                piece.end = max(piece.end, self.last[new])
                holds[new] = piece
            until = self.happens.until[node] - 1
            ranges += [_Range(aligned(size), time, until, [], node) for size in self.scratch.get(node, ())]
        for piece in ranges if self.may_be_cut else ():
            if piece.size <= _SMALL:
                piece.start, piece.end = 0, self.end
        return ranges

    def _inherited(self, node: Node, new: Value, holds: dict[Value, _Range], taken: set[int]) -> _Range | None:
        """The range of an input that dies here and that this output may overwrite; None if there is none."""
        for i, value in enumerate(node.inputs):
            old = self.content[value]
            if old not in holds or self.users[old][-1] is not node or i in taken:
                continue
            if self._allows(node, old, new) and self._is_last(node, old):
                taken.update(j for j, v in enumerate(node.inputs) if self.content[v] is old)
                return holds[old]
        return None
