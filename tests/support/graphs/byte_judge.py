"""Whether a finished program is sound, judged slowly: every byte by itself, and every pair of nodes that may run at
once.

Nothing of this is the verifier's: bytes are numbers of an array, not intervals with owners, and what comes before what
is the closure of a relation, not clocks.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.passes.plan.schedule import contents, first_bytes

Span = tuple[str, int, int]
STEP_BLOCK, ALIGNMENT = 256, 64


class Unsound(Exception):
    """The program does not compute its graph, or not in every order that its streams allow."""


def need(condition: object, why: str) -> None:
    if not condition:
        raise Unsound(why)


def is_sound(program: Program, build: Build) -> bool:
    try:
        _Judge(program, build).judge()
    except Unsound:
        return False
    return True


class _Judge:
    def __init__(self, program: Program, build: Build) -> None:
        assert program.memory is not None and program.schedule is not None
        self.program, self.plan, self.build, self.schedule = program, program.memory, build, program.schedule
        self.graph = program.graph
        self.content, self.first = contents(self.graph), first_bytes(self.graph)
        sizes = {
            "state": build.state_bytes, "context": self.plan.context_bytes, "prepared": self.plan.prepared_bytes,
            "io": self.plan.io_bytes, "work": self.plan.work_bytes,
        }  # fmt: skip
        self.carried = {name: Place("context", offset) for name, _, offset in self.plan.carried}
        #: What each byte holds: the number of a value's byte, 0 for garbage.
        self.held = {region: np.zeros(max(0, size), np.int64) for region, size in sizes.items()}
        self.numbers: dict[Value, int] = {}
        self.given = 1

    def judge(self) -> None:
        self._inputs()
        done: set[Node] = set()
        for node in self.schedule:
            need(node not in done, "a node runs twice")
            need(
                all(isinstance(v.producer, Input) or v.producer in done for v in node.inputs), "read before it is made"
            )
            done.add(node)
            self._node(node)
        need(done == set(self.graph.nodes), "other nodes than the graph's")
        self._races()
        self._moves()
        self._results()

    def span(self, place: Place | None, size: int, alignment: int = ALIGNMENT) -> Span:
        assert place is None or isinstance(place, Place)
        if place is None:
            raise Unsound("no place")
        block = place.region == "io" and place.offset < STEP_BLOCK
        need(place.region in self.held, "in an unknown region")
        need(place.offset >= 0 and place.offset + size <= len(self.held[place.region]), "outside")
        need(place.offset % (8 if block else alignment) == 0, "not aligned")
        return place.region, place.offset, place.offset + size

    def value(self, value: Value, reader: Node | None = None) -> Span:
        """The span of a value; a part of a tensor that no node computes from may begin at any element."""
        alone = self.first[value] and (reader is None or reader.op.view)
        return self.span(self.plan.places.get(value), value.type.bytes, 1 if alone else ALIGNMENT)

    def holds(self, span: Span, value: Value) -> bool:
        region, low, high = span
        first = self.numbers.get(self.content[value])
        if first is None:
            return False
        first += self.first[value]
        return bool((self.held[region][low:high] == np.arange(first, first + high - low)).all())

    def write(self, span: Span, value: Value | None) -> None:
        region, low, high = span
        if value is None:
            self.held[region][low:high] = 0
            return
        self.numbers[value] = self.given
        self.given += value.type.bytes
        self.held[region][low:high] = np.arange(self.numbers[value], self.given)

    def writable(self, span: Span) -> None:
        region, low, high = span
        need(region != "io" or low >= STEP_BLOCK, "onto the step block")
        if region in ("state", "context", "prepared"):
            targets = [(self.lasting(i), i.value.type.bytes) for i, _ in self.graph.updates]
            need((Place(region, low), high - low) in targets, "onto a state that is not updated")

    def lasting(self, source: Input) -> Place:
        """Where a tensor that lasts from run to run lies; a prepared one lies anywhere in its region."""
        if source.kind is Kind.PREPARED:
            found = self.plan.places.get(source.value)
            return found if isinstance(found, Place) and found.region == "prepared" else Place("prepared", -1)
        if source.kind is Kind.STATE and self.program.entry != "train_step":
            return self.carried.get(source.name, Place("context", -1))
        name = f"train.state.{source.name}" if source.kind is Kind.STATE else source.name
        return Place("state", self.build.state.get(name, -1))

    def _inputs(self) -> None:
        for source in self.graph.inputs:
            place, span = self.plan.places.get(source.value), self.value(source.value)
            region, low, high = span
            if source.kind is Kind.SCALAR:
                need(region == "io" and high <= STEP_BLOCK, "a scalar elsewhere")
            elif source.kind is Kind.DATA:
                need(region == "io" and low >= STEP_BLOCK, "data elsewhere")
            elif source.kind is Kind.CONSTANT:
                need(region == "work", "a constant elsewhere")
            else:
                need(place == self.lasting(source), "a state elsewhere")
            need(not self.held[region][low:high].any(), "an input on another")
            self.write(span, source.value)

    def _node(self, node: Node) -> None:
        reads = [self.value(v, node) for v in node.inputs]
        need(all(map(self.holds, reads, node.inputs)), "overwritten before it is read")
        if node.op.view:
            (region, low, _), (there, start, end) = reads[0], self.value(node.out)
            need((there, start) == (region, low + node.op.first_byte(node)), "a view elsewhere")
            need(node.op.part or end - start == node.inputs[0].type.bytes, "a view of less")
            return
        writes: list[Span] = []
        for o, new in enumerate(node.outputs):
            span = self.value(new)
            self.writable(span)
            need(not any(_overlap(span, other) for other in writes), "two outputs on one byte")
            for i, (old, read) in enumerate(zip(node.inputs, reads)):
                same = _long_axes(old) == _long_axes(new) and old.type.dtype.itemsize == new.type.dtype.itemsize
                in_place = (i, o) in node.op.inplace and read == span and same
                need(in_place or not _overlap(span, read), "onto what is being read")
            writes.append(span)
        blocks = self.blocks(node)
        for n, block in enumerate(blocks):
            need(block[0] == "work", "scratch elsewhere")
            need(not any(_overlap(block, other) for other in (*reads, *writes, *blocks[:n])), "scratch on something")
        for block in blocks:
            self.write(block, None)
        for new, span in zip(node.outputs, writes):
            self.write(span, new)

    def blocks(self, node: Node) -> list[Span]:
        sizes, places = self.program.scratch.get(node, ()), self.plan.scratch.get(node, ())
        need(len(sizes) == len(places), "other blocks of scratch than wanted")
        return [self.span(place, size) for place, size in zip(places, sizes)]

    def _races(self) -> None:
        """Of two nodes that touch a byte, one writing it, the later one comes after the earlier one on every path."""
        streams, waits = self.program.streams, self.program.waits
        working = [n for n in self.schedule if not n.op.view]
        number = {node: i for i, node in enumerate(working)}
        need({*streams, *waits} <= {*working} and min(streams.values(), default=0) >= 0, "a stream of no node's")
        before: list[int] = []  # of each node, a bit for each that has ended when it begins
        last: dict[int, int] = {}
        for i, node in enumerate(working):
            stream, bits = streams.get(node, 0), 0
            direct = [number.get(other, i) for other in waits.get(node, ())]
            need(all(j < i for j in direct), "waits for what comes later")
            for j in (*direct, *([last[stream]] if stream in last else [])):
                bits |= before[j] | 1 << j
            before.append(bits)
            last[stream] = i
        if len(last) < 2:
            return
        reads = [[self.value(v) for v in n.inputs] for n in working]
        writes = [[*(self.value(v) for v in n.outputs), *self.blocks(n)] for n in working]
        for i, j in combinations(range(len(working)), 2):
            if not before[j] >> i & 1:
                need(not _any(writes[i], reads[j]) and not _any(reads[i], writes[j]) and not _any(writes[i], writes[j]),
                     "a race")  # fmt: skip

    def _moves(self) -> None:
        for move in self.plan.moves:
            source, target = (self.span(p, move.type.bytes) for p in (move.source, move.target))
            self.writable(target)
            need(not _overlap(source, target), "a move onto itself")
            held = self.held[source[0]][source[1] : source[2]].copy()
            whole = [v for v, first in self.numbers.items() if len(held) and first == held[0]]
            need(not len(held) or (held[0] and whole and whole[0].type.bytes == len(held)), "a move of no whole value")
            need((np.diff(held) == 1).all(), "a move of no whole value")
            self.held[target[0]][target[1] : target[2]] = held

    def _results(self) -> None:
        for name, value in self.graph.outputs.items():
            span = self.span(self.plan.results.get(name), value.type.bytes, 1 if self.first[value] else ALIGNMENT)
            need(span[0] == "io" and self.holds(span, value), "a result elsewhere")
        new = dict(self.graph.updates)
        for source in self.graph.inputs:
            if source.kind is Kind.SCALAR or (source.kind is Kind.DATA and source not in new):
                continue
            need(self.holds(self.value(source.value), new.get(source, source.value)), "a state with another value")


def _long_axes(value: Value) -> list[int]:
    """The sizes that are not 1: element i is the same element for two shapes that agree in these."""
    return [size for size in value.type.ints if size != 1]


def _overlap(a: Span, b: Span) -> bool:
    return a[0] == b[0] and max(a[1], b[1]) < min(a[2], b[2])


def _any(some: list[Span], others: list[Span]) -> bool:
    return any(_overlap(a, b) for a in some for b in others)
