"""Split reduction: reduces few long rows with many tasks, in several launches with partial results in scratch memory.

Every element stage that reduces becomes launches over parts of the rows, which store partial results, and one that
combines these to row values. The launch that stores elements comes last. Batch normalisation of f32[64, 32, 56, 56] on
a GPU, 32 rows of 64 * 3136 elements::

    parts     outer (16, 32) inner (4, 3136)   sum(x) -> scratch 0 [16, 32]
    rows      outer (32) inner (16)            sum(scratch 0) -> scratch 1 [32]
    parts     outer (16, 32) inner (4, 3136)   sum((x - centre)^2) -> scratch 2; centre is computed from scratch 1
    rows      outer (32) inner (16)            sum(scratch 2) -> scratch 3; what belongs to rows is stored
    elements  outer (32) inner (64, 3136)      y, from x, scratch 1 and 3

Targets choose the ``Cut``. The number of parts depends only on sizes, and so does the order of every sum. A remainder
that does not divide evenly becomes an extra, smaller part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.cut import Chooser, Cut, Frame, part_frames
from dslc.compiler.codegen.region.ir import Access, Bits, Let, Region, SetFlag, Stage, Store, dense
from dslc.compiler.codegen.region.queries import dtypes_of, read_by, substituted, used_values
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.scalar import Expr, as_expr
from dslc.compiler.ir.types import DType


def split_rows(launches: Sequence[Launch], choose: Chooser, conflicts: Iterable[tuple[Value, Value]]) -> list[Launch]:
    """The launches, with several in place of a region for which ``choose`` gives a cut.

    ``conflicts``: pairs of an input and an output that may share memory.
    """
    pairs, found = set(conflicts), list[Launch]()
    free = max((block.number + 1 for launch in launches for block in launch.scratch), default=0)
    for launch in launches:
        chosen = choose(launch.spec) if _can_split(launch.spec, may_write=not pairs) else None
        made = [launch]
        if chosen is not None:
            region, cut = chosen
            splitter = _Splitter(launch.with_spec(region), cut, pairs, free)
            made, free = splitter.launches(), splitter.free
        found += made
    return found


def _can_split(region: object, may_write: bool) -> bool:
    """Whether it is a region that reduces, without scans and gathers. Unless ``may_write``, no reducing stage may write
    elements, which could overwrite values read later."""
    return isinstance(region, Region) and bool(region.inner) and not region.indices and any(
        stage.reduces for stage in region.stages
    ) and all(
        all(isinstance(let, Let | Bits) for let in stage.lets)
        and (may_write or not (stage.element and stage.reduces and (stage.stores or stage.flags)))
        for stage in region.stages
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Saved:
    """A reduction's result in scratch memory, or its partial results."""

    block: Scratch
    dtype: DType


