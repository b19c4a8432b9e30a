"""The closed set of a plan's instructions as data, and the buffers that each one accesses.

Buffers, blob names and source places are indices into the plan's lists; ``docs/artifact.md`` specifies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

#: A kernel's argument: ("in" | "out" | "inout", buffer), ("scalar", index) or ("i32" | "i64" | "f32" | "f64", value).
KernelArg: TypeAlias = tuple[str, int | float]


@dataclass(frozen=True, slots=True)
class Reference:
    """An op run by its numpy meaning."""

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    where: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch of a compiled kernel; the arguments state how the kernel accesses its buffers."""

    blob: str
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[KernelArg, ...]
    stream: int
    where: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """out = epilogue(alpha * op(a) @ op(b) + beta * c + bias); ``algorithm`` is the provider's choice as bytes."""

    provider: str
    a: int
    b: int
    c: int | None
    bias: int | None
    out: int
    workspace: int | None
    transpose_a: bool
    transpose_b: bool
    compute: str
    alpha: float
    beta: float
    epilogue: str
    algorithm: bytes
    stream: int
    where: int


@dataclass(frozen=True, slots=True)
class GraphOp:
    """An operation graph of a vendor library with the chosen engine and knobs; never a serialised plan."""

    provider: str
    kind: str
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    workspace: int | None
    engine: int
    knobs: tuple[tuple[int, int], ...]
    stream: int
    where: int


@dataclass(frozen=True, slots=True)
class Copy:
    """dst = src, byte for byte; both have the same dtype and number of elements."""

    src: int
    dst: int
    stream: int
    where: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Every element of dst = pattern (itemsize bytes)."""

    dst: int
    pattern: bytes
    stream: int
    where: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Record an event at this point of a stream."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class EventWait:
    """Later work on this stream waits for the event, which an earlier instruction recorded."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class BulkBegin:
    """Start of a bulk: the instructions up to BulkEnd are submitted together. Bulks are numbered from 0, never
    nested."""

    index: int


@dataclass(frozen=True, slots=True)
class BulkEnd:
    """The end of the current bulk."""

    index: int


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions up to the matching LoopEnd run ``count`` times. ``strides``: (buffer, bytes), by how many bytes
    a buffer moves on after each step. Loops nest; the moves of nested loops add up."""

    count: int
    strides: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """The end of the innermost open loop."""


@dataclass(frozen=True, slots=True)
class Collective:
    """An exchange between the devices of a run."""

    kind: str
    op: str
    src: int
    dst: int
    stream: int
    where: int


Instruction: TypeAlias = (
    Reference | Kernel | Gemm | GraphOp | Copy | Fill | EventRecord | EventWait | BulkBegin | BulkEnd | Loop | LoopEnd
    | Collective
)  # fmt: skip

#: The first item of an instruction's row, and its class; the row's other items are the class's fields in order.
INSTRUCTIONS: Final[Mapping[str, type[Instruction]]] = {
    "reference": Reference,
    "kernel": Kernel,
    "gemm": Gemm,
    "graph": GraphOp,
    "copy": Copy,
    "fill": Fill,
    "record": EventRecord,
    "wait": EventWait,
    "bulk_begin": BulkBegin,
    "bulk_end": BulkEnd,
    "loop": Loop,
    "loop_end": LoopEnd,
    "collective": Collective,
}


def accesses(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The buffers that an instruction reads and writes; a workspace counts as written."""
    match instruction:
        case Reference(inputs=inputs, outputs=outputs):
            return inputs, outputs
        case Kernel(args=args):
            return (
                tuple([int(v) for kind, v in args if kind in ("in", "inout")]),
                tuple([int(v) for kind, v in args if kind in ("out", "inout")]),
            )
        case Gemm():
            read = (instruction.a, instruction.b, instruction.c, instruction.bias)
            return _present(*read), _present(instruction.out, instruction.workspace)
        case GraphOp():
            return instruction.inputs, _present(*instruction.outputs, instruction.workspace)
        case Copy(src=src, dst=dst) | Collective(src=src, dst=dst):
            return (src,), (dst,)
        case Fill(dst=dst):
            return (), (dst,)
        case _:
            return (), ()


def results(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction writes, except a library's workspace."""
    room = instruction.workspace if isinstance(instruction, Gemm | GraphOp) else None
    return tuple(b for b in accesses(instruction)[1] if b != room)


def _present(*buffers: int | None) -> tuple[int, ...]:
    return tuple(b for b in buffers if b is not None)
