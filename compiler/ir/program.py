"""A Program: one entry of an artifact during the passes. Frozen; the fields for decisions start empty."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.types import TensorType

ALIGNMENT: Final = 64  # bytes; every buffer of a region starts at a multiple

Region: TypeAlias = Literal["state", "context", "prepared", "io", "work"]
#: The entries whose tensors that last from step to step (``state``) lie in the state region; those of other entries lie
#: in a context.
TRAINING: Final = ("accumulate_step", "train_step")


def titled(entry: str, turn: str) -> str:
    """An entry as users name it: ``train_step``, or ``train_step.NAME`` for the turn of a later update."""
    return f"{entry}.{turn}" if turn else entry


def untitled(title: str) -> tuple[str, str]:
    """The entry and the turn of ``titled``."""
    entry, _, turn = title.partition(".")
    return entry, turn


def aligned(size: int) -> int:
    """A size in bytes, rounded up to the alignment of buffers."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a value: a region (``state``, ``context``, ``prepared``, ``io``, ``work``) and an offset in it."""

    region: Region
    offset: int


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of a tensor's bytes after the last node: of a result to its own buffer, or of an update to its state."""

    type: TensorType
    source: Place
    target: Place
    name: str


@dataclass(frozen=True)
class MemoryPlan:
    """The address of every value, and the memory that the plan needs.

    ``results``: the addresses of the graph's outputs at the end. ``moves`` run in order after the last node, for values
    that could not be computed at their final address. ``lower_bound``: peak of live ``work`` bytes under the schedule;
    ``work_bytes``: the planned bytes. ``carried``: the tensors of the context region, which last from call to call:
    name, type and offset. ``scratch``: the addresses of the scratch blocks of a node's kernels. ``prepared_bytes``: the
    size of the region of what ``prepare`` computes from the weights.
    """

    places: Mapping[Value, Place]
    results: Mapping[str, Place]
    moves: tuple[Move, ...]
    io_bytes: int
    work_bytes: int
    lower_bound: int
    scratch: Mapping[Node, tuple[Place, ...]] = field(default_factory=lambda: MappingProxyType({}))
    carried: tuple[tuple[str, TensorType, int], ...] = ()
    prepared_bytes: int = 0

    @property
    def context_bytes(self) -> int:
        """The size of the context region."""
        return max((offset + aligned(type.bytes) for _, type, offset in self.carried), default=0)


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of the mirror pass: the number of recomputing nodes, and the peak of live bytes and the modelled
    seconds of the fused and scheduled program before and after it."""

    nodes: int
    bytes_before: int
    bytes_after: int
    seconds_before: float
    seconds_after: float

    @property
    def share(self) -> float:
        """The increase of the step's modelled time by recomputation, as a fraction."""
        return self.seconds_after / self.seconds_before - 1

    def as_json(self) -> dict[str, int | float]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Program:
    """``graph``, then the decisions of the planners: None or empty until their pass ran.

    ``target``: ``cpu`` or an architecture such as ``sm_90``. ``kernels``: the nodes that run as kernels, each with its
    launches (``codegen/launch.py``). ``scratch``: bytes of each scratch block of a node's kernels. ``vendor``:
    contractions on a GPU call the vendor's libraries, if these support them. ``mirrored``: the result of recomputation;
    None if nothing is recomputed. ``streams``: the GPU stream of a node, if it is not 0; the nodes of a stream follow
    each other in the order of the schedule. ``waits``: nodes of other streams that must have ended before a node
    begins. Stream 0 waits for all others before the moves. ``loops``: the planned program of each loop's body. Its io
    region stands for what the loop reads and writes outside, its state for the carries, and its work for the scratch
    memory of the loop's node. ``prepared``: of ``predict``, the graph that computes what it reads prepared.
    ``turn``: the update that this program is for, if the updates of a step have programs of their own; empty for the
    first one.
    """

    entry: str
    sizes: Mapping[str, int]
    graph: Graph
    kernels: Mapping[Node, Sequence[Any]] = field(default_factory=lambda: MappingProxyType({}))
    scratch: Mapping[Node, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    schedule: tuple[Node, ...] | None = None
    streams: Mapping[Node, int] = field(default_factory=lambda: MappingProxyType({}))
    waits: Mapping[Node, tuple[Node, ...]] = field(default_factory=lambda: MappingProxyType({}))
    memory: MemoryPlan | None = None
    target: str = "cpu"
    vendor: bool = False
    mirrored: Mirrored | None = None
    loops: Mapping[Node, Program] = field(default_factory=lambda: MappingProxyType({}))
    prepared: Graph | None = None
    turn: str = ""

    @property
    def title(self) -> str:
        """The entry as users name it."""
        return titled(self.entry, self.turn)

    @property
    def all_kernels(self) -> dict[Node, Sequence[Any]]:
        """``kernels`` with those of the bodies of loops."""
        found = dict(self.kernels)
        for body in self.loops.values():
            found |= body.all_kernels
        return found

    @property
    def computing(self) -> list[Node]:
        """The nodes that do work, after ``select``: neither views nor loops, and those of the bodies of loops, too."""
        found: list[Node] = []
        for node in self.graph.nodes:
            if node in self.loops:
                found += self.loops[node].computing
            elif not node.op.view:
                found.append(node)
        return found
