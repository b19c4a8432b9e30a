"""Builds a region, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dslc.compiler.codegen.region.collapse import collapsed
from dslc.compiler.codegen.region.ir import (
    Access,
    Bits,
    Combine,
    Fetch,
    Let,
    Reduce,
    Region,
    Scan,
    SetFlag,
    Stage,
    Store,
)
from dslc.compiler.ir.scalar import Expr, argument, as_expr
from dslc.compiler.ir.types import DType


class RegionBuilder:
    """Builds a region; values are Exprs that name them."""

    def __init__(
        self,
        outer: Sequence[int],
        inner: Sequence[int],
        inputs: Sequence[Access],
        outputs: Sequence[Access],
        indices: Sequence[int] = (),
        canonical_strides: Sequence[int] = (),
    ) -> None:
        named = tuple(axis for axis in indices if (*outer, *inner)[axis] != 1)
        accesses = tuple(inputs), tuple(outputs)
        self._region = Region(tuple(outer), tuple(inner), *accesses, (), named, tuple(canonical_strides))
        self._stages: list[Stage] = []
        self._count = self._region.first
        self._open: bool | None = None
        self._lets: list[Let | Fetch | Scan | Bits] = []
        self._reduces: list[Reduce] = []
        self._stores: list[Store] = []
        self._flags: list[SetFlag] = []

    @property
    def index(self) -> Expr:
        """The value INNER."""
        return argument(self._region.index)

    def along(self, axis: int) -> Expr:
        """The index along one of the axes ``indices``; 0 if the axis has one element."""
        indices = self._region.indices
        return argument(self._region.index + 1 + indices.index(axis)) if axis in indices else as_expr(0)

    def step(self, axis: int) -> Expr:
        """The same along an inner axis."""
        return self.along(len(self._region.outer) + axis)

    def input(self, number: int) -> Expr:
        return argument(number)

    def element(self) -> None:
        """Begins an element stage."""
        self._begin(True)

    def row(self) -> None:
        """Begins a row stage."""
        self._begin(False)

    def let(self, expr: Expr, dtype: DType) -> Expr:
        return self.add(Let(expr, dtype))

    def fetch(self, number: int, index: Expr, mask: Expr | None = None) -> Expr:
        """An element of input ``number`` at a computed index."""
        assert index.function == "arg" and (mask is None or mask.function == "arg")
        return self.add(Fetch(number, index.index, None if mask is None else mask.index))

    def scan(self, combine: Combine, value: Expr, exclusive: bool = False) -> Expr:
        """The running combination of an element's value."""
        assert self._open and value.function == "arg"
        return self.add(Scan(combine, value.index, exclusive))

    def bits(self, key: int, row_elements: int, seed: Expr, step: Expr, row: Expr, strides: Sequence[int]) -> Expr:
        """16 random bits of an element, whose index has these strides over outer, then inner axes."""
        place = Access(DType.I64, tuple(strides))
        return self.add(Bits(key, row_elements, seed.index, step.index, row.index, place))

    def add(self, let: Let | Fetch | Scan | Bits) -> Expr:
        """The value that ``let`` describes."""
        assert self._open is not None and not self._reduces, "values must precede the stage's reductions"
        self._lets.append(let)
        return self._next()

    def reduce(self, combine: Combine, value: Expr) -> Expr:
        """Reduces a value of the elements to a value of the row, for later stages."""
        assert self._open and value.function == "arg"
        self._reduces.append(Reduce(combine, value.index))
        return self._next()

    def store(self, output: int, value: Expr) -> None:
        assert value.function == "arg"
        self._stores.append(Store(output, value.index))

    def set_flag(self, output: int, value: Expr) -> None:
        assert value.function == "arg"
        self._flags.append(SetFlag(output, value.index))

    def region(self) -> Region:
        """The region, with axes merged if possible."""
        self._begin(None)
        return collapsed(replace(self._region, stages=tuple(self._stages)))

    def _next(self) -> Expr:
        self._count += 1
        return argument(self._count - 1)

    def _begin(self, element: bool | None) -> None:
        if self._open is not None:
            lets, reduces = tuple(self._lets), tuple(self._reduces)
            self._stages.append(Stage(self._open, lets, reduces, tuple(self._stores), tuple(self._flags)))
        self._open, self._lets, self._reduces, self._stores, self._flags = element, [], [], [], []
