"""The GPU memory that one process takes to add what its shards give, and to exchange it, computed from plans alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from dslc.runtime.artifact.slices import aligned
from dslc.runtime.cuda.memory_pool import size_class
from dslc.runtime.cuda.sums.gathering import ROW_BYTES, table_of

if TYPE_CHECKING:
    from dslc.runtime.artifact.share import Share
    from dslc.runtime.session.calls.terms import Span, Terms

SUM_ALIGNMENT: Final = 64  # bytes; of what shards add, and of the parts that processes exchange
#: What NCCL takes of each GPU outside of the pool for sends and receives between two GPUs: code, channels, buffers. It
#: is what cuMemGetInfo said was gone beyond all that is planned, 1,016 MiB for ResNet-50 and for GPT-2 alike (NCCL
#: 2.28.9, two H200 with NVLink, 2026-11-26).
NCCL_OF_TWO: Final = 1016 << 20
#: An estimate, not measured: for each further GPU, buffers of 32 channels for NCCL's protocols LL, LL128 and Simple.
NCCL_OF_ANOTHER: Final = 32 * ((512 << 10) + 4_915_200 + (4 << 20))


@dataclass(frozen=True)
class SumSizes:
    """``terms``: what one shard gives; ``row``: the bytes of loss and metrics of a run; ``shards``: of a step;
    ``processes``: that share them; ``each``: the runs of a shard, one for each of its micro-batches. ``flags``: the
    bytes of what an update tells of gradients; ``share``: of updates, None if each process updates all; ``work``: that
    of an update."""

    terms: Terms
    row: int
    shards: int
    processes: int = 1
    each: int = 1
    flags: int = 0
    share: Share | None = None
    work: int = 0

    def of(self, processes: int) -> SumSizes:
        """The same for another number of processes."""
        share = self.share if self.share is not None and self.share.size == processes else None
        return replace(self, processes=processes, share=self.share if processes == 1 else share)

    @property
    def owned(self) -> int:
        """The shards of one process."""
        return self.shards // self.processes

    @property
    def vector(self) -> int:
        """The bytes of the sums."""
        return self.terms.bytes

    @property
    def as_given(self) -> bool:
        """Whether processes exchange what their one shard gives, which is shorter than its sums."""
        return self.processes > 1 and self.owned == 1 and not self.terms.as_summed

    @property
    def stages(self) -> int:
        """The number of stages of an exchange."""
        return 1 if self.share is None or self.processes == 1 else self.share.stages

    @property
    def stores(self) -> int:
        """The number of sums that wait for their right neighbour, and are none of micro-batches. The frame of a run
        holds what one shard gives until the next one has run, but not over several micro-batches."""
        levels = self.owned.bit_length() - 1
        return max(0, levels - 1) if self.each == 1 else levels

    def parts(self, rank: int, stage: int) -> list[tuple[int, int]]:
        """The parts of the sums that a process adds in a stage: (offset, bytes). If it has a share of updates, the
        gradients of its slices. What follows these all processes read: each adds a part of it and sends that to all,
        or each adds all of it if nothing else is sent to all."""
        if self.share is None:
            return [self._divided(0, rank)]
        own = [self.share.part(rank, stage)]
        if stage > 0:
            return own
        rest = self.share.total
        return [*own, self._divided(rest, rank) if self.share.reads_all else (rest, self.vector - rest)]

    def _divided(self, start: int, rank: int) -> tuple[int, int]:
        units = (self.vector - start) // SUM_ALIGNMENT
        first, end = (start + SUM_ALIGNMENT * (units * r // self.processes) for r in (rank, rank + 1))
        return first, end - first

    def spans(self, rank: int, stage: int) -> list[list[Span]]:
        """What a shard gives of each of these parts."""
        return [self.terms.spans(*part) for part in self.parts(rank, stage)]

    def _every(self) -> Iterator[tuple[int, int]]:
        return ((rank, stage) for rank in range(self.processes) for stage in range(self.stages))

    @cached_property
    def part(self) -> int:
        """The most bytes of sums that one process adds in a stage, in any order of its parts."""
        own = max(self.parts(*each)[0][1] for each in self._every())
        return own + max(sum(size for _, size in self.parts(rank, 0)[1:]) for rank in range(self.processes))

    @cached_property
    def incoming(self) -> int:
        """What the other processes send of this one's parts."""
        if self.processes == 1:
            return 0
        of_rank = dict.fromkeys(range(self.processes), 0)
        for rank, stage in self._every():
            if self.as_given:
                of_rank[rank] += sum(aligned(s.size) for spans in self.spans(rank, stage) for s in spans)
            else:
                of_rank[rank] += sum(size for _, size in self.parts(rank, stage))
        return (self.processes - 1) * max(of_rank.values())

    @property
    def partial(self) -> int:
        """Sums of what two others send, which do not fit into its place."""
        return max(0, self.processes // 2 - 1) * self.part if self.as_given else 0

    @cached_property
    def table(self) -> int:
        """The tables of what is added as it is given."""
        if self.as_given:
            most = {rank: 0 for rank in range(self.processes)}
            for rank, stage in self._every():
                most[rank] += sum(_rows(spans) for spans in self.spans(rank, stage))
            return ROW_BYTES * max(most.values())
        return 0 if self.terms.as_summed or self.owned == 1 else ROW_BYTES * _rows(self.terms.spans(0, self.vector))

    @property
    def rows(self) -> int:
        """Loss and metrics of all runs."""
        return self.shards * self.each * self.row

    @property
    def told(self) -> int:
        """What the updates of all processes tell of gradients."""
        return 0 if self.share is None or self.processes == 1 else self.processes * self.flags

    @property
    def device(self) -> tuple[int, ...]:
        """The sizes of the blocks that are taken from the device."""
        work = self.work if self.owned * self.each == 1 and self.stages > 1 else 0  # its update begins early
        blocks = *(self.vector,) * self.stores, self.incoming, self.partial, self.table, self.rows, self.told, work
        return tuple(size for size in blocks if size)

    @property
    def pooled(self) -> int:
        """The bytes that these blocks take of the device's pool."""
        return sum(map(size_class, self.device))

    @property
    def exchanged(self) -> int:
        """Those of ``pooled`` for what the other processes send."""
        return sum(size_class(size) for size in (self.incoming, self.partial) if size)

    @property
    def nccl(self) -> int:
        """About what NCCL takes next to the pool."""
        return 0 if self.processes == 1 else NCCL_OF_TWO + (self.processes - 2) * NCCL_OF_ANOTHER


def _rows(spans: list[Span]) -> int:
    return sum(len(table_of(span.runs, span.dtype)) for span in spans)


def aligned_sum(size: int) -> int:
    return -(-size // SUM_ALIGNMENT) * SUM_ALIGNMENT
