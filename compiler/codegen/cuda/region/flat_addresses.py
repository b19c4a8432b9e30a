"""Addresses of the elements that a thread of a ``Flat`` kernel computes: indices along axes, and places in arguments.

A thread has several vectors of neighbours. An argument that is contiguous along them is loaded by vectors, too; of
others, each element or each vector has an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dslc.compiler.codegen.cuda.region.writer import Divisor, Index, SourceWriter, power_of_two
from dslc.compiler.codegen.region.ir import Access, dense


@dataclass(frozen=True, slots=True)
class Vectors:
    """``count`` vectors of ``width`` neighbours. ``start``: the first element of the first vector. ``starts``: those of
    all vectors, as lanes. ``mask``: which vectors exist, None if all do. ``line``: if the block has a piece of one
    line, this line's number; ``start`` and ``starts`` are then indices in the line."""

    width: int
    count: int
    start: Index
    starts: Index
    mask: str | None
    line: Index | None


@dataclass(frozen=True, slots=True)
class Address:
    """Of a load or store of ``width`` neighbours at each index of ``starts``."""

    width: int
    starts: str


@dataclass(frozen=True, slots=True)
class RowEnd:
    """``following``: the indices of the next row along the other axes. ``left``: elements from the vector's first one
    to the end. ``before``: which elements of the vector come before it. ``within``: whether any does not."""

    following: list[Index]
    left: Index
    before: str
    within: str


