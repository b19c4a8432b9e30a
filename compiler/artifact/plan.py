"""Turns finished programs into plans: each node's instructions and cost, the buffers that they use, the ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dslc.compiler.artifact.labels import constant_blob, output_port, plain_attr, where
from dslc.compiler.artifact.loop_copies import copying, grouped
from dslc.compiler.artifact.scope import Scope, Strides, body_scope
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import EVERY_LEVEL, target_of, traits_of
from dslc.compiler.ir.graph import Kind, Node, Value
from dslc.compiler.ir.op import Cost
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.scan import Loop, int_count
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.instructions import (
    Copy,
    EventRecord,
    EventWait,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    LoopEnd,
    Reference,
    accesses,
)
from dslc.runtime.artifact.instructions import Loop as LoopBegin
from dslc.runtime.artifact.plan import Buffer, Constant, Plan, Port, Scalar, Work


def plan_of(program: Program, kernels: dict[str, Any] | None = None, level: str = EVERY_LEVEL) -> Plan:
    """The run-time plan of a finished program: the instructions of each node that computes, then the moves.

    ``kernels`` receives the descriptions of the kernels that the plan calls, by symbol. ``level``: that of its code.
    """
    return _PlanMaker(program, {} if kernels is None else kernels, level).plan()


def constants_of(program: Program) -> dict[str, bytes]:
    """The blobs of the constants in a program's plan: their names and bytes."""
    found = {}
    for source in program.graph.inputs:
        if source.kind is Kind.CONSTANT:
            assert source.stored is not None
            found[constant_blob(source)] = source.stored.encoded(source.value.type.dtype)
    return found


