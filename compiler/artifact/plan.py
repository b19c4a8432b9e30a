"""Turns finished programs into plans: each node's instructions and cost, the buffers that they use, the ports."""

from __future__ import annotations

import os.path
from dataclasses import replace
from typing import Any, Final

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.codegen.targets import EVERY_LEVEL, target_of
from dslc.compiler.ir.graph import Attr, Input, Kind, Node, Value
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.attributes import plain_float
from dslc.runtime.artifact.instructions import (
    Copy,
    EventRecord,
    EventWait,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    Reference,
)
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
            found[_blob(source)] = source.stored.encoded(source.value.type.dtype)
    return found


def _blob(source: Input) -> str:
    """The name of the blob that holds a constant: equal constants share it."""
    assert source.stored is not None, f"the constant {source.name} has no numbers"
    return f"constant.{source.value.type.dtype}.{source.stored.digest[:24]}"


def output_port(entry: str, output: str) -> tuple[str, str]:
    """The name and kind of the port of a graph's output.

    ``result.y`` -> ``y``, result; ``metric.m`` -> ``metric.m``, metric; ``partial.0.sum`` -> ``partial.0``,
    partial.sum; ``count.0``, count; ``loss``, ``nonfinite``, ``loss_scale`` and ``skipped_steps``, one of each.
    """
    family, _, rest = output.partition(".")
    match family:
        case "result":
            return rest, "result"
        case "partial":
            name, _, combine = rest.rpartition(".")
            assert combine in ("sum", "max", "min"), f"{entry} has an output {output}"
            return f"partial.{name}", f"partial.{combine}"
        case "shard":
            return output, "shard"
        case "metric" | "count":
            return output, family
    kinds = {"loss": "loss", "nonfinite": "flags", "loss_scale": "scale", "skipped_steps": "skipped"}
    assert output in kinds, f"{entry} has an output {output}"
    return output, kinds[output]


class _PlanMaker:
    def __init__(self, program: Program, kernels: dict[str, Any], level: str) -> None:
        assert program.schedule is not None and program.memory is not None, f"{program.entry} is not planned"
        self.program = program
        self.schedule = program.schedule
        self.memory = program.memory
        self.buffers: dict[Buffer, int] = {}
        self.names: dict[str, int] = {}
        self.events: dict[Node, int] = {}  # recorded after a node
        self.kernels = kernels
        self.target = target_of(program.target, program.vendor, level)

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
                constants.append(Constant(self._buffer(place, source.value.type), _blob(source), 0))
        instructions: list[Instruction] = []
        work: list[Work] = []
        waited_for = {other for others in self.program.waits.values() for other in others}
        ends = self._ends()
        for node in self.schedule:
            stream = self.program.streams.get(node, 0)
            made: list[Instruction] = []
            if node in self.program.kernels:
                made = self._launches(node)
            elif not node.op.view:
                made = [self._reference(node)]
            if stream:
                made = [replace(i, stream=stream) for i in made if isinstance(i, Kernel | Gemm | GraphOp)]
            instructions += [EventWait(self.events[n], stream) for n in self.program.waits.get(node, ())]
            if made:
                cost = node.op.cost(node)
                work.append(Work(len(instructions), node.op.name, cost.flops, cost.bytes))
                instructions += made
            if node in waited_for or ends.get(stream) is node:
                self.events[node] = len(self.events)
                instructions.append(EventRecord(self.events[node], stream))
        instructions += [EventWait(self.events[node], 0) for node in ends.values()]
        for move in self.memory.moves:
            work.append(Work(len(instructions), "copy", 0, 2 * move.type.bytes))
            source_buffer, target = (self._buffer(p, move.type) for p in (move.source, move.target))
            instructions.append(Copy(src=source_buffer, dst=target, stream=0, where=self._name(move.name)))
        outputs = []
        for name, value in graph.outputs.items():
            port, kind = output_port(self.program.entry, name)
            outputs.append(Port(port, kind, self._buffer(self.memory.results[name], value.type)))
        return Plan(
            buffers=tuple(self.buffers),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            scalars=tuple(sorted(scalars, key=lambda s: s.offset)),
            constants=tuple(constants),
            instructions=tuple(instructions),
            names=tuple(self.names),
            work=tuple(work),
        )

    def _ends(self) -> dict[int, Node]:
        """The last node of each stream except stream 0."""
        return {self.program.streams[node]: node for node in self.schedule if node in self.program.streams}

    def _launches(self, node: Node) -> list[Instruction]:
        found: list[Instruction] = []
        for launch in self.program.kernels[node]:
            if isinstance(launch.spec, LibraryCall):
                found.append(self._library_call(node, launch, launch.spec))
                continue
            self.kernels[launch.symbol] = launch.code
            args: list[tuple[str, int | float]] = [("in", self._argument(node, v)) for v in launch.reads]
            args += [("out", self._argument(node, v)) for v in launch.writes]
            args += launch.scalar_args
            geometry = self.target.geometry(launch.spec)
            found.append(
                Kernel(
                    blob=self.target.blob_of(launch.symbol),
                    symbol=launch.symbol,
                    grid=geometry.grid,
                    block=geometry.block,
                    shared_bytes=geometry.shared_bytes,
                    args=tuple(args),
                    stream=0,
                    where=self._name(where(node)),
                )
            )
        return found

    def _library_call(self, node: Node, launch: Launch, spec: LibraryCall) -> Instruction:
        *given, workspace = (*launch.reads, *launch.writes)
        assert isinstance(workspace, Scratch), "a library works in scratch memory"
        operands = [
            self._buffer(self.memory.places[v], TensorType(v.type.dtype, shape))
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
        place = self.memory.scratch[node][argument.number]
        return self._buffer(place, TensorType(DType.U8, (argument.bytes,)))

    def _value(self, value: Value) -> int:
        return self._buffer(self.memory.places[value], value.type)

    def _buffer(self, place: Place, type: TensorType) -> int:
        buffer = Buffer(region=place.region, offset=place.offset, dtype=type.dtype.value, shape=type.ints)
        return self.buffers.setdefault(buffer, len(self.buffers))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


_LONGEST_FILE: Final = 100  # characters of a file's name in a plan


def where(node: Node) -> str:
    """A label for people: the node's path and its source line, ``c1.weight lenet.nn:7``. The label has only the file's
    base name, so the bytes do not depend on the folder."""
    if node.span is None:
        return node.name or node.op.name
    file = os.path.basename(node.span.source.path)
    shown = "".join(c if c.isprintable() else "?" for c in file)[-_LONGEST_FILE:]
    return f"{node.name or node.op.name} {shown}:{node.span.line}"


def plain_attr(attr: Attr) -> Any:
    """An attribute as JSON data: dtypes by name, tuples as lists, infinities and nan by name."""
    if isinstance(attr, tuple):
        return [plain_attr(a) for a in attr]
    if isinstance(attr, DType):
        return attr.value
    assert not isinstance(attr, Poly), f"an attribute still has dims: {attr}"
    return plain_float(attr) if isinstance(attr, float) else attr
