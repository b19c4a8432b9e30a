"""Addresses of a region's arguments, for a thread that handles several rows and several vectors at once.

A *vector* is a run of elements that one instruction loads. The thread has ``lanes`` rows and, of each chunk of a row, a
number of vectors. Masks say which of them exist, since the last chunk may be partial.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from dslc.compiler.codegen.cuda.region.schedule import needs_wide_index
from dslc.compiler.codegen.cuda.region.values import Reg
from dslc.compiler.codegen.cuda.region.writer import Index, SourceWriter, power_of_two
from dslc.compiler.codegen.region.ir import Access, Fetch, Region, Stage, dense
from dslc.compiler.codegen.region.queries import used_values


class Addresses(ABC):
    """``lanes``: rows per thread. ``outer``: the first row's indices along the outer axes. ``mask``: which vectors of
    the current chunk are in range; None: all."""

    lanes: int
    outer: list[Index]

    def __init__(self, name: str, region: Region, vector: int) -> None:
        self.region, self.vector, self.split = region, vector, len(region.outer)
        self.text = SourceWriter(name, len(region.inputs) + len(region.outputs), needs_wide_index(region))
        self.known: list[Reg | None] = [None] * region.first
        self.bases: dict[int, Index] = {}
        self.mask: str | None = None
        self.indices: list[Index] | None = None
        self.addresses: dict[Access, tuple[int, str, str | None]] = {}

    @abstractmethod
    def vector_starts(self, chunk: Index) -> Index:
        """The indices, in the inner axes, of the first elements of the thread's vectors in a chunk."""

    @abstractmethod
    def element_indices(self, starts: Index) -> Index:
        """The index of every element."""

    @abstractmethod
    def stride_in_vector(self, access: Access) -> int:
        """The stride within a vector."""

    @abstractmethod
    def _other_strides(self, access: Access) -> tuple[int, ...]:
        """The strides of all axes except the one along a vector."""

    def _crosses_edges(self, access: Access) -> bool:
        """Whether a vector may cross an edge of the argument."""
        return False

    def _varies_in_vector(self, number: int) -> bool:
        """Whether the elements of a vector have different addresses."""
        access = self._access(number)
        return self.vector > 1 and (self.stride_in_vector(access) != 0 or self._crosses_edges(access))

    # Rows.

    def _access(self, number: int) -> Access:
        return (*self.region.inputs, *self.region.outputs)[number]

    def _base(self, number: int) -> Index:
        if number not in self.bases:
            access = self._access(number)
            self.bases[number] = self.text.dot(access.offset, self.outer, access.strides[: self.split])
        return self.bases[number]

    def _find_bases(self, stage: Stage) -> None:
        """Computes the row addresses of all arguments of the stage before its loop, so that other code can use them,
        too."""
        inputs = {n for n in used_values(stage) if n < len(self.region.inputs) and self.known[n] is None}
        fetched = {let.input for let in stage.lets if isinstance(let, Fetch)}
        for number in sorted(inputs | fetched | {len(self.region.inputs) + s.output for s in stage.stores}):
            self._base(number)

    def _row_address(self, number: int, whole: bool = True) -> tuple[int, str]:
        """Vector width of a load or store of row values (1 if not ``whole``), and the indices of the first elements."""
        access = self._access(number)
        stride = access.strides[self.split - 1] if self.lanes > 1 else 0
        first = self._base(number)
        if stride == 0:
            return 1, self.text.known(first)
        others = (access.offset, *access.strides[: self.split - 1])
        vector = power_of_two(self.lanes, *others) if stride == 1 and whole else 1
        return vector, self.text.known(self.text.ramp(first, self.lanes // vector, vector * stride))

    # Elements.

    def _element_address(self, number: int, starts: Index, mask: str | None) -> tuple[int, str, str | None]:
        """Vector width of a load or store, the indices of the first elements, and the mask of those in range."""
        access = self._access(number)
        if access not in self.addresses:
            self.addresses[access] = self._compute_address(number, starts, mask)
        return self.addresses[access]

    def _compute_address(
        self, number: int, starts: Index, mask: str | None, whole: bool = True
    ) -> tuple[int, str, str | None]:
        text, access = self.text, self._access(number)
        stride = self.stride_in_vector(access)
        if self._crosses_edges(access):
            first = self._first_addresses(access, self._base(number), self.element_indices(starts), whole=False)
            return 1, text.known(first), self._mask_of(self.vector, mask)
        first = self._first_addresses(access, self._base(number), starts)
        if stride == 0 or self.vector == 1:
            return 1, text.known(first), mask
        vector = power_of_two(self.vector, access.offset, *self._other_strides(access)) if stride == 1 and whole else 1
        count = self.vector // vector
        at = text.known(text.ramp(first, count, vector * stride))
        return vector, at, self._mask_of(count, mask)

    def _mask_of(self, count: int, mask: str | None) -> str | None:
        """The mask of the vectors, repeated for ``count`` parts of each."""
        if count == 1 or mask is None or self.mask is None:
            return mask
        return self.text.set(self.text.call("each", (count,), mask))

    def _first_addresses(self, access: Access, base: Index, starts: Index, whole: bool = True) -> Index:
        """The addresses of the vectors' first elements, or of all elements if not ``whole``, given their indices.
        ``base``: the rows' addresses."""
        text, inside = self.text, access.strides[self.split :]
        if inside == dense(self.region.inner):
            return text.plus(starts, base)
        if whole and self.indices is not None:
            indices = self.indices
        else:
            indices = text.unravel(starts, self.region.inner)
            self.indices = indices if whole else self.indices
        first = text.dot(base, indices, inside)
        for own in access.mixed_radix:
            place = text.dot(own.offset, [*self.outer, *indices], own.strides)
            first = text.dot(first, text.unravel(place, own.sizes), own.steps)
        return first
