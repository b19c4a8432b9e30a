"""Programs -> the bytes of an artifact: a plan per program, one state layout, the header."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.base.canonical import dumps
from dslc.compiler.ir.graph import Attr, Kind, Node, Value
from dslc.compiler.ir.program import Place, Program
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.state import StateLayout
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact import write_artifact
from dslc.runtime.plan import Buffer, Copy, Instruction, Plan, Port, Reference, Scalar


@dataclass(frozen=True)
class ArtifactParts:
    """What an artifact says beside its programs. ``interface`` and ``options`` are JSON data; ``source_sha256`` is
    that of all source files; ``row_independent``: predict may pad the rows of its batch."""

    name: str
    model: str
    interface: Mapping[str, Any]
    state: StateLayout
    options: Mapping[str, Any]
    toolchain: Mapping[str, str]
    source_sha256: str
    row_independent: bool


def emit(
    programs: Sequence[Program], parts: ArtifactParts, *, target: str = "cpu", provider: str = "reference"
) -> bytes:
    """The artifact. The same programs and parts give the same bytes.

    ``programs`` are finished: scheduled and with memory. Their order is kept.
    """
    blobs: list[tuple[str, str, bytes]] = []
    entries: list[dict[str, Any]] = []
    for number, program in enumerate(programs):
        assert program.memory is not None, f"{program.entry} has no memory plan"
        name = f"plan.{number}"
        blobs.append((name, "plan", plan_of(program).encode()))
        entries.append(
            {
                "entry": program.entry,
                "target": target,
                "provider": provider,
                "sizes": dict(program.sizes),
                "io_bytes": program.memory.io_bytes,
                "work_bytes": program.memory.work_bytes,
                "context_bytes": 0,
                "plan": name,
                "lower_bound": program.memory.lower_bound,
                "planned": program.memory.work_bytes,
            }
        )
    header: dict[str, Any] = {
        "format": [1, 0],
        "required_features": [provider],
        "name": parts.name,
        "model": parts.model,
        "toolchain": dict(parts.toolchain),
        "source_sha256": parts.source_sha256,
        "options": dict(parts.options),
        "interface": dict(parts.interface),
        "interface_sha256": hashlib.sha256(dumps(parts.interface)).hexdigest(),
        "row_independent": parts.row_independent,
        "state": _state(parts.state),
        "programs": entries,
    }
    return write_artifact(header, blobs)


def _state(layout: StateLayout) -> dict[str, Any]:
    tensors = [
        {
            "name": t.name,
            "kind": t.kind.value,
            "dtype": t.type.dtype.value,
            "shape": list(t.type.ints),
            "offset": layout.offsets[t.name],
            "init": t.init,
            "of": t.of,
            "trained": t.trained,
        }
        for t in layout.tensors
    ]
    return {"bytes": layout.bytes, "tensors": tensors, "forward_order": list(layout.forward_order)}


def plan_of(program: Program) -> Plan:
    """The run-time plan of a finished program: one instruction a node that computes, then the moves."""
    return _PlanMaker(program).plan()


def port_kind(program: Program, name: str) -> str:
    """What an output is to the runtime."""
    if name in program.kinds:
        return program.kinds[name]
    if program.entry in ("train_step", "eval_finish"):
        if name == "loss":
            return "loss"
        if name.startswith("metric."):
            return "metric"
        if name == "nonfinite":
            return "flags"
    if program.entry == "eval_step" and name.startswith("count."):
        return "count"
    assert program.entry not in ("train_step", "eval_step", "eval_finish"), f"{program.entry} has an output {name}"
    return "result"


class _PlanMaker:
    def __init__(self, program: Program) -> None:
        assert program.schedule is not None and program.memory is not None, f"{program.entry} is not planned"
        self.program = program
        self.schedule = program.schedule
        self.memory = program.memory
        self.buffers: dict[Buffer, int] = {}
        self.names: dict[str, int] = {}

    def plan(self) -> Plan:
        graph = self.program.graph
        inputs, scalars = [], []
        for source in graph.inputs:
            place = self.memory.places[source.value]
            if source.kind is Kind.SCALAR:
                scalars.append(Scalar(source.name, place.offset, source.value.type.dtype.value))
            elif source.kind is Kind.DATA:
                inputs.append(Port(source.name, "data", self._buffer(place, source.value.type)))
        instructions: list[Instruction] = [self._reference(n) for n in self.schedule if not n.op.view]
        for move in self.memory.moves:
            source_buffer, target = (self._buffer(p, move.type) for p in (move.source, move.target))
            instructions.append(Copy(src=source_buffer, dst=target, stream=0, where=self._name(move.name)))
        outputs = []
        for name, value in graph.outputs.items():
            buffer = self._buffer(self.memory.results[name], value.type)
            outputs.append(Port(name, port_kind(self.program, name), buffer))
        return Plan(
            buffers=tuple(self.buffers),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            scalars=tuple(sorted(scalars, key=lambda s: s.offset)),
            constants=(),
            instructions=tuple(instructions),
            names=tuple(self.names),
        )

    def _reference(self, node: Node) -> Reference:
        return Reference(
            op=node.op.name,
            attrs={name: plain_attr(value) for name, value in sorted(node.attrs.items())},
            inputs=tuple(self._value(v) for v in node.inputs),
            outputs=tuple(self._value(v) for v in node.outputs),
            where=self._name(where(node)),
        )

    def _value(self, value: Value) -> int:
        return self._buffer(self.memory.places[value], value.type)

    def _buffer(self, place: Place, type: TensorType) -> int:
        buffer = Buffer(region=place.region, offset=place.offset, dtype=type.dtype.value, shape=type.ints)
        return self.buffers.setdefault(buffer, len(self.buffers))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


def where(node: Node) -> str:
    """For people: the node's path and its line in the source, ``c1.weight lenet.nn:7``. Only the file's own name is
    written, so that the bytes do not depend on the folder."""
    if node.span is None:
        return node.name or node.op.name
    return f"{node.name or node.op.name} {os.path.basename(node.span.source.path)}:{node.span.line}"


def plain_attr(attr: Attr) -> Any:
    """An attribute as JSON data: dtypes by name, tuples as lists."""
    if isinstance(attr, tuple):
        return [plain_attr(a) for a in attr]
    if isinstance(attr, DType):
        return attr.value
    assert not isinstance(attr, Poly), f"an attribute still has dims: {attr}"
    return attr