class _Splitter:
    """Makes the launches of one region. Values have the numbers of the whole region; each launch renumbers its own."""

    def __init__(self, launch: Launch, cut: Cut, conflicts: set[tuple[Value, Value]], free: int) -> None:
        self.launch, self.cut, self.conflicts, self.free = launch, cut, conflicts, free
        self.region: Region = launch.spec
        assert not self._reads_index() or (cut.axis == 0 and not cut.interleaved), (
            "an element's index is split in order"
        )
        self.split = len(self.region.outer)
        self.row_strides = dense(self.region.outer)
        self.dtypes = dtypes_of(self.region)
        self.row_lets: dict[int, Let] = {}  # by value index
        self.numbers: list[list[int]] = []  # of each stage: its values, then its reductions
        self.saved: dict[int, _Saved] = {}  # reductions whose results later launches read
        self.found: list[Launch] = []
        number = self.region.first
        for stage in self.region.stages:
            self.numbers.append(list(range(number, number + len(stage.lets) + len(stage.reduces))))
            if not stage.element:
                self.row_lets.update((n, let) for n, let in zip(self.numbers[-1], stage.lets) if isinstance(let, Let))
            number += len(self.numbers[-1])
        stages = list(enumerate(self.region.stages))
        self.reducing = [i for i, s in stages if s.reduces]
        self.elements = [i for i, s in stages if s.element and not s.reduces]
        self.storing = [i for i, s in stages if not s.element and (s.stores or s.flags)]  # row stages

    def launches(self) -> list[Launch]:
        """For each reducing stage partial results and their combination, then the elements. Row stages store with the
        last combination, or after the elements if they overwrite what these read."""
        late = self._conflict()
        for i in self.reducing:
            partial = self._reduce_parts(i)
            self._combine(i, partial, self.storing if i == self.reducing[-1] and not late else [])
        if self.elements:
            whole = Frame(self.region.outer, self.region.inner, lambda access: access)
            for frame in part_frames(self.region, self.cut) if self.cut.elements else [whole]:
                self._in_frame(frame, self.elements, ())
        if late:
            self._combine(None, (), self.storing)
        return self.found

    def _reduce_parts(self, number: int) -> list[_Saved]:
        """Launches that reduce the parts of the rows in stage ``number``, and where they store the partial results."""
        reduced = [self.dtypes[each.value].computed for each in self.region.stages[number].reduces]
        partial = [self._block(dtype, self.cut.count) for dtype in reduced]
        for frame in part_frames(self.region, self.cut):
            self._in_frame(frame, [number], partial)
        return partial

    def _reads_index(self) -> bool:
        """Whether a stage reads an element's index."""
        return any(self.region.index in used_values(stage) for stage in self.region.stages)

    def _conflict(self) -> bool:
        """Whether an element stage may read an argument that a row stage overwrites."""
        stages, reads = self.region.stages, self.launch.reads
        written = {self.launch.writes[s.output] for i in self.storing for s in stages[i].stores}
        needed = {reads[n] for i in self.elements for n in self._reached(stages[i]) if n < len(reads)}
        return any((old, new) in self.conflicts for old in needed for new in written)

    def _in_frame(self, frame: Frame, numbers: Sequence[int], partial: Sequence[_Saved]) -> None:
        """A launch of element stages, preceded by the row values that they need, which stores partial results."""
        stages = [(self.region.stages[i], self.numbers[i]) for i in numbers]
        counts, own = self.region.index, {n for i in numbers for n in self.numbers[i]}
        seen: dict[int, None] = {}
        row_lets = [self._reach(sorted(used_values(stage) - {*own, counts}), seen) for stage, _ in stages]
        sources = [n for n in seen if n not in self.row_lets]
        targets = [each.output for each in _written(stage for stage, _ in stages)]
        inputs = [frame.place(self._access(n, len(self.region.inner))) for n in sources]
        outputs = [frame.place(self.region.outputs[n]) for n in targets]
        strides = (self.region.rows, *self.row_strides, *[0] * len(frame.inner))
        outputs += [Access(saved.dtype, strides, self.region.rows * frame.first) for saved in partial]
        indices = (0,) if frame.parts > 1 and any(counts in used_values(stage) for stage, _ in stages) else ()
        b = RegionBuilder(frame.outer, frame.inner, inputs, outputs, indices, frame.canonical_strides)
        known = {n: b.input(i) for i, n in enumerate(sources)}
        output = 0
        for (stage, names), lets in zip(stages, row_lets):
            self._rows(b, lets, known)
            b.element()
            if counts in used_values(stage):
                base = b.along(0) * prod(frame.inner) if indices else as_expr(frame.start)
                known[counts] = b.let(b.index + base, DType.I64)
            for n, let in zip(names, stage.lets):
                assert isinstance(let, Let | Bits)
                known[n] = b.add(_renumbered(let, known, frame.place))
            for n, reduce in zip(names[len(stage.lets) :], stage.reduces):
                known[n] = b.reduce(reduce.combine, known[reduce.value])
            output = _write(b, stage, output, known)
        if partial:
            [i] = numbers
            b.row()
            for number, (n, saved) in enumerate(zip(self._reductions(i), partial), output):
                b.store(number, b.let(known[n], saved.dtype))
        writes = (*(self.launch.writes[n] for n in targets), *(saved.block for saved in partial))
        self.found.append(Launch(b.region(), self._reads(sources), writes))

    def _combine(self, number: int | None, partial: Sequence[_Saved], storing: Sequence[int]) -> None:
        """A launch that combines the partial results of stage ``number`` to row values, which it saves if later
        launches need them, and that runs the stores of row stages."""
        stages, inner = self.region.stages, (self.cut.count,) if partial else ()
        reductions = [] if number is None else self._reductions(number)
        later = set[int]() if number is None else self._needed_after(number, storing)
        new = {n: self._block(saved.dtype) for n, saved in zip(reductions, partial) if n in later}
        seen = dict.fromkeys(reductions)
        written = _written(stages[i] for i in storing)
        lets = self._reach([each.value for each in written], seen)
        sources = [n for n in seen if n not in self.row_lets and n not in reductions]
        targets = [each.output for each in written]
        zeros = (0,) * len(inner)

        def of_row(access: Access) -> Access:
            return replace(access, strides=access.strides[: self.split] + zeros)

        inputs = [Access(saved.dtype, (*self.row_strides, self.region.rows)) for saved in partial]
        inputs += [of_row(self._access(n, len(zeros))) for n in sources]
        outputs = [Access(saved.dtype, self.row_strides + zeros) for saved in new.values()]
        outputs += [of_row(self.region.outputs[n]) for n in targets]
        b = RegionBuilder(self.region.outer, inner, inputs, outputs)
        known = {n: b.input(i) for i, n in enumerate(sources, len(partial))}
        if number is not None:
            b.element()
            values = [b.let(b.input(i), saved.dtype) for i, saved in enumerate(partial)]
            for n, reduce, value in zip(reductions, stages[number].reduces, values):
                known[n] = b.reduce(reduce.combine, value)
        b.row()
        for output, (n, saved) in enumerate(new.items()):
            b.store(output, b.let(known[n], saved.dtype))
        for n in lets:
            known[n] = b.add(_renumbered(self.row_lets[n], known))
        output = len(new)
        for i in storing:
            output = _write(b, stages[i], output, known)
        reads = (*(saved.block for saved in partial), *self._reads(sources))
        writes = (*(saved.block for saved in new.values()), *(self.launch.writes[n] for n in targets))
        self.found.append(Launch(b.region(), reads, writes))
        self.saved |= new

    def _needed_after(self, number: int, storing: Sequence[int]) -> set[int]:
        """The values that launches after the one of stage ``number`` need: those of later element stages, and of row
        stages that store later than ``storing``."""
        waiting = {i for i in self.storing if i not in storing}
        return {
            n
            for i, stage in enumerate(self.region.stages)
            if (stage.element and i > number) or i in waiting
            for n in self._reached(stage)
        }

    def _rows(self, b: RegionBuilder, lets: Sequence[int], known: dict[int, Expr]) -> None:
        """A row stage that computes these values again."""
        if lets:
            b.row()
        for n in lets:
            known[n] = b.add(_renumbered(self.row_lets[n], known))

    def _reductions(self, number: int) -> list[int]:
        """The values of a stage's reductions."""
        return self.numbers[number][len(self.region.stages[number].lets) :]

    def _access(self, number: int, inner: int) -> Access:
        """The access, over the outer and ``inner`` inner axes, to an input or a saved result."""
        if number < len(self.region.inputs):
            return self.region.inputs[number]
        return Access(self.saved[number].dtype, self.row_strides + (0,) * inner)

    def _reads(self, sources: Iterable[int]) -> tuple[Value | Scratch, ...]:
        count = len(self.region.inputs)
        return tuple(self.launch.reads[n] if n < count else self.saved[n].block for n in sources)

    def _block(self, dtype: DType, parts: int = 1) -> _Saved:
        self.free += 1
        return _Saved(Scratch(self.free - 1, self.region.rows * parts * dtype.itemsize), dtype)

    def _reached(self, stage: Stage) -> dict[int, None]:
        """All values that a stage needs, directly or through row values."""
        found: dict[int, None] = {}
        self._reach(used_values(stage), found)
        return found

    def _reach(self, values: Iterable[int], seen: dict[int, None]) -> list[int]:
        """Adds the values to ``seen``; before a value of a row stage, those that it is computed from. Returns the added
        values of row stages, in order."""
        added: list[int] = []
        for n in values:
            if n in seen:
                continue
            if n in self.row_lets:
                added += [*self._reach(sorted(read_by(self.row_lets[n].expr)), seen), n]
            seen[n] = None
        return added


def _written(stages: Iterable[Stage]) -> list[Store | SetFlag]:
    """The outputs of the stages, in order."""
    found: list[Store | SetFlag] = []
    for stage in stages:
        found += stage.stores
        found += stage.flags
    return found


def _write(b: RegionBuilder, stage: Stage, first: int, known: Mapping[int, Expr]) -> int:
    """Emits the stores and flags of a stage to the outputs from number ``first`` on; returns the number after them."""
    written = _written([stage])
    for output, each in enumerate(written, first):
        write = b.store if isinstance(each, Store) else b.set_flag
        write(output, known[each.value])
    return first + len(written)


def _renumbered(
    let: Let | Bits, known: Mapping[int, Expr], place: Callable[[Access], Access] = lambda access: access
) -> Let | Bits:
    """The value in a new region, where ``known`` are those of the old one."""
    if isinstance(let, Let):
        return replace(let, expr=substituted(let.expr, known.__getitem__))
    seed, step, row = (known[n].index for n in (let.seed, let.step, let.row))
    return replace(let, seed=seed, step=step, row=row, place=place(let.place))
