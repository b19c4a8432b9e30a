"""Proves that a graph and a finished program are sound, without using the passes that built them.

The memory proof is a replay that follows the owner of each byte from node to node. So it finds a value that is read
after another value overwrote a part of it, whatever the cause (order, offset, size, in-place, a state overwritten too
early).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from dslc.compiler.ir.bodies.chain import chain, chained
from dslc.compiler.ir.build import Build, build_of_body
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import Attrs, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.intervals import Ownership
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ir.program import ALIGNMENT, MemoryPlan, Place, Program
from dslc.compiler.ir.scan import body_of, scan
from dslc.compiler.ir.text import format_node, numbering
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify_streams import verify_streams
from dslc.runtime.artifact.reserved import OF_STATE, STEP_BLOCK

_NEIGHBOURS = 5


class VerifyError(Exception):
    """The compiler produced an unsound program: our error, not the user's."""


def _fault(graph: Graph, node: Node | None, why: str) -> VerifyError:
    """The error with the lines of the node and its neighbours."""
    if node is None or node not in graph.nodes:
        return VerifyError(why)
    at = graph.nodes.index(node)
    number = numbering(graph)
    lines = []
    for i in range(max(0, at - _NEIGHBOURS), min(len(graph.nodes), at + _NEIGHBOURS + 1)):
        lines.append(("> " if i == at else "  ") + format_node(graph.nodes[i], number))
    return VerifyError(f"{node.op.name} {node.name}: {why}\n" + "\n".join(lines))


class Inferred:
    """Types inferred for earlier graphs, reused when the next graph is verified: most nodes of a pass are those of the
    pass before it, and most others have the op and attributes of one of these. ``sound``: the nodes of the last graph,
    all of which fit their inputs."""

    def __init__(self) -> None:
        self.sound: frozenset[Node] = frozenset()
        # keyed by the identity of op and attributes, which stays valid because the values hold references to them
        self._known: dict[tuple[int, int, tuple[TensorType, ...]], tuple[Op, Attrs, tuple[TensorType, ...]]] = {}

    def types(self, node: Node) -> tuple[TensorType, ...]:
        """The node's types, inferred by its op. Raises Mismatch."""
        read = node.input_types
        key = id(node.op), id(node.attrs), read
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = node.op, node.attrs, tuple(node.op.infer(read, node.attrs))
        return found[2]


def verify_graph(graph: Graph, inferred: Inferred | None = None) -> None:
    """Checks that every value precedes its readers, every type is the one that its op infers, and updates fit their
    states. ``inferred``: the types inferred for earlier graphs.

    Raises VerifyError naming the node and its neighbours. Linear in nodes.
    """
    inferred = inferred or Inferred()
    known: set[Value] = set()
    names: set[str] = set()
    for source in graph.inputs:
        if source.name in names:
            raise VerifyError(f"two inputs are named {source.name}")
        names.add(source.name)
        known.add(source.value)
    for node in graph.nodes:
        if not known.issuperset(node.inputs):
            at = next(i for i, value in enumerate(node.inputs) if value not in known)
            raise _fault(graph, node, f"input {at} is not computed before it is read")
        if node not in inferred.sound:
            _verify_node(graph, node, inferred)
        known.update(node.outputs)
    inferred.sound = frozenset(graph.nodes)
    for name, value in graph.outputs.items():
        if value not in known:
            raise VerifyError(f"output {name} is not computed by the graph")
    updated: set[Input] = set()
    for source, value in graph.updates:
        if source.value not in known or source.kind in (Kind.DATA, Kind.SCALAR, Kind.CONSTANT):
            raise VerifyError(f"{source.name} is updated, but is no state of this graph")
        if source in updated:
            raise VerifyError(f"{source.name} is updated twice")
        updated.add(source)
        if value not in known:
            raise VerifyError(f"the new value of {source.name} is not computed by the graph")
        if value.type != source.value.type:
            raise VerifyError(f"{source.name} is {source.value.type}, its new value {value.type}")


def _unfit(graph: Graph, node: Node, why: str) -> Exception:
    """The error for a node that its op refuses: a package's op decided otherwise when the model was checked."""
    if "." not in node.op.name:
        return _fault(graph, node, why)
    sizes = " and ".join(map(str, node.input_types))
    return PackageFault(
        f"the op `{node.op.name}`: `infer` {why} for inputs {sizes}, but did not when the model was checked",
        "its author makes `infer` give the same for a size and for a dim of this size",
    ).at(node.span)


def _verify_node(graph: Graph, node: Node, inferred: Inferred) -> None:
    """Checks that the node's types are those that its op infers from the types of its inputs."""
    try:
        types = inferred.types(node)
    except Mismatch as mismatch:
        raise _unfit(graph, node, f"does not fit its inputs: {mismatch.why}") from mismatch
    except PackageFault as fault:
        raise fault.at(node.span) from fault.__cause__
    if types != node.types:
        raise _unfit(graph, node, f"gives {_listed(types)}, but says {_listed(node.types)}")
    if node.op is scan or node.op is chain:
        verify_graph(body_of(node.attrs) if node.op is scan else chained(node.attrs))
    if node.op.view and (len(node.outputs) != 1 or node.outputs[0].type.elements != node.inputs[0].type.elements):
        raise _fault(graph, node, "a view must have the elements of its first input")


def _listed(types: Iterable[TensorType]) -> str:
    return ", ".join(str(t) for t in types)


