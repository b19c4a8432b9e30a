"""The share of one of several processes in a step's update: its slices, and what they change in state and plans.

Such a process holds parameters and buffers whole, and of the slots of the optimizer only those of its slices. Its
`update_step` has the instructions that its slices need.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.header_schema import AS_PARAM
from dslc.runtime.artifact.instructions import Fill, Instruction, accesses
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.artifact.slices import Piece, aligned, pieces_of, slice_bytes, slice_count, stage_count

#: Bytes of a region: (offset, size).
Range = tuple[int, int]
_OWN: Final = "own"  # an update of a slice reads the sums of this slice alone


@dataclass(frozen=True)
class Share:
    """``rank`` of ``size`` processes. ``table``: the tensors of the state, as a header has them, each with the pieces
    of its parameter, ``flat``: where these begin among all trained parameters, and the number of its ``slot``, None for
    a tensor that all processes hold. ``each``: bytes of a slice; ``reads_all``: an update reads the sums of all
    slices; ``early``: each process has one run a step, so that stages may begin while it computes; ``order``: for each
    process its parts in the order of stages, empty for that of the parameters."""

    rank: int
    size: int
    count: int
    each: int
    total: int
    tensors: Sequence[_Tensor]
    reads_all: bool
    early: bool = False
    order: Sequence[Sequence[int]] = ()

    @property
    def owned(self) -> int:
        """The bytes of a process's slices among all trained parameters, padding included."""
        return self.count // self.size * self.each

    @cached_property
    def stages(self) -> int:
        """The stages in which processes exchange sums and update: one after another, each with a part of all slices."""
        own = self.count // self.size
        return 1 if self.reads_all else min(own & -own, stage_count(own * self.each, self.early))

    @cached_property
    def _part(self) -> int:
        """The bytes of a part of a process's slices, which it updates in one stage."""
        return self.owned // self.stages

    def _parts(self, start: int, end: int, rank: int) -> list[int]:
        """The numbers of those parts of a process in which some of these bytes of all trained parameters are. Parts
        belong to the processes in turn."""
        parts = range(start // self._part, max(start, end - 1) // self._part + 1)
        return [part // self.size for part in parts if part % self.size == rank]

    def span(self, rank: int, stage: int) -> Range:
        """The bytes of a process's slices of a stage among all trained parameters."""
        part = self.order[rank][stage] if self.order else stage
        return (part * self.size + rank) * self._part, self._part

    def part(self, rank: int, stage: int) -> Range:
        """``span`` without padding at the end."""
        start, size = self.span(rank, stage)
        return min(start, self.total), max(0, min(start + size, self.total) - min(start, self.total))

    @cached_property
    def slots(self) -> int:
        """The slots of each parameter."""
        return 1 + max((t.slot for t in self.tensors if t.slot is not None), default=-1)

    @cached_property
    def whole_bytes(self) -> int:
        """The bytes of what all processes hold."""
        return sum(aligned(t.bytes) for t in self.tensors if t.slot is None)

    @property
    def bytes(self) -> int:
        """The bytes of the state of one process."""
        return self.whole_bytes + self.slots * self.owned

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Where this process has each tensor that all hold."""
        found, end = {}, 0
        for tensor in self.tensors:
            if tensor.slot is None:
                found[tensor.name] = end
                end += aligned(tensor.bytes)
        return found

    def pieces(self, name: str, rank: int | None = None) -> list[tuple[Piece, int]]:
        """The pieces of a slot that a process holds, by default this one, and where its state has them."""
        tensor, rank = self._by_name[name], self.rank if rank is None else rank
        found: list[tuple[Piece, int]] = []
        for piece in tensor.pieces:
            start = tensor.flat + piece.start * tensor.itemsize
            end = tensor.flat + piece.stop * tensor.itemsize
            found += [(piece, self._held(tensor, part, rank, start)) for part in self._parts(start, end, rank)]
        return found

    def _held(self, tensor: _Tensor, part: int, rank: int, at: int) -> int:
        """Where the state of a process has a byte of one of its parts of a slot."""
        assert tensor.slot is not None
        base = self.whole_bytes + tensor.slot * self.owned + part * self._part
        return base + at - (part * self.size + rank) * self._part

    def updated(self, rank: int, stage: int) -> list[Range]:
        """The bytes of the state that a process updates for all in one stage."""
        start, size = self.span(rank, stage)
        found: list[Range] = []
        for tensor in self.tensors:
            if tensor.slot is not None or not tensor.pieces:
                continue
            at = self.offsets[tensor.name]
            own = [p for p in tensor.pieces if start <= p.slice * self.each < start + size]
            if own:
                first, end = at + own[0].start * tensor.itemsize, at + own[-1].stop * tensor.itemsize
                if found and aligned(sum(found[-1])) == first:
                    first = found.pop()[0]
                found.append((first, end - first))
        return found

    @cached_property
    def _by_name(self) -> Mapping[str, _Tensor]:
        return {t.name: t for t in self.tensors}

    def place(self, buffer: Buffer) -> tuple[Buffer | None, bool]:
        """A buffer of the state in that of this process, None if it is not there; and whether it lies in slices of
        other processes alone."""
        tensor = self.tensors[bisect_right(self._starts, buffer.offset) - 1]
        within = buffer.offset - tensor.offset
        here, end = tensor.flat + within, tensor.flat + within + buffer.bytes
        parts = self._parts(here, end, self.rank)
        apart = bool(tensor.pieces) and not parts
        if tensor.slot is None:
            return replace(buffer, offset=self.offsets[tensor.name] + within), apart
        inside = parts and here // self._part == max(here, end - 1) // self._part
        return (replace(buffer, offset=self._held(tensor, parts[0], self.rank, here)) if inside else None), apart

    def stages_of(self, buffer: Buffer) -> set[int]:
        """The stages in which this process updates a buffer of the whole state; empty for what is not in slices."""
        tensor = self.tensors[bisect_right(self._starts, buffer.offset) - 1]
        if not tensor.pieces:
            return set()
        first = tensor.flat + buffer.offset - tensor.offset
        parts = self._parts(first, first + buffer.bytes, self.rank)
        return {self.order[self.rank].index(part) if self.order else part for part in parts}

    @cached_property
    def _starts(self) -> list[int]:
        return [t.offset for t in self.tensors]


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    offset: int
    bytes: int
    itemsize: int
    flat: int
    pieces: tuple[Piece, ...]
    slot: int | None


def share_of(header: Mapping[str, Any], rank: int, size: int) -> Share | None:
    """The share of a process; None if each updates all: alone, or for a program that does not divide its update so."""
    train = header["interface"]["train"] or {}
    count = int(header["state"].get("slices", slice_count(train.get("shards", 1))))
    if size == 1 or "update" not in train or count % size:
        return None
    table = header["state"]["tensors"]
    params = [(t["name"], prod(t["shape"]), ITEMSIZE[t["dtype"]]) for t in table if t["trained"]]
    pieces, flat, at = pieces_of(params, count), dict[str, int](), 0
    for name, elements, itemsize in params:
        flat[name] = at
        at += aligned(elements * itemsize)
    names: dict[str, int] = {}
    tensors = []
    for t in table:
        param = t["of"] or t["name"]
        slot = None
        if t["of"] is not None and t["init"] != AS_PARAM:
            slot = names.setdefault(t["name"].removeprefix(param), len(names))
        itemsize = ITEMSIZE[t["dtype"]]
        tensors.append(
            _Tensor(t["name"], t["offset"], prod(t["shape"]) * itemsize, itemsize, flat.get(param, 0),
                    pieces.get(param, ()), slot)
        )  # fmt: skip
    early = train["shards"] == size and train.get("accumulate", 1) == 1
    return Share(rank, size, count, slice_bytes(params, count), at, tensors, train["update"] != _OWN, early)


def shared_plan(plan: Plan, entry: str, share: Share) -> Plan:
    """The plan of a process: the state's buffers at their places there, without the updates of other slices. Of these,
    what a step tells is 0."""
    buffers, gone, foreign = list(plan.buffers), set[int](), set[int]()
    for number, buffer in enumerate(plan.buffers):
        if buffer.region == "state":
            found, there = share.place(buffer)
            if there:
                foreign.add(number)
            if found is None:
                gone.add(number)
            else:
                buffers[number] = found
    instructions = list(_kept(plan, entry, gone, foreign))
    if entry == "update_step":
        instructions = _needed(plan, instructions)
    used = {b for i in instructions for side in accesses(i) for b in side}
    if used & gone:
        raise ArtifactError("R301", f"`{entry}` reads slots of several slices", place=entry, help="build it again")
    lost = Buffer("work", 0, "u8", (0,))
    return replace(
        plan,
        buffers=tuple(lost if n in gone else b for n, b in enumerate(buffers)),
        instructions=tuple(instructions),
        work=(),
    )


def _kept(plan: Plan, entry: str, gone: set[int], foreign: set[int]) -> Iterator[Instruction]:
    for instruction in plan.instructions:
        written = accesses(instruction)[1]
        state = [b for b in written if plan.buffers[b].region == "state"]
        if entry == "init":
            if not gone.intersection(written):
                yield instruction
            continue
        if state and entry == "update_step" and foreign.issuperset(state):
            for number in written:
                buffer = plan.buffers[number]
                if buffer.region != "state" and buffer.bytes:
                    yield Fill(number, bytes(ITEMSIZE[buffer.dtype]), getattr(instruction, "stream", 0), 0)
            continue
        yield instruction


def _needed(plan: Plan, instructions: Sequence[Instruction]) -> list[Instruction]:
    """The instructions on which the state and the outputs depend, and those that compute nothing."""
    regions = {name: number for number, name in enumerate(("state", "context", "prepared", "io", "work"))}
    places = np.array([(regions[b.region], b.offset, b.end) for b in plan.buffers], np.int64).reshape(-1, 3)
    live = np.zeros(len(places), bool)
    live[[port.buffer for port in plan.outputs]] = True
    live[places[:, 0] == regions["state"]] = True
    found: list[Instruction] = []
    for instruction in reversed(instructions):
        read, written = accesses(instruction)
        if written:
            region, start, end = places[list(written)].T[..., None]
            touched = (places[:, 0] == region) & (places[:, 1] < end) & (start < places[:, 2])
            if not (touched & live).any():
                continue
            if isinstance(instruction, Fill):  # nothing that it replaces is needed
                live &= ~((places[:, 0] == region) & (start <= places[:, 1]) & (places[:, 2] <= end))[0]
            live[list(read)] = True
        found.append(instruction)
    return found[::-1]
