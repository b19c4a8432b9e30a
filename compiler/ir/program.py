"""A Program: one entry of an artifact on its way through the passes. Frozen; decisions start empty."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.types import TensorType

ALIGNMENT: Final = 64  # bytes; every buffer of a region starts at a multiple
STEP_BLOCK: Final = 256  # bytes at the head of the io region, where the scalars lie

Region: TypeAlias = Literal["state", "io", "work"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value's bytes lie: a region (``state``, ``io``, ``work``) and an offset in it."""

    region: Region
    offset: int


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of a tensor's bytes after the last node: a result into its own bytes, or an update onto its state."""

    type: TensorType
    source: Place
    target: Place
    name: str


@dataclass(frozen=True)
class MemoryPlan:
    """Where every value lies, and what that costs.

    ``results``: where the graph's outputs are read when all is done. ``moves`` run in order after the last node, for
    what could not be computed in its place. ``lower_bound``: most bytes of ``work`` live at once under the schedule;
    ``work_bytes`` is what was planned. ``scratch``: where the scratch blocks of a node's kernels lie.
    """

    places: Mapping[Value, Place]
    results: Mapping[str, Place]
    moves: tuple[Move, ...]
    io_bytes: int
    work_bytes: int
    lower_bound: int
    scratch: Mapping[Node, tuple[Place, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What the mirror pass came to: the nodes that compute something again, and of the program before and after it,
    fused and scheduled, the most bytes alive at once and the modelled seconds."""

    nodes: int
    bytes_before: int
    bytes_after: int
    seconds_before: float
    seconds_after: float

    @property
    def share(self) -> float:
        """The part of the step's modelled time that computing again adds."""
        return self.seconds_after / self.seconds_before - 1

    def as_json(self) -> dict[str, int | float]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Program:
    """``graph`` and then the decisions of the planners: None or empty until the pass ran.

    ``target``: what it is built for, ``cpu`` or an architecture as ``sm_90``. ``kernels``: the nodes that run as
    kernels, each with its launches (``codegen/launch.py``). ``scratch``: bytes of each block that a node's kernels want
    for themselves while they run. ``vendor``: contractions on a GPU are calls of its maker's libraries, where these
    have them. ``mirrored``: what is computed again rather than kept; None where nothing is. ``streams``: on which
    stream of a GPU a node runs, where that is not 0; the nodes of a stream follow each other in the order of the
    schedule. ``waits``: nodes of other streams that have ended before a node begins. Stream 0 waits for all others
    before the moves.
    """

    entry: str
    sizes: Mapping[str, int]
    graph: Graph
    kernels: Mapping[Node, Sequence[Any]] = field(default_factory=lambda: MappingProxyType({}))
    scratch: Mapping[Node, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schedule: tuple[Node, ...] | None = None
    streams: Mapping[Node, int] = field(default_factory=lambda: MappingProxyType({}))
    waits: Mapping[Node, tuple[Node, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bulks: tuple[tuple[int, int], ...] | None = None
    memory: MemoryPlan | None = None
    target: str = "cpu"
    vendor: bool = False
    mirrored: Mirrored | None = None
