"""Proves a memory plan by a replay that follows the owner of each byte from node to node.

So it finds a value that is read after another value overwrote a part of it, whatever the cause (order, offset, size,
in-place, a state overwritten too early).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.intervals import Ownership
from dslc.compiler.ir.program import ALIGNMENT, MemoryPlan, Place
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.error import VerifyError, fault_at
from dslc.runtime.artifact.reserved import OF_STATE, STEP_BLOCK


class Replay:
    """Executes the schedule on the owners of bytes instead of the bytes."""

    def __init__(
        self,
        graph: Graph,
        schedule: Sequence[Node],
        plan: MemoryPlan,
        build: Build,
        scratch: Mapping[Node, tuple[int, ...]],
    ) -> None:
        self.graph = graph
        self.scratch = scratch
        self.schedule = schedule
        self.plan = plan
        self.build = build
        self.sizes: Mapping[str, int] = {
            "state": build.state_bytes, "context": plan.context_bytes, "prepared": plan.prepared_bytes,
            "io": plan.io_bytes, "work": plan.work_bytes,
        }  # fmt: skip
        self.context = {name: offset for name, _, offset in plan.carried}
        self.owners = {region: Ownership() for region in self.sizes}
        self.updated = {(self._home(i), i.value.type.bytes) for i, _ in graph.updates}
        self.content: dict[Value, Value] = {}  # a view has the content of its source
        self.first: dict[Value, int] = {}  # of a view that is a part: the byte of its content at which it begins

    def run(self) -> None:
        self._inputs()
        for node in self.schedule:
            self._node(node)
        self._moves()
        self._results()

    def _home(self, source: Input) -> Place:
        """Where a tensor that lasts longer than a run must lie."""
        if source.kind is Kind.PREPARED:  # anywhere in its region, if it shares no byte with another input
            return self.plan.places.get(source.value, Place("prepared", -1))
        if source.kind is Kind.STATE and self.context:
            return Place("context", self.context.get(source.name, -1))
        name = OF_STATE + source.name if source.kind is Kind.STATE else source.name
        return Place("state", self.build.state.get(name, -1))

    def place(self, value: Value, what: str, node: Node | None = None) -> Place:
        place = self.plan.places.get(value)
        if place is None:
            raise fault_at(self.graph, node, f"{what} has no place")
        self._inside(place, value.type, what, node, self._alignment(value, node))
        return place

    def _alignment(self, value: Value, reader: Node | None = None) -> int:
        """Where a value may begin: kernels read whole vectors, and only results and other views may be parts that begin
        at any element."""
        computes = reader is not None and not reader.op.view
        return ALIGNMENT if computes or not self.first.get(value) else value.type.dtype.itemsize

    def _inside(
        self, place: Place, type: TensorType, what: str, node: Node | None = None, alignment: int = ALIGNMENT
    ) -> None:
        if place.region not in self.sizes:
            raise fault_at(self.graph, node, f"{what} is in an unknown region: {place.region}")
        if place.offset < 0 or place.offset + type.bytes > self.sizes[place.region]:
            size = self.sizes[place.region]
            raise fault_at(
                self.graph, node, f"{what} ends outside {place.region}: {place.offset} + {type.bytes} > {size}"
            )
        in_block = place.region == "io" and place.offset < STEP_BLOCK
        if place.offset % (8 if in_block else alignment):
            raise fault_at(self.graph, node, f"{what} is not aligned: {place.region} + {place.offset}")

    def _may_be_written(self, place: Place, type: TensorType, what: str, node: Node | None = None) -> None:
        if place.region == "io" and place.offset < STEP_BLOCK:
            raise fault_at(self.graph, node, f"{what} is written onto the step block")
        if place.region in ("state", "context", "prepared") and (place, type.bytes) not in self.updated:
            raise fault_at(self.graph, node, f"{what} is written onto a state that is not updated: {place.offset}")

    def _own(self, place: Place, value: Value) -> None:
        self.owners[place.region].write(place.offset, place.offset + value.type.bytes, self.content[value])

    def _owns(self, place: Place, value: Value) -> bool:
        """Whether a value is at a place; a view, with all bytes of its content."""
        content, start = self.content[value], place.offset - self.first.get(value, 0)
        return not value.type.bytes or self.owners[place.region].holds(start, start + content.type.bytes, content)

    def _inputs(self) -> None:
        for source in self.graph.inputs:
            value = source.value
            place = self.place(value, f"input {source.name}")
            self.content[value] = value
            end = place.offset + value.type.bytes
            if source.kind is Kind.SCALAR:
                right = place.region == "io" and end <= STEP_BLOCK
            elif source.kind is Kind.DATA:
                right = place.region == "io" and place.offset >= STEP_BLOCK
            elif source.kind is Kind.CONSTANT:
                right = place.region == "work"
            elif source.kind is Kind.PREPARED:
                right = place.region == "prepared"
            else:
                right = place == self._home(source)
            if not right:
                raise VerifyError(f"{source.kind.value} {source.name} may not lie at {place.region} + {place.offset}")
            if self.owners[place.region].touches(place.offset, end):
                raise VerifyError(f"{source.name} lies on another input, at {place.region} + {place.offset}")
            self._own(place, value)

    def _node(self, node: Node) -> None:
        read: list[Place] = []
        readers: dict[object, list[int]] = {}  # content -> the indices of the inputs with this content
        for i, value in enumerate(node.inputs):
            place = self.place(value, f"input {i}", node)
            if not self._owns(place, value):
                raise fault_at(self.graph, node, f"the bytes of input {i} were overwritten before they are read here")
            read.append(place)
            readers.setdefault(self.content[value], []).append(i)
        if node.op.view:
            [value], whole, first = node.outputs, node.inputs[0], node.op.first_byte(node)
            self.first[value] = self.first.get(whole, 0) + first
            if self.place(value, "output 0", node) != Place(read[0].region, read[0].offset + first):
                raise fault_at(self.graph, node, "a view has another address than its source")
            self.content[value] = self.content[whole]
            return
        written: list[Place] = []
        for o, value in enumerate(node.outputs):
            place = self.place(value, f"output {o}", node)
            self._may_be_written(place, value.type, f"output {o}", node)
            for i in (i for owner in self._owners(place, value.type) for i in readers.get(owner, ())):
                source = node.inputs[i].type
                if not (read[i] == place and (i, o) in node.op.in_place(node) and _same_elements(source, value.type)):
                    raise fault_at(self.graph, node, f"output {o} is written onto input {i} that is still being read")
            written.append(place)
        self._scratch(node, readers, written)
        for value, place in zip(node.outputs, written):
            self.content[value] = value
            self._own(place, value)

    def _owners(self, place: Place, type: TensorType) -> list[object]:
        """The owners of the bytes at a tensor's address."""
        return self.owners[place.region].owners(place.offset, place.offset + type.bytes)

    def _scratch(self, node: Node, readers: Container[object], written: Sequence[Place]) -> None:
        """Checks that the node's results and scratch blocks are disjoint from each other and from its inputs; takes
        over their bytes."""
        sizes, places = self.scratch.get(node, ()), self.plan.scratch.get(node, ())
        if len(sizes) != len(places):
            raise fault_at(self.graph, node, f"wants {len(sizes)} blocks of scratch memory, has {len(places)}")
        blocks = [Value(node, -1 - i, TensorType(DType.U8, (size,))) for i, size in enumerate(sizes)]
        for i, (place, block) in enumerate(zip(places, blocks)):
            self._inside(place, block.type, f"scratch {i}", node)
            if place.region != "work":
                raise fault_at(self.graph, node, f"scratch {i} lies in {place.region}")
            if any(owner in readers for owner in self._owners(place, block.type)):
                raise fault_at(self.graph, node, f"scratch {i} shares bytes with what the node reads")
        stretches = [
            (place.region, place.offset, place.offset + value.type.bytes, value.index)
            for place, value in zip((*written, *places), (*node.outputs, *blocks))
            if value.type.bytes
        ]
        for (region, _, end, first), (other, start, _, second) in pairwise(sorted(stretches)):
            if region == other and start < end:
                one, two = (f"output {n}" if n >= 0 else f"scratch {-1 - n}" for n in sorted((first, second)))
                raise fault_at(self.graph, node, f"{two} shares bytes with {one}")
        for place, block in zip(places, blocks):
            self.content[block] = block
            self._own(place, block)

    def _moves(self) -> None:
        for move in self.plan.moves:
            size = move.type.bytes
            self._inside(move.source, move.type, f"the source of {move.name}")
            self._inside(move.target, move.type, f"the target of {move.name}")
            self._may_be_written(move.target, move.type, f"the target of {move.name}")
            content = self.owners[move.source.region].owner(move.source.offset, move.source.offset + size)
            if content is None:
                raise VerifyError(f"the move of {move.name} reads bytes that are no whole value")
            if _overlap(move.source, size, move.target, size):
                raise VerifyError(f"the move of {move.name} overlaps itself")
            self.owners[move.target.region].write(move.target.offset, move.target.offset + size, content)

    def _results(self) -> None:
        for name, value in self.graph.outputs.items():
            place = self.plan.results.get(name)
            if place is None:
                raise VerifyError(f"output {name} has no place")
            self._inside(place, value.type, f"output {name}", alignment=self._alignment(value))
            if place.region != "io" or not self._owns(place, value):
                raise VerifyError(f"output {name} is not at {place.region} + {place.offset} at the end")
        new = dict(self.graph.updates)
        for source in self.graph.inputs:
            if source.kind is Kind.SCALAR or (source.kind is Kind.DATA and source not in new):
                continue
            value = new.get(source, source.value)
            if not self._owns(self.plan.places[source.value], value):
                what = "its new value" if source in new else "its old value, although nothing updates it"
                kind = "constant" if source.kind is Kind.CONSTANT else "state"
                raise VerifyError(f"{kind} {source.name} does not hold {what} at the end")


def _overlap(a: Place, a_size: int, b: Place, b_size: int) -> bool:
    return (
        a.region == b.region
        and a_size > 0
        and b_size > 0
        and a.offset < b.offset + b_size
        and b.offset < a.offset + a_size
    )


def _same_elements(a: TensorType, b: TensorType) -> bool:
    """True if element i of one corresponds to element i of the other; axes of size 1 do not matter."""
    shapes = ([size for size in t.shape if size != 1] for t in (a, b))
    return next(shapes) == next(shapes) and a.dtype.itemsize == b.dtype.itemsize
