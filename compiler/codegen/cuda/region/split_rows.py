"""Split reduction: reduces few long rows with many blocks, in several launches with partial results in scratch memory.

Every element stage that reduces becomes two launches: parts of the rows to partial results, and these to row values.
The launch that stores elements comes last. Batch normalisation of f32[64, 32, 56, 56], 32 rows of 64 * 3136 elements::

    parts     outer (16, 32) inner (4, 3136)   sum(x) -> scratch 0 [16, 32]
    rows      outer (32) inner (16)            sum(scratch 0) -> scratch 1 [32]
    parts     outer (16, 32) inner (4, 3136)   sum((x - centre)^2) -> scratch 2; centre is computed from scratch 1
    rows      outer (32) inner (16)            sum(scratch 2) -> scratch 3; what belongs to rows is stored
    elements  outer (32) inner (64, 3136)      y, from x, scratch 1 and 3

The number of parts depends only on sizes, and so does the order of every sum. A remainder that does not divide evenly
becomes an extra, smaller part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from dslc.compiler.codegen.cuda.region.registers import dtypes_of, register_dtype
from dslc.compiler.codegen.cuda.region.split_choice import Cut, best_cut, can_split
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import (
    Access,
    Bits,
    Combine,
    Let,
    MixedRadix,
    Reduce,
    Region,
    SetFlag,
    Stage,
    Store,
    collapsed,
    dense,
)
from dslc.compiler.codegen.region.queries import read_by, substituted, used_values
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.scalar import Expr, argument
from dslc.compiler.ir.types import DType

_Place: TypeAlias = Callable[[Access], Access]
_Moved = TypeVar("_Moved", Access, MixedRadix)


def split(launch: Launch, conflicts: Iterable[tuple[Value, Value]], scratch: int) -> list[Launch]:
    """The launches that replace one of a region; the launch itself if splitting does not pay.

    ``conflicts``: pairs of an input and an output that may share memory. ``scratch``: index of the first free scratch
    block.
    """
    region = launch.spec
    pairs = set(conflicts)
    cut = best_cut(region) if can_split(region, may_write=not pairs) else None
    if cut is None:
        return [launch]
    return _Splitter(launch, cut, pairs, scratch).launches()


def _renumbered(let: Any, value: Callable[[int], Expr]) -> Let | Bits:
    """A value with ``value(n)`` in place of every value n that it reads."""
    if isinstance(let, Bits):
        seed, step, row = (value(n).index for n in (let.seed, let.step, let.row))
        return replace(let, seed=seed, step=step, row=row)
    assert isinstance(let, Let)
    return replace(let, expr=substituted(let.expr, value))


class _New:
    """A region under construction, which collects its arguments while it is built.

    Until it is finished, inputs are numbered -1, -2, ... and computed values 0, 1, ...
    """

    def __init__(self, outer: Sequence[int], inner: Sequence[int], canonical_strides: Sequence[int] = ()) -> None:
        self.outer, self.inner, self.canonical_strides = tuple(outer), tuple(inner), tuple(canonical_strides)
        self.reads: list[tuple[Value | Scratch, Access]] = []
        self.writes: list[tuple[Value | Scratch, Access]] = []
        self.stages: list[Stage] = []
        self.count = 0

    def begin(self, element: bool) -> None:
        self.stages.append(Stage(element))

    def read(self, source: Value | Scratch, access: Access) -> Expr:
        self.reads.append((source, access))
        return argument(-len(self.reads))

    def let(self, expr: Expr, dtype: DType) -> Expr:
        return self._add(lets=(*self.stages[-1].lets, Let(expr, dtype)))

    def bits(self, bits: Bits) -> Expr:
        return self._add(lets=(*self.stages[-1].lets, bits))

    def reduce(self, combine: Combine, value: Expr) -> Expr:
        return self._add(reduces=(*self.stages[-1].reduces, Reduce(combine, value.index)))

    def store(self, target: Value | Scratch, access: Access, value: Expr, flag: bool = False) -> None:
        stage, output = self.stages[-1], len(self.writes)
        self.writes.append((target, access))
        if flag:
            self.stages[-1] = replace(stage, flags=(*stage.flags, SetFlag(output, value.index)))
        else:
            self.stages[-1] = replace(stage, stores=(*stage.stores, Store(output, value.index)))

    def launch(self) -> Launch:
        inputs, outputs = (tuple(access for _, access in x) for x in (self.reads, self.writes))
        stages = tuple(self._numbered(stage) for stage in self.stages if stage != Stage(stage.element))
        region = collapsed(Region(self.outer, self.inner, inputs, outputs, stages, (), self.canonical_strides))
        return Launch(region, tuple(v for v, _ in self.reads), tuple(v for v, _ in self.writes))

    def _add(self, **parts: Any) -> Expr:
        self.stages[-1] = replace(self.stages[-1], **parts)
        self.count += 1
        return argument(self.count - 1)

    def _number(self, number: int) -> int:
        return -1 - number if number < 0 else len(self.reads) + 1 + number

    def _numbered(self, stage: Stage) -> Stage:
        return Stage(
            stage.element,
            tuple(_renumbered(x, lambda n: argument(self._number(n))) for x in stage.lets),
            tuple(replace(r, value=self._number(r.value)) for r in stage.reduces),
            tuple(replace(x, value=self._number(x.value)) for x in stage.stores),
            tuple(replace(x, value=self._number(x.value)) for x in stage.flags),
        )


class _Splitter:
    def __init__(self, launch: Launch, cut: Cut, conflicts: set[tuple[Value, Value]], scratch: int) -> None:
        self.launch, self.cut, self.conflicts, self.next = launch, cut, conflicts, scratch
        self.region: Region = launch.spec
        self.split = len(self.region.outer)
        self.row_strides = dense(self.region.outer)
        self.dtypes = dtypes_of(self.region)
        self.row_lets: dict[int, Let] = {}  # by value index
        self.numbers: list[list[int]] = []  # of each stage: its values, then its reductions
        self.owned: list[int] = []  # row stages that store
        self.rows: dict[int, tuple[Scratch, DType]] = {}  # a reduction's result in scratch
        number = self.region.first
        for stage in self.region.stages:
            self.numbers.append(list(range(number, number + len(stage.lets) + len(stage.reduces))))
            if not stage.element:
                self.row_lets.update(zip(self.numbers[-1], stage.lets))
            number += len(self.numbers[-1])

    def launches(self) -> list[Launch]:
        found: list[Launch] = []
        stages = list(enumerate(self.region.stages))
        reducing = [i for i, s in stages if s.reduces]
        elements = [i for i, s in stages if s.element and not s.reduces]
        self.owned = owned = [i for i, s in stages if not s.element and (s.stores or s.flags)]
        late = self._conflict(elements, owned)
        for i in reducing:
            partial = self._partial(i, found)
            found.append(self._combined(i, partial, owned if i == reducing[-1] and not late else []))
        if elements:
            found.append(self._elements(elements))
        if late:
            found.append(self._stored(owned))
        return found

    def _conflict(self, elements: Sequence[int], owned: Sequence[int]) -> bool:
        """Whether an element stage may read an argument that a row stage overwrites."""
        stages = self.region.stages
        written = {self.launch.writes[s.output] for i in owned for s in stages[i].stores}
        needed = {
            self.launch.reads[n] for i in elements for n in self._reached(stages[i]) if n < len(self.launch.reads)
        }
        return any((old, new) in self.conflicts for old in needed for new in written)

    def _partial(self, number: int, found: list[Launch]) -> list[tuple[Scratch, DType]]:
        """Appends the launches that reduce the parts; returns the partial results [parts, rows] of each reduction."""
        stage, cut, region = self.region.stages[number], self.cut, self.region
        partial = [self._scratch(region.rows * cut.count, register_dtype(self.dtypes[r.value])) for r in stage.reduces]
        spans = [(cut.parts, cut.size, 0)] + ([(1, cut.rest, cut.parts)] if cut.rest else [])
        for parts, size, first in spans:
            piece = cut.piece if parts > 1 else size
            inner = [*region.inner[: cut.axis], size // piece, piece, *region.inner[cut.axis + 1 :]]

            def within(strides: tuple[int, ...], parts: int = parts, piece: int = piece) -> tuple[int, ...]:
                at = self.split + cut.axis
                before, stride, after = strides[:at], strides[at], strides[at + 1 :]
                own = (stride * piece * parts, stride) if cut.interleaved else (stride * piece, stride)
                return (stride * (piece if cut.interleaved else cut.size), *before, *own, *after)

            def part(
                access: Access, first: int = first, within: Callable[[tuple[int, ...]], tuple[int, ...]] = within
            ) -> Access:
                def moved(argument: _Moved) -> _Moved:
                    start = argument.strides[self.split + cut.axis] * cut.size * first
                    return replace(argument, strides=within(argument.strides), offset=argument.offset + start)

                return replace(moved(access), mixed_radix=tuple(moved(u) for u in access.mixed_radix))

            canonical = within(region.canonical_strides) if region.canonical_strides else ()
            new = _New((parts, *region.outer), inner, canonical)

            known: dict[int, Expr] = {}
            self._element_stage(new, number, known, part)
            new.begin(False)
            strides = (region.rows, *self.row_strides, *[0] * len(inner))
            for n, (scratch, dtype) in zip(self.numbers[number][len(stage.lets) :], partial):
                new.store(scratch, Access(dtype, strides, region.rows * first), new.let(known[n], dtype))
            found.append(new.launch())
        return partial

    def _combined(self, number: int, partial: list[tuple[Scratch, DType]], owned: Sequence[int]) -> Launch:
        """Combines partial results to row values; the last such launch also runs the stores of row stages."""
        stage, new = self.region.stages[number], _New(self.region.outer, (self.cut.count,))
        reductions = self.numbers[number][len(stage.lets) :]
        strides = (*self.row_strides, self.region.rows)
        known: dict[int, Expr] = {}
        row = self._row_access(1)
        new.begin(True)
        values = [new.let(new.read(scratch, Access(dtype, strides)), dtype) for scratch, dtype in partial]
        for n, reduce, value in zip(reductions, stage.reduces, values):
            known[n] = new.reduce(reduce.combine, value)
        new.begin(False)
        waiting = set(self.owned) - set(owned)  # row stages whose stores come later
        later = {
            n
            for i, s in enumerate(self.region.stages)
            if i > number and (s.element or i in waiting)
            for n in self._reached(s)
        }
        for n, (_, dtype) in zip(reductions, partial):
            if n in later:
                self.rows[n] = self._scratch(self.region.rows, dtype)
                new.store(self.rows[n][0], Access(dtype, (*self.row_strides, 0)), new.let(known[n], dtype))
        self._owned(new, owned, known, row)
        return new.launch()

    def _elements(self, stages: Sequence[int]) -> Launch:
        """The launch that stores elements."""
        new, known = _New(self.region.outer, self.region.inner), dict[int, Expr]()
        for i in stages:
            self._element_stage(new, i, known, lambda access: access)
        return new.launch()

    def _stored(self, stages: Sequence[int]) -> Launch:
        """A separate launch for the stores of row stages."""
        new = _New(self.region.outer, ())
        new.begin(False)
        self._owned(new, stages, {}, self._row_access(0))
        return new.launch()

    def _owned(self, new: _New, stages: Sequence[int], known: dict[int, Expr], place: _Place) -> None:
        """Emits the stores of row stages; expects an open row stage."""
        for i in stages:
            stage = self.region.stages[i]
            for flag, written in ((False, stage.stores), (True, stage.flags)):
                for x in written:
                    value = self._value(new, x.value, known, place)
                    new.store(self.launch.writes[x.output], place(self.region.outputs[x.output]), value, flag)

    def _element_stage(self, new: _New, number: int, known: dict[int, Expr], place: _Place) -> None:
        """An element stage, preceded by the row values that it needs."""
        stage, numbers = self.region.stages[number], self.numbers[number]
        new.begin(False)
        for value in sorted(used_values(stage) - set(numbers)):
            self._value(new, value, known, place)
        new.begin(True)
        for n, let in zip(numbers, stage.lets):
            let = _renumbered(let, known.__getitem__)
            if isinstance(let, Bits):
                known[n] = new.bits(replace(let, place=place(let.place)))
            else:
                known[n] = new.let(let.expr, let.dtype)
        for n, reduce in zip(numbers[len(stage.lets) :], stage.reduces):
            known[n] = new.reduce(reduce.combine, known[reduce.value])
        for flag, written in ((False, stage.stores), (True, stage.flags)):
            for x in written:
                access = place(self.region.outputs[x.output])
                new.store(self.launch.writes[x.output], access, known[x.value], flag)

    def _value(self, new: _New, number: int, known: dict[int, Expr], place: _Place) -> Expr:
        """A value in the new region: an input, a reduction's result, or a recomputed value of a row stage."""
        if number not in known:
            if number < len(self.region.inputs):
                found = new.read(self.launch.reads[number], place(self.region.inputs[number]))
            elif number in self.rows:
                scratch, dtype = self.rows[number]
                found = new.read(scratch, place(Access(dtype, (*self.row_strides, *[0] * len(self.region.inner)))))
            else:
                let = self.row_lets[number]
                for n in sorted(read_by(let.expr)):
                    self._value(new, n, known, place)
                found = new.let(substituted(let.expr, known.__getitem__), let.dtype)
            known[number] = found
        return known[number]

    def _row_access(self, axes: int) -> _Place:
        """Accesses to row arguments in a region with ``axes`` other inner axes."""
        return lambda access: replace(access, strides=access.strides[: self.split] + (0,) * axes)

    def _scratch(self, elements: int, dtype: DType) -> tuple[Scratch, DType]:
        self.next += 1
        return Scratch(self.next - 1, elements * dtype.itemsize), dtype

    def _reached(self, stage: Stage) -> set[int]:
        """The indices of all values that a stage needs, directly or through row values."""
        found: set[int] = set()
        stack = list(used_values(stage))
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                if number in self.row_lets:
                    stack += read_by(self.row_lets[number].expr)
        return found