class _PlanMaker:
    def __init__(self, program: Program, kernels: dict[str, Any], level: str) -> None:
        assert program.schedule is not None and program.memory is not None, f"{program.entry} is not planned"
        self.program = program
        self.scope = Scope(program)
        self.memory = program.memory
        self.buffers: dict[tuple[Buffer, Strides], int] = {}
        self.names: dict[str, int] = {}
        self.events: dict[Node, int] = {}  # recorded after a node
        self.kernels = kernels
        self.target = target_of(program.target, program.vendor, level)
        self.joins_copies = traits_of(program.target).launches_are_costly
        self.instructions: list[Instruction] = []
        self.work: list[Work] = []

    def plan(self) -> Plan:
        graph = self.program.graph
        inputs, scalars, constants = [], [], []
        for source in graph.inputs:
            place = self.memory.places[source.value]
            if source.kind is Kind.SCALAR:
                scalars.append(Scalar(source.name, place.offset, source.value.type.dtype.value))
            elif source.kind is Kind.DATA:
                inputs.append(Port(source.name, "data", self._buffer(place, source.value.type)))
            elif source.kind is Kind.CONSTANT:
                constants.append(Constant(self._buffer(place, source.value.type), constant_blob(source), 0))
        waited_for = {other for others in self.program.waits.values() for other in others}
        ends = self._ends()
        for node in self.scope.schedule:
            stream = self.program.streams.get(node, 0)
            self.instructions += [EventWait(self.events[n], stream) for n in self.program.waits.get(node, ())]
            self._node(node, stream)
            if node in waited_for or ends.get(stream) is node:
                self.events[node] = len(self.events)
                self.instructions.append(EventRecord(self.events[node], stream))
        self.instructions += [EventWait(self.events[node], 0) for node in ends.values()]
        for move in self.memory.moves:
            source_buffer, target = (self._buffer(p, move.type) for p in (move.source, move.target))
            copy = Copy(src=source_buffer, dst=target, stream=0, where=self._name(move.name))
            self._emit("copy", 0, 2 * move.type.bytes, [copy])
        outputs = []
        for name, value in graph.outputs.items():
            port, kind = output_port(self.program.entry, name)
            outputs.append(Port(port, kind, self._buffer(self.memory.results[name], value.type)))
        return Plan(
            buffers=tuple(buffer for buffer, _ in self.buffers),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            scalars=tuple(sorted(scalars, key=lambda s: s.offset)),
            constants=tuple(constants),
            instructions=tuple(self.instructions),
            names=tuple(self.names),
            work=tuple(self.work),
        )

    def _ends(self) -> dict[int, Node]:
        """The last node of each stream except stream 0."""
        streams = self.program.streams
        return {streams[node]: node for node in self.scope.schedule if node in streams}

    def _emit(self, op: str, flops: int, bytes: int, made: Sequence[Instruction], stream: int = 0) -> None:
        """Appends the instructions of a node, and their cost."""
        if made:
            self.work.append(Work(len(self.instructions), op, flops, bytes))
            self.instructions += [
                replace(i, stream=stream) if stream and isinstance(i, Kernel | Gemm | GraphOp | Copy) else i
                for i in made
            ]

    def _node(self, node: Node, stream: int) -> None:
        if node in self.scope.program.loops:
            self._loop(node, stream)
            return
        made: list[Instruction] = []
        if node in self.scope.program.kernels:
            made = self._launches(node)
        elif not node.op.view:
            made = [self._reference(node)]
        cost = node.op.cost(node) if made else Cost(0, 0)
        self._emit(node.op.name, cost.flops, cost.bytes, made, stream)

    def _loop(self, node: Node, stream: int) -> None:
        """The carries begin with their first values; then the body runs, as often as the loop has steps."""
        loop, outer = Loop.of(node), self.scope
        firsts = [(self._value(v), self._value(result), v.type) for v, result in zip(loop.carries, node.outputs)]
        self._copies(firsts, node, stream)
        start = len(self.instructions)
        self.instructions.append(LoopEnd())  # its place, until the strides are known
        self.scope, copies = body_scope(node, outer)
        for inner in self.scope.schedule:
            self._node(inner, stream)
        copies += [(move.source, move.target, move.type) for move in self.scope.memory.moves]
        self._copies([(self._buffer(a, type), self._buffer(b, type), type) for a, b, type in copies], node, stream)
        self.scope = outer
        used = {b for i in self.instructions[start:] for side in accesses(i) for b in side}
        strides = {
            number: moves[outer.depth]
            for (_, moves), number in self.buffers.items()
            if number in used and len(moves) > outer.depth and moves[outer.depth]
        }
        if len(self.instructions) == start + 1:  # the body only renames what it reads
            self.instructions.pop()
            return
        self.instructions[start] = LoopBegin(int_count(node), tuple(sorted(strides.items())))
        self.instructions.append(LoopEnd())

    def _copies(self, copies: Sequence[tuple[int, int, TensorType]], node: Node, stream: int) -> None:
        """Copies (source, target, type) one after another; by kernels, if the program has kernels, which then join
        those around them."""
        copies = [each for each in copies if each[2].bytes and each[0] != each[1]]
        programs = [self.program, *self.program.loops.values()]
        if not any(p.kernels for p in programs):
            for source, target, type in copies:
                made = Copy(src=source, dst=target, stream=0, where=self._name(where(node)))
                self._emit("copy", 0, 2 * type.bytes, [made], stream)
            return
        for together in grouped(copies) if self.joins_copies else [[each] for each in copies]:
            launches = lowered(copying([type for _, _, type in together], node), self.program.target, vendor=False)
            assert launches is not None, "copies have kernels"
            [launch] = launches
            pointers = [("in", source) for source, _, _ in together] + [("out", target) for _, target, _ in together]
            moved = sum(2 * type.bytes for _, _, type in together)
            self._emit("copy", 0, moved, [self._kernel(launch, pointers, node)], stream)

    def _launches(self, node: Node) -> list[Instruction]:
        found: list[Instruction] = []
        for launch in self.scope.program.kernels[node]:
            if isinstance(launch.spec, LibraryCall):
                found.append(self._library_call(node, launch, launch.spec))
                continue
            pointers: list[tuple[str, int | float]] = [("in", self._argument(node, v)) for v in launch.reads]
            pointers += [("out", self._argument(node, v)) for v in launch.writes]
            found.append(self._kernel(launch, pointers, node))
        return found

    def _kernel(self, launch: Launch, pointers: Sequence[tuple[str, int | float]], node: Node) -> Kernel:
        self.kernels[launch.symbol] = launch.code
        geometry = self.target.geometry(launch.spec)
        return Kernel(
            blob=self.target.blob_of(launch.symbol),
            symbol=launch.symbol,
            grid=geometry.grid,
            block=geometry.block,
            shared_bytes=geometry.shared_bytes,
            args=(*pointers, *launch.scalar_args),
            stream=0,
            where=self._name(where(node)),
        )

    def _library_call(self, node: Node, launch: Launch, spec: LibraryCall) -> Instruction:
        *given, workspace = (*launch.reads, *launch.writes)
        assert isinstance(workspace, Scratch), "a library works in scratch memory"
        operands = [
            self._buffer(self.scope.memory.places[v], TensorType(v.type.dtype, shape))
            for v, shape in zip(given, spec.shapes, strict=True)
            if isinstance(v, Value)
        ]
        return spec.instruction(operands, self._argument(node, workspace), self._name(where(node)))

    def _reference(self, node: Node) -> Reference:
        return Reference(
            op=node.op.name,
            attrs={name: plain_attr(value) for name, value in sorted(node.attrs.items())},
            inputs=tuple(self._value(v) for v in node.inputs),
            outputs=tuple(self._value(v) for v in node.outputs),
            where=self._name(where(node)),
        )

    def _argument(self, node: Node, argument: Value | Scratch) -> int:
        if isinstance(argument, Value):
            return self._value(argument)
        place = self.scope.memory.scratch[node][argument.number]
        return self._buffer(place, TensorType(DType.U8, (argument.bytes,)))

    def _value(self, value: Value) -> int:
        return self._buffer(self.scope.memory.places[value], value.type)

    def _buffer(self, place: Place, type: TensorType) -> int:
        """The number of the buffer at a place of the program in whose scope instructions are written."""
        found, strides = self.scope.resolve(place)
        buffer = Buffer(region=found.region, offset=found.offset, dtype=type.dtype.value, shape=type.ints)
        return self.buffers.setdefault((buffer, strides), len(self.buffers))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))
