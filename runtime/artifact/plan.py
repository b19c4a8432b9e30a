"""The plan of one program: buffers, ports, scalars, constants and a closed list of instructions, as data.

A plan is one blob of an artifact, in canonical JSON; ``docs/artifact.md`` specifies each field. ``Plan.decode`` accepts
only what the schema allows; ``plan_check.check`` checks that offsets, indices and sizes are consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Final, Literal, TypeAlias

from dslc.base import canonical
from dslc.base.errors import ArtifactError
from dslc.base.json_size import count_values
from dslc.base.schema import Mismatch
from dslc.runtime.artifact import plan_schema
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import INSTRUCTIONS, Instruction

Region: TypeAlias = Literal["state", "context", "prepared", "io", "work"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes of a region viewed as a dense row-major tensor. Several buffers may share bytes."""

    region: Region
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return ITEMSIZE[self.dtype] * prod(self.shape)

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def overlaps(self, other: Buffer) -> bool:
        """True if the two buffers share a byte."""
        return self.region == other.region and max(self.offset, other.offset) < min(self.end, other.end)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}] at {self.region}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Port:
    """A buffer that the caller fills (kind data) or reads (result, loss, metric, flags, partial.sum|max|min, count,
    shard)."""

    name: str
    kind: str
    buffer: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number of the step block, the first 256 bytes of the io region."""

    name: str
    offset: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Bytes of a blob that must be in a buffer of the work region whenever the program runs."""

    buffer: int
    blob: str
    offset: int


_TAGS: Final = {cls: tag for tag, cls in INSTRUCTIONS.items()}
_FIELDS: Final = {cls: tuple(f.name for f in fields(cls)) for cls in INSTRUCTIONS.values()}


@dataclass(frozen=True, slots=True)
class Work:
    """The instructions of a node: from ``first`` to before the next node's ``first``. ``flops`` and ``bytes`` (each
    tensor moved once) are totals of all of them."""

    first: int
    op: str
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. ``names`` are the labels of instructions: node path and source line. ``work`` is only for
    measurement; execution does not read it."""

    buffers: tuple[Buffer, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    scalars: tuple[Scalar, ...]
    constants: tuple[Constant, ...]
    instructions: tuple[Instruction, ...]
    names: tuple[str, ...]
    work: tuple[Work, ...] = ()

    def encode(self) -> bytes:
        """The bytes of the blob. ArtifactError R301 for a value that the schema does not allow."""
        data: dict[str, Any] = {
            "buffers": [[b.region, b.offset, b.dtype, list(b.shape)] for b in self.buffers],
            "inputs": [[p.name, p.kind, p.buffer] for p in self.inputs],
            "outputs": [[p.name, p.kind, p.buffer] for p in self.outputs],
            "scalars": [[s.name, s.offset, s.dtype] for s in self.scalars],
            "constants": [[c.buffer, c.blob, c.offset] for c in self.constants],
            "instructions": [_row(i) for i in self.instructions],
            "names": list(self.names),
        }
        if self.work:
            data["work"] = [[w.first, w.op, w.flops, w.bytes] for w in self.work]
        try:
            blob = canonical.dumps(data)
        except (ValueError, TypeError) as error:
            raise ArtifactError("R301", f"this plan cannot be written: {error}", place="plan") from error
        _checked(data, "plan")
        return blob

    @classmethod
    def decode(cls, blob: bytes | bytearray | memoryview, *, place: str = "plan", offset: int = 0) -> Plan:
        """The plan in a blob that begins at ``offset`` of ``place``. ArtifactError R301 with offset or field, and the
        rule."""
        if len(blob) > plan_schema.MAX_BYTES:
            raise ArtifactError("R301", f"a plan of more than {plan_schema.MAX_BYTES} bytes", place=place)
        data = canonical.loads(blob, place=place, offset=offset, max_values=plan_schema.MAX_VALUES)
        _checked(data, place)
        return cls(
            buffers=tuple(Buffer(r, o, d, tuple(s)) for r, o, d, s in data["buffers"]),
            inputs=tuple(Port(*p) for p in data["inputs"]),
            outputs=tuple(Port(*p) for p in data["outputs"]),
            scalars=tuple(Scalar(*s) for s in data["scalars"]),
            constants=tuple(Constant(*c) for c in data["constants"]),
            instructions=tuple(_instruction(row) for row in data["instructions"]),
            names=tuple(data["names"]),
            work=tuple(Work(*w) for w in data.get("work", ())),
        )


def _row(instruction: Instruction) -> list[object]:
    cls = type(instruction)
    values = (getattr(instruction, name) for name in _FIELDS[cls])
    return [_TAGS[cls], *(v.hex() if isinstance(v, bytes) else _plain(v) for v in values)]


def _plain(value: object) -> object:
    """Tuples as lists and mappings as dicts, recursively, as canonical JSON requires."""
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _pairs(items: list[list[Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple([tuple(pair) for pair in items])


#: Fields with another form in JSON: lists for tuples, hex for bytes.
_READ: Final[Mapping[str, Mapping[str, Callable[[Any], object]]]] = {
    "reference": {"inputs": tuple, "outputs": tuple},
    "kernel": {"grid": tuple, "block": tuple, "args": _pairs},
    "gemm": {"algorithm": bytes.fromhex},
    "graph": {"inputs": tuple, "outputs": tuple, "knobs": _pairs},
    "loop": {"strides": _pairs},
    "fill": {"pattern": bytes.fromhex},
}
#: By tag: the class, and the places in a row of the fields with another form.
_MAKERS: Final = {
    tag: (cls, tuple((1 + _FIELDS[cls].index(name), turn) for name, turn in _READ.get(tag, {}).items()))
    for tag, cls in INSTRUCTIONS.items()
}


def _instruction(row: list[Any]) -> Instruction:
    """The instruction of a row, which is changed."""
    cls, turns = _MAKERS[row[0]]
    for place, turn in turns:
        row[place] = turn(row[place])
    made: Instruction = cls(*row[1:])
    return made


def _checked(data: object, place: str) -> None:
    try:
        plan_schema.check(data)
    except Mismatch as mismatch:
        raise ArtifactError(
            "R301", mismatch.rule, place=f"{place}: {mismatch.path}", help="build the artifact again"
        ) from mismatch


def plans_too_large(plans: Sequence[bytes]) -> str | None:
    """The rule that the plans of one artifact break together, or None. Each value takes two bytes at least."""
    size = sum(map(len, plans))
    if size > plan_schema.MAX_BYTES:
        return f"its plans take {size} bytes together, more than {plan_schema.MAX_BYTES}"
    if size > 2 * plan_schema.MAX_VALUES and sum(map(count_values, plans)) > plan_schema.MAX_VALUES:
        return f"its plans hold more than {plan_schema.MAX_VALUES} values together"
    return None
