"""What one shard of a step gives, and where the sum over all shards has it.

Gradients that a 16-bit model has rounded are given in 16 bits, first and side by side; all else follows in the dtype of
the sums. The sums lie as the update reads them. So each of the two is a vector with an order of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.slices import aligned

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Buffer, Plan

HALVES: Final = frozenset(("bf16", "f16"))


class Term(NamedTuple):
    """A tensor that is added. ``given``: where what a shard gives has it; ``at``: where the sums have it; in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    given: int
    at: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Run(NamedTuple):
    """Elements that are side by side in what a shard gives and in the sums."""

    given: int
    at: int
    elements: int


class Span(NamedTuple):
    """Neighbours of one dtype in what a shard gives: ``size`` bytes from ``given`` on. The offsets of ``runs`` count
    from there, and from the beginning of a part of the sums."""

    dtype: str
    given: int
    size: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Terms:
    """``first``: where the shard's io has what it gives, ``read``: where the update's io has the sums; ``dtype``: of
    the sums, f32 or f64; ``given_bytes`` and ``bytes`` of both, each tensor aligned. ``reads``: the update's inputs, in
    the sums: (name, offset, shape). It may read a tensor in pieces, side by side: ``NAME.0``, ``NAME.16``, each with
    the number of its first element. ArtifactError R301 if the plans do not fit each other."""

    dtype: str
    rows: tuple[Term, ...]
    first: int
    read: int
    given_bytes: int
    bytes: int
    reads: tuple[tuple[str, int, tuple[int, ...]], ...]

    @staticmethod
    def of(shard: Plan, update: Plan) -> Terms:
        given = {p.name: shard.buffers[p.buffer] for p in shard.outputs if p.kind == "shard"}
        read_by_name = {p.name: update.buffers[p.buffer] for p in update.inputs}
        dtypes = {b.dtype for b in read_by_name.values()}
        wanted = _joined(read_by_name, given)
        fits = {n: b.shape for n, b in given.items()} == {n: b.shape for n, b in wanted.items()}
        halves = {b.dtype for b in given.values()} - dtypes
        if not fits or len(dtypes) != 1 or (halves and (len(halves) > 1 or dtypes != {"f32"} or not halves <= HALVES)):
            raise ArtifactError("R301", "`update_step` does not read what `train_step` gives, or it has several dtypes",
                                place="programs", help="build the artifact again")  # fmt: skip
        first, read = (min(b.offset for b in each.values()) for each in (given, wanted))
        rows = [
            Term(name, b.dtype, tuple(b.shape), b.offset - first, wanted[name].offset - read)
            for name, b in given.items()
        ]
        rows.sort(key=lambda term: term.at)
        reads = tuple((name, b.offset - read, tuple(b.shape)) for name, b in read_by_name.items())
        return Terms(dtypes.pop(), tuple(rows), first, read, _extent(given.values()), _extent(wanted.values()), reads)

    @property
    def item(self) -> int:
        """The bytes of an element of a sum."""
        return ITEMSIZE[self.dtype]

    @cached_property
    def half(self) -> str | None:
        """The dtype of what has 16 bits; None if nothing has."""
        return next((term.dtype for term in self.rows if term.dtype in HALVES), None)

    @property
    def as_summed(self) -> bool:
        """Whether what a shard gives lies as the sums do, so that it is a sum of one shard."""
        return all(term.dtype == self.dtype and term.given == term.at for term in self.rows)

    def spans(self, start: int, size: int) -> list[Span]:
        """What a shard gives of ``size`` bytes of the sums, from ``start`` on."""
        found: dict[str, list[Run]] = {}
        for term in self.rows:
            low, high = max(start, term.at), min(start + size, term.at + term.elements * self.item)
            if low < high:
                skipped, count = (low - term.at) // self.item, (high - low) // self.item
                run = Run(term.given + skipped * ITEMSIZE[term.dtype], low - start, count)
                found.setdefault(term.dtype, []).append(run)
        return [span for dtype, runs in found.items() for span in _neighbours(dtype, runs, self.item)]


def _joined(read: Mapping[str, Buffer], given: Mapping[str, Buffer]) -> dict[str, Buffer]:
    """What an update reads, with the pieces of a tensor that lie side by side as one."""
    found: dict[str, Buffer] = {}
    pieces: dict[str, list[tuple[int, Buffer]]] = {}
    for name, buffer in read.items():
        whole, _, start = name.rpartition(".")
        if name not in given and whole in given and start.isdecimal():
            pieces.setdefault(whole, []).append((int(start), buffer))
        else:
            found[name] = buffer
    for name, listed in pieces.items():
        listed.sort(key=lambda piece: piece[0])
        first, end = listed[0][1], 0
        for at, buffer in listed:
            if at == end and buffer.offset == first.offset + at * ITEMSIZE[buffer.dtype]:
                end += prod(buffer.shape)
        if end == prod(given[name].shape) and name not in found:
            found[name] = replace(first, shape=given[name].shape)
    return found


def sum_bytes_of(update: Plan) -> int:
    """The bytes of the sums that an update reads, each tensor aligned."""
    return _extent([update.buffers[port.buffer] for port in update.inputs])


def _extent(buffers: Collection[Buffer]) -> int:
    return aligned(max(b.end for b in buffers)) - min(b.offset for b in buffers)


def _neighbours(dtype: str, runs: Sequence[Run], item: int) -> list[Span]:
    """Runs in the order of the sums, joined to spans where nothing but padding is between them."""
    size = ITEMSIZE[dtype]
    groups: list[list[Run]] = []
    for run in sorted(runs):
        last = groups[-1][-1] if groups else None
        if last is not None and aligned(last.given + last.elements * size) == run.given:
            whole = last.given + last.elements * size == run.given and last.at + last.elements * item == run.at
            if whole:
                groups[-1][-1] = Run(last.given, last.at, last.elements + run.elements)
            else:
                groups[-1].append(run)
        else:
            groups.append([run])
    found = []
    for group in groups:
        first = group[0].given
        end = group[-1].given + group[-1].elements * size
        found.append(Span(dtype, first, end - first, tuple(Run(r.given - first, r.at, r.elements) for r in group)))
    return found
