"""A Program: one entry of an artifact on its way through the passes. Frozen; decisions start empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dslc.compiler.ir.graph import Graph, Node, Value

ALIGNMENT = 64  # bytes; every buffer of a region starts at a multiple


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value's bytes lie: a region (``state``, ``io``, ``work``) and an offset in it."""

    region: str
    offset: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets of every value, and what they cost. ``lower_bound``: most bytes live at once in ``work`` under the
    schedule; ``planned``: size of ``work``. ``copies``: updates whose new value could not be written in place."""

    places: Mapping[Value, Place]
    io_bytes: int
    work_bytes: int
    lower_bound: int
    copies: tuple[tuple[Value, Value], ...] = ()


@dataclass(frozen=True)
class Program:
    """``graph`` and then the decisions of the planners: None or empty until the pass ran."""

    entry: str
    sizes: Mapping[str, int]
    graph: Graph
    kernels: tuple[Node, ...] = ()
    choices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schedule: tuple[Node, ...] | None = None
    bulks: tuple[tuple[int, int], ...] | None = None
    memory: MemoryPlan | None = None
