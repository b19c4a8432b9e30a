"""What one shard of a step gives, and where the sum over all shards has it.

Gradients that a 16-bit model has rounded are given in 16 bits, first and side by side; all else follows in the dtype of
the sums. The sums lie as the update reads them. So each of the two is a vector with an order of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
    the sums, f32 or f64; ``given_bytes`` and ``bytes`` of both, each tensor aligned. ArtifactError R301 if the plans do
    not fit each other."""

    dtype: str
    rows: tuple[Term, ...]
    first: int
    read: int
    given_bytes: int
    bytes: int

    @staticmethod
    def of(shard: Plan, update: Plan) -> Terms:
        given = {p.name: shard.buffers[p.buffer] for p in shard.outputs if p.kind == "shard"}
        wanted = {p.name: update.buffers[p.buffer] for p in update.inputs}
        dtypes = {b.dtype for b in wanted.values()}
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
        return Terms(dtypes.pop(), tuple(rows), first, read, _extent(given.values()), _extent(wanted.values()))

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