def verify_program(program: Program, build: Build) -> None:
    """Checks that a finished program computes its graph: order, addresses, moves. Fields that are still None are
    skipped.

    Raises VerifyError. About linear in nodes.
    """
    if program.schedule is not None:
        _verify_schedule(program.graph, program.schedule)
    if program.memory is not None:
        if program.schedule is None:
            raise VerifyError("memory is planned before the order is known")
        _Replay(program.graph, program.schedule, program.memory, build, program.scratch).run()
        verify_streams(program, partial(_fault, program.graph))
        for node in program.graph.nodes:
            if node.op is scan and node not in program.kernels:
                _verify_loop(program, node, build)


def _verify_loop(program: Program, node: Node, build: Build) -> None:
    """Checks the program of a loop's body, and that its work region fits into the scratch memory of its node."""
    body = program.loops.get(node)
    if body is None or body.memory is None or body.graph is not body_of(node.attrs):
        raise _fault(program.graph, node, "its body is not planned")
    room = sum(program.scratch.get(node, ()))
    if body.memory.work_bytes > room:
        raise _fault(program.graph, node, f"its body works in {body.memory.work_bytes} bytes, it has {room}")
    verify_program(body, build_of_body(body.graph, build))


def _verify_schedule(graph: Graph, schedule: Sequence[Node]) -> None:
    done: set[Node] = set()
    known = {i.value for i in graph.inputs}
    for node in schedule:
        if node in done:
            raise _fault(graph, node, "is scheduled twice")
        done.add(node)
        for i, value in enumerate(node.inputs):
            if value not in known:
                raise _fault(graph, node, f"is scheduled before its input {i}")
        known.update(node.outputs)
    for node in graph.nodes:
        if node not in done:
            raise _fault(graph, node, "is not scheduled")
    if len(done) != len(graph.nodes):
        raise VerifyError(f"{len(done) - len(graph.nodes)} nodes are scheduled that the graph does not have")


class _Replay:
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
            raise _fault(self.graph, node, f"{what} has no place")
        self._inside(place, value.type, what, node)
        return place

    def _inside(self, place: Place, type: TensorType, what: str, node: Node | None = None) -> None:
        if place.region not in self.sizes:
            raise _fault(self.graph, node, f"{what} is in an unknown region: {place.region}")
        if place.offset < 0 or place.offset + type.bytes > self.sizes[place.region]:
            size = self.sizes[place.region]
            raise _fault(
                self.graph, node, f"{what} ends outside {place.region}: {place.offset} + {type.bytes} > {size}"
            )
        in_block = place.region == "io" and place.offset < STEP_BLOCK
        if place.offset % (8 if in_block else ALIGNMENT):
            raise _fault(self.graph, node, f"{what} is not aligned: {place.region} + {place.offset}")

    def _may_be_written(self, place: Place, type: TensorType, what: str, node: Node | None = None) -> None:
        if place.region == "io" and place.offset < STEP_BLOCK:
            raise _fault(self.graph, node, f"{what} is written onto the step block")
        if place.region in ("state", "context", "prepared") and (place, type.bytes) not in self.updated:
            raise _fault(self.graph, node, f"{what} is written onto a state that is not updated: {place.offset}")

    def _own(self, place: Place, value: Value) -> None:
        self.owners[place.region].write(place.offset, place.offset + value.type.bytes, self.content[value])

    def _owns(self, place: Place, value: Value) -> bool:
        return self.owners[place.region].holds(place.offset, place.offset + value.type.bytes, self.content[value])

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
                raise _fault(self.graph, node, f"the bytes of input {i} were overwritten before they are read here")
            read.append(place)
            readers.setdefault(self.content[value], []).append(i)
        if node.op.view:
            [value] = node.outputs
            if self.place(value, "output 0", node) != read[0] or value.type.bytes != node.inputs[0].type.bytes:
                raise _fault(self.graph, node, "a view has another address than its source")
            self.content[value] = self.content[node.inputs[0]]
            return
        written: list[Place] = []
        for o, value in enumerate(node.outputs):
            place = self.place(value, f"output {o}", node)
            self._may_be_written(place, value.type, f"output {o}", node)
            for i in (i for owner in self._owners(place, value.type) for i in readers.get(owner, ())):
                source = node.inputs[i].type
                if not (read[i] == place and (i, o) in node.op.in_place(node) and _same_elements(source, value.type)):
                    raise _fault(self.graph, node, f"output {o} is written onto input {i} that is still being read")
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
            raise _fault(self.graph, node, f"wants {len(sizes)} blocks of scratch memory, has {len(places)}")
        blocks = [Value(node, -1 - i, TensorType(DType.U8, (size,))) for i, size in enumerate(sizes)]
        for i, (place, block) in enumerate(zip(places, blocks)):
            self._inside(place, block.type, f"scratch {i}", node)
            if place.region != "work":
                raise _fault(self.graph, node, f"scratch {i} lies in {place.region}")
            if any(owner in readers for owner in self._owners(place, block.type)):
                raise _fault(self.graph, node, f"scratch {i} shares bytes with what the node reads")
        stretches = [
            (place.region, place.offset, place.offset + value.type.bytes, value.index)
            for place, value in zip((*written, *places), (*node.outputs, *blocks))
            if value.type.bytes
        ]
        for (region, _, end, first), (other, start, _, second) in pairwise(sorted(stretches)):
            if region == other and start < end:
                one, two = (f"output {n}" if n >= 0 else f"scratch {-1 - n}" for n in sorted((first, second)))
                raise _fault(self.graph, node, f"{two} shares bytes with {one}")
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
            self._inside(place, value.type, f"output {name}")
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