class FlatAddresses:
    """``sizes``: of the flattened axes. ``apart``: the vectors of a thread are in different columns, else in the
    same."""

    def __init__(self, text: SourceWriter, sizes: tuple[int, ...], vectors: Vectors, *, apart: bool) -> None:
        self.text, self.sizes, self.vectors, self.apart = text, sizes, vectors, apart
        self.dense = dense(sizes)
        #: No vector goes from one line to the next, so all its elements share the indices along the other axes.
        self.keeps_lines = vectors.width > 1 and bool(sizes) and sizes[-1] % vectors.width == 0

    @property
    def elements(self) -> Index:
        """The index of each element."""
        return self.text.ramp(self.vectors.starts, self.vectors.width, 1)

    def along(self, axis: int) -> Index:
        """The index of each element along an axis; of each vector, or one for all, if their elements share it."""
        if not self.keeps_lines:
            return self._unraveled(self.elements)[axis]
        if axis == len(self.sizes) - 1:
            return self.text.ramp(self._start_indices[axis], self.vectors.width, 1)
        return self._start_indices[axis]

    def address(self, access: Access, widest: int | None = None) -> Address:
        """The widest loads or stores of the vectors' elements, but at most of ``widest`` neighbours. One index stands
        for elements with one address."""
        text, width = self.text, self.vectors.width
        most = width if widest is None else widest
        if not any(access.strides):
            return Address(1, text.known(self.offset(access)))
        if access.strides == self.dense and access.repeat == 1 and self.vectors.line is None:
            first = text.plus(self.vectors.starts, self.offset(access))
            return self._neighbours(first, min(most, power_of_two(width, access.offset)), stride=1)
        if access.repeat == 1 and (self.keeps_lines or width == 1):
            first, stride = self._moved(self.offset(access), self._start_indices, access), access.strides[-1]
            if stride == 0 or width == 1:
                return Address(1, text.known(first))
            aligned = power_of_two(width, access.offset, *access.strides[:-1]) if stride == 1 else 1
            return self._neighbours(first, min(most, aligned), stride)
        if self._crosses_rows and access.repeat == 1 and access.strides[-1] == 1:
            return Address(1, self._across_rows(access))
        indices = self._unraveled(self.elements)
        if access.repeat > 1:
            indices[-1] = text.divmod(indices[-1], text.divisor("repeat", access.repeat))[0]
        return Address(1, text.known(self._moved(self.offset(access), indices, access)))

    def offset(self, access: Access) -> Index:
        return self.text.number("offset", access.offset) if access.offset else 0

    def mask(self, access: Access, width: int) -> str | None:
        """The vectors' mask for loads or stores of ``width`` neighbours: repeated if a vector has several of them."""
        one_address = not any(access.strides) or (self.keeps_lines and access.strides[-1] == 0)
        addresses = 1 if one_address else self.vectors.width // width
        if self.vectors.mask is None or self.vectors.count == 1 or addresses == 1:
            return self.vectors.mask
        return self.text.set(self.text.call("each", (addresses,), self.vectors.mask))

    @property
    def _crosses_rows(self) -> bool:
        """Whether the vector may begin in one row and end in the next."""
        vectors = self.vectors
        alone = vectors.width > 1 and vectors.count == 1 and vectors.line is None
        return alone and not self.keeps_lines and bool(self.sizes) and self.sizes[-1] >= vectors.width

    def has_row_values(self, access: Access) -> bool:
        """Whether an argument has one value for each row, and the vector may lie in two."""
        plain = access.repeat == 1 and any(access.strides) and access.strides[-1] == 0
        return plain and self._crosses_rows

    def row_values(self, access: Access) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
        """The addresses of the values for the row in which the vector begins and for the next one, with the masks of
        those that the vector needs."""
        start, following = self._of_two_rows(access)
        ends = self.text.both(self.vectors.mask, self.row_end.within)
        return (self.text.known(start), self.vectors.mask), (self.text.known(following), ends)

    def _of_two_rows(self, access: Access) -> tuple[Index, Index]:
        """The address of the vector's first element, and that of the first element of the next row."""
        start = self._moved(self.offset(access), self._start_indices, access)
        return start, self._moved(self.offset(access), [*self.row_end.following, 0], access)

    def _across_rows(self, access: Access) -> str:
        """The addresses of the elements of an argument whose rows are contiguous."""
        text, end, width = self.text, self.row_end, self.vectors.width
        start, following = self._of_two_rows(access)
        places = (start, text.plus(following, text.times(end.left, -1)))
        firsts = (text.set(text.call("each", (width,), text.known(place))) for place in places)
        return text.known(text.plus(text.set(text.call("select", (), end.before, *firsts)), text.ramp(0, width, 1)))

    @cached_property
    def row_end(self) -> RowEnd:
        """The end of the row in which the vector begins."""
        text, sizes = self.text, self._sizes
        last = sizes[-1].size if isinstance(sizes[-1], Divisor) else sizes[-1]
        row, column = text.divmod(self.vectors.start, sizes[-1])
        left = text.plus(text.times(column, -1), last)
        before = text.below(text.ramp(column, self.vectors.width, 1), last)
        within = text.below(left, self.vectors.width)
        return RowEnd(text.unravel(text.plus(row, 1), sizes[:-1]), left, before, within)

    @property
    def _sizes(self) -> list[int | Divisor]:
        return [self.text.divisor(f"size {axis}", size) for axis, size in enumerate(self.sizes)]

    @cached_property
    def _start_indices(self) -> list[Index]:
        """The indices of the first vector's first element; of all vectors' if they are in different columns."""
        return self._unraveled(self.vectors.starts if self.apart else self.vectors.start)

    def _unraveled(self, element: Index) -> list[Index]:
        """The index along each axis."""
        sizes = self._sizes
        if self.vectors.line is None:
            return self.text.unravel(element, sizes)
        return [*self.text.unravel(self.vectors.line, sizes[:-1]), element]

    def _moved(self, offset: Index, indices: list[Index], access: Access) -> Index:
        """The address at these indices."""
        strides: list[Index] = [
            stride if stride in (0, 1) else self.text.number(f"stride {axis}", stride)
            for axis, stride in enumerate(access.strides)
        ]
        return self.text.dot(offset, indices, strides)

    def _neighbours(self, first: Index, width: int, stride: int) -> Address:
        """Each vector in pieces of ``width`` neighbours."""
        starts = self.text.ramp(first, self.vectors.width // width, width * stride)
        return Address(width, self.text.known(starts))
