"""Where the values of a program lie while its instructions are written: directly, or, for the body of a loop, in the
values of the program around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import MemoryPlan, Place, Program
from dslc.compiler.ir.scan import Loop, int_count
from dslc.compiler.ir.types import TensorType

#: How many bytes an address moves on with each step of the loops around it, the outermost first, without zeros at the
#: end.
Strides: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Scope:
    """A program whose instructions are written. ``depth``: the number of loops around it. ``of``: for a body, the place
    of each value that comes from outside or goes there: the place of the whole value in the program around it, the
    bytes before the element of the first step, and the stride. ``work``: the place of the body's work region there."""

    program: Program
    depth: int = 0
    outer: Scope | None = None
    of: Mapping[Place, tuple[Place, int, int]] = field(default_factory=lambda: MappingProxyType({}))
    work: Place | None = None

    @property
    def schedule(self) -> tuple[Node, ...]:
        assert self.program.schedule is not None
        return self.program.schedule

    @property
    def memory(self) -> MemoryPlan:
        assert self.program.memory is not None
        return self.program.memory

    def resolve(self, place: Place) -> tuple[Place, Strides]:
        """The place in the regions of the whole program, for the first step of all loops, and how it moves."""
        if self.outer is None:
            return place, ()
        if place.region == "work":
            assert self.work is not None, "a body without scratch memory has no values in work"
            return self.outer.resolve(Place("work", self.work.offset + place.offset))
        around, first, stride = self.of[place]
        found, strides = self.outer.resolve(around)
        if first:
            found = Place(found.region, found.offset + first)
        if stride:
            strides = (*strides, *(0,) * (self.depth - 1 - len(strides)), stride)
        return found, strides


def body_scope(node: Node, outer: Scope) -> tuple[Scope, list[tuple[Place, Place, TensorType]]]:
    """The scope of a loop's body, and the copies (source, target, type) at the end of each step of results that the
    body does not compute at an address of their own. The places of both are those of the body.

    Targets of copies lie in the region ``io`` beyond all other places.
    """
    body = outer.program.loops[node]
    memory, around = body.memory, outer.program.memory
    assert memory is not None and around is not None, "the memory of a loop and of its body is planned"
    loop, count = Loop.of(node), int_count(node)
    of: dict[Place, tuple[Place, int, int]] = {}
    sizes: dict[Place, int] = {}

    def put(place: Place, type: TensorType, outside: Place, moves: bool) -> bool:
        """Maps a place of the body; False if it has another meaning already. Empty tensors lie anywhere."""
        if place in of and (sizes[place] or not type.bytes):
            return not type.bytes
        stride = type.bytes if moves else 0
        if loop.reverse:
            stride = -stride
        of[place], sizes[place] = (outside, (1 - count) * min(stride, 0), stride), type.bytes
        return True

    for source, value in zip(loop.const_inputs, loop.consts):
        put(memory.places[source.value], source.value.type, around.places[value], False)
    for source, value in zip(loop.sequence_inputs, loop.sequences):
        put(memory.places[source.value], source.value.type, around.places[value], True)
    for source, value in zip(loop.carry_inputs, node.outputs):
        put(memory.places[source.value], source.value.type, around.places[value], False)
    copies = []
    free = memory.io_bytes
    for (name, inside), value in zip(loop.graph.outputs.items(), node.outputs[len(loop.carries) :]):
        place = memory.results[name]
        if not put(place, inside.type, around.places[value], True):
            own = Place("io", free)
            free += max(1, inside.type.bytes)
            put(own, inside.type, around.places[value], True)
            copies.append((place, own, inside.type))
    scratch = around.scratch.get(node, ())
    work = scratch[0] if scratch else None
    return Scope(body, outer.depth + 1, outer, of, work), copies
