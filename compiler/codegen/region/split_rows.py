"""Splits reductions of few long rows into several launches, so that all threads have work.

Each element stage becomes a launch over parts of every row, which stores partial results to scratch. The launch after
it combines them and computes the row values that later stages need. A sum of 2^20 elements::

    before: outer () inner (1048576,): element: sum(x) -> total; row: store total
    after:  outer (64,) inner (16384,): element: sum(x) -> part; row: store part to scratch
            outer () inner (64,): element: sum(part) -> total; row: store total

The number of parts follows from the shape alone, and so does the order of every sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Access, Let, Reduce, Region, RegionBuilder, Stage, dense
from dslc.compiler.codegen.region.queries import dtypes_of, substituted, used_values
from dslc.compiler.ir.scalar import Expr, as_expr
from dslc.compiler.ir.types import DType


def can_split(region: Region) -> bool:
    """Whether it has inner axes and reductions, and all its values are plain computations on elements."""
    plain = all(isinstance(let, Let) for stage in region.stages for let in stage.lets)
    return plain and bool(region.inner) and not region.indices and any(s.reduces for s in region.stages)


def split_rows(launch: Launch, parts: int, first: int) -> list[Launch]:
    """The launches for a region that ``can_split``, with at most ``parts`` parts per row. New scratch blocks are
    numbered from ``first``."""
    return _Spreader(launch, parts, first).run()


@dataclass(frozen=True, slots=True)
class _Saved:
    """A row value in scratch: one number per row, or ``slots`` partial ones per row."""

    block: Scratch
    dtype: DType
    slots: int = 1


class _Spreader:
    def __init__(self, launch: Launch, parts: int, first: int) -> None:
        region: Region = launch.spec
        if not any(region.index in used_values(stage) for stage in region.stages):
            region = _widest_first(region)
        self.region, self.next = region, first
        self.reads, self.writes = launch.reads, launch.writes
        size = region.inner[0]
        self.parts = min(parts, size)
        self.each, self.rest = divmod(size, self.parts)
        self.slots = self.parts + (self.rest > 0)
        self.saved: dict[int, _Saved] = {}
        self.partial: list[tuple[int, Reduce, _Saved]] = []
        self.launches: list[Launch] = []

    def run(self) -> list[Launch]:
        number, waiting = self.region.first, []
        stages: list[tuple[int, Stage]] = []
        for stage in self.region.stages:
            stages.append((number, stage))
            number += len(stage.lets) + len(stage.reduces)
        dtypes = dtypes_of(self.region)
        for place, (number, stage) in enumerate(stages):
            if not stage.element:
                waiting.append((number, stage))
                continue
            later = {v for _, s in stages[place:] for v in used_values(s)}
            self._combining_launch(waiting, later, dtypes)
            waiting = []
            self._elements(number, stage, dtypes)
        self._combining_launch(waiting, set(), dtypes)
        return self.launches

    def _elements(self, number: int, stage: Stage, dtypes: Sequence[DType]) -> None:
        """Launches over the parts of every row, and over the remainder."""
        self.partial = []
        for at, reduce in enumerate(stage.reduces):
            saved = self._block(dtypes[reduce.value], self.slots)
            self.partial.append((number + len(stage.lets) + at, reduce, saved))
        self._part_launch(number, stage, (self.parts,), (self.each, *self.region.inner[1:]), 0)
        if self.rest:
            self._part_launch(number, stage, (), (self.rest, *self.region.inner[1:]), self.parts)

    def _part_launch(
        self, number: int, stage: Stage, ahead: tuple[int, ...], inner: tuple[int, ...], slot: int
    ) -> None:
        region, used = self.region, used_values(stage)
        split, start = len(region.outer), slot * self.each
        rows = dense(region.outer)
        zeros = (0,) * len(inner)

        def moved(access: Access) -> Access:
            stride = access.strides[split]
            lead = (stride * self.each,) if ahead else ()
            return replace(access, strides=lead + access.strides, offset=access.offset + stride * start)

        def of_row(saved: _Saved) -> Access:
            lead = (region.rows if saved.slots > 1 else 0,) if ahead else ()
            return Access(saved.dtype, lead + rows + zeros, region.rows * slot if saved.slots > 1 else 0)

        plain = [n for n in range(len(region.inputs)) if n in used]
        values = [v for v in self.saved if v in used]
        stored = sorted({s.output for s in stage.stores} | {r.output for r in stage.flags})
        inputs = [moved(region.inputs[n]) for n in plain] + [of_row(self.saved[v]) for v in values]
        outputs = [moved(region.outputs[n]) for n in stored] + [of_row(saved) for _, _, saved in self.partial]
        indices = (0,) if ahead and region.index in used else ()
        b = RegionBuilder((*ahead, *region.outer), inner, inputs, outputs, indices)
        known = {n: b.input(i) for i, n in enumerate((*plain, *values))}
        b.element()
        if region.index in used:
            size = prod(inner)
            base: Expr = b.along(0) * size if indices else as_expr(start * prod(inner[1:]))
            known[region.index] = b.let(b.index + base, DType.I64)
        self._compute(b, number, stage, known)
        for store in stage.stores:
            b.store(stored.index(store.output), known[store.value])
        for flag in stage.flags:
            b.set_flag(stored.index(flag.output), known[flag.value])
        parts = [b.reduce(reduce.combine, known[reduce.value]) for _, reduce, _ in self.partial]
        if parts:
            b.row()
            for at, part in enumerate(parts, len(stored)):
                b.store(at, part)
        reads = (*(self.reads[n] for n in plain), *(self.saved[v].block for v in values))
        writes = (*(self.writes[n] for n in stored), *(saved.block for _, _, saved in self.partial))
        self.launches.append(Launch(b.region(), reads, writes))

    def _combining_launch(self, stages: Sequence[tuple[int, Stage]], later: set[int], dtypes: Sequence[DType]) -> None:
        """A launch that combines the partial results and runs the row stages; values that later stages read are
        saved."""
        region, split = self.region, len(self.region.outer)
        made = {n for n, _, _ in self.partial} | {n + i for n, s in stages for i in range(len(s.lets))}
        kept = sorted(made & later)
        used = {v for _, s in stages for v in used_values(s)}
        stored = sorted({s.output for _, stage in stages for s in stage.stores})
        if not kept and not stored and not any(stage.flags for _, stage in stages):
            self.partial = []
            return
        inner = (self.slots,) if self.partial else ()
        rows, zero = dense(region.outer), (0,) * len(inner)
        plain = [n for n in range(len(region.inputs)) if n in used]
        values = [v for v in self.saved if v in used]
        flags = sorted({f.output for _, stage in stages for f in stage.flags} - set(stored))
        new = {v: self._block(dtypes[v]) for v in kept}

        def narrowed(access: Access) -> Access:
            return replace(access, strides=access.strides[:split] + zero)

        inputs = [narrowed(region.inputs[n]) for n in plain]
        inputs += [Access(self.saved[v].dtype, rows + zero) for v in values]
        inputs += [Access(saved.dtype, (*rows, region.rows)) for _, _, saved in self.partial]
        outputs = [narrowed(region.outputs[n]) for n in (*stored, *flags)]
        outputs += [Access(saved.dtype, rows + zero) for saved in new.values()]
        b = RegionBuilder(region.outer, inner, inputs, outputs)
        known = {n: b.input(i) for i, n in enumerate((*plain, *values))}
        if self.partial:
            b.element()
            base = len(plain) + len(values)
            for at, (n, reduce, _) in enumerate(self.partial, base):
                known[n] = b.reduce(reduce.combine, b.input(at))
        b.row()
        places = {output: at for at, output in enumerate((*stored, *flags))}
        for number, stage in stages:
            self._compute(b, number, stage, known)
            for store in stage.stores:
                b.store(places[store.output], known[store.value])
            for flag in stage.flags:
                b.set_flag(places[flag.output], known[flag.value])
        for at, v in enumerate(new, len(places)):
            b.store(at, known[v])
        reads = (*(self.reads[n] for n in plain), *(self.saved[v].block for v in values))
        writes = (*(self.writes[n] for n in places), *(saved.block for saved in new.values()))
        parts = tuple(saved.block for _, _, saved in self.partial)
        self.launches.append(Launch(b.region(), (*reads, *parts), writes))
        self.saved |= new
        self.partial = []

    def _compute(self, b: RegionBuilder, number: int, stage: Stage, known: dict[int, Expr]) -> None:
        for at, let in enumerate(stage.lets):
            assert isinstance(let, Let)
            known[number + at] = b.let(substituted(let.expr, known.__getitem__), let.dtype)

    def _block(self, dtype: DType, slots: int = 1) -> _Saved:
        self.next += 1
        return _Saved(Scratch(self.next - 1, max(1, slots * self.region.rows) * dtype.itemsize), dtype, slots)


def _widest_first(region: Region) -> Region:
    """Moves the longest inner axis to the front; valid because no stage reads an element's index."""
    split = len(region.outer)
    widest = max(range(len(region.inner)), key=lambda axis: region.inner[axis])
    order = [widest, *(a for a in range(len(region.inner)) if a != widest)]

    def turned(access: Access) -> Access:
        return replace(access, strides=access.strides[:split] + tuple(access.strides[split + a] for a in order))

    inputs, outputs = (tuple(map(turned, side)) for side in (region.inputs, region.outputs))
    return replace(region, inner=tuple(region.inner[a] for a in order), inputs=inputs, outputs=outputs)
