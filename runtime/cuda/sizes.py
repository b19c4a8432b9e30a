"""The GPU memory of a session, computed from its artifact alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from dslc.runtime.cuda.memory_pool import size_class
from dslc.runtime.cuda.transfers import has_frames, has_own_slots, input_bytes, output_spans

if TYPE_CHECKING:
    from dslc.runtime.artifact.share import Share
    from dslc.runtime.session.context import Loaded

#: Entries that run when a session starts or its weights change, and then hardly ever: no graph is kept for them.
RUN_ONCE: Final = ("init", "prepare")
SLOTS: Final = 2  # runs of a lane that may be under way: one is filled while another one runs
SUM_ALIGNMENT: Final = 64  # bytes; of what shards add, and of the parts that processes exchange
#: What NCCL takes of each GPU outside of the pool for sends and receives between two GPUs: code, channels, buffers. It
#: is what cuMemGetInfo said was gone beyond all that is planned, 1,016 MiB for ResNet-50 and for GPT-2 alike (NCCL
#: 2.28.9, two H200 with NVLink, 2026-11-26).
NCCL_OF_TWO: Final = 1016 << 20
#: An estimate, not measured: for each further GPU, buffers of 32 channels for NCCL's protocols LL, LL128 and Simple.
NCCL_OF_ANOTHER: Final = 32 * ((512 << 10) + 4_915_200 + (4 << 20))
#: What the driver takes of a GPU for the context of one process, before anything is loaded: what cuMemGetInfo says is
#: gone beyond plans and code, 518 to 524 MiB for ResNet-50 and GPT-2 (H200, 2026-11-26 and 27).
CONTEXT: Final = 520 << 20
_FRAME: Final = 512  # bytes; frames begin at multiples, as blocks of the pool do


@dataclass(frozen=True, slots=True)
class LaneSizes:
    """Sizes in bytes. ``io``: for entries other than training steps; ``frame``: for one training step, with ``steps``
    frames in each slot, aligned for any kernel; ``inputs`` and ``outputs`` of each slot, pinned on the host;
    ``update``: both of each slot for `update_step`, None without one; ``contexts``: those that programs carry from run
    to run, by layout."""

    io: int
    work: int
    frame: int
    steps: int
    inputs: int
    outputs: int
    contexts: Mapping[Hashable, int] = field(default_factory=dict)
    update: tuple[int, int] | None = None

    @property
    def pinned(self) -> int:
        """Bytes of the host's memory."""
        return SLOTS * (self.inputs + self.outputs + sum(self.update or ()))

    @property
    def device(self) -> tuple[int, ...]:
        """The sizes of the blocks that a lane takes from the device."""
        blocks = self.io, self.work, *(self.frame * self.steps,) * SLOTS, *self.contexts.values()
        return tuple(size for size in blocks if size)


@dataclass(frozen=True, slots=True)
class Regions:
    """Sizes in bytes of a program's ``io``, ``work``, ``context`` and ``prepared``. Programs of one ``layout`` share a
    context; all share the region ``prepared``."""

    entry: str
    io: int
    work: int
    context: int = 0
    layout: Hashable = ()
    prepared: int = 0


@dataclass(frozen=True, slots=True)
class SumSizes:
    """The device memory that a process takes to add what its shards give, in bytes. ``vector``: what one shard gives;
    ``row``: loss and metrics of a run; ``shards``: of a step; ``processes``: that share them; ``each``: the runs of a
    shard, one for each of its micro-batches. ``flags``: what an update tells of gradients; ``share``: of updates, None
    if each process updates all."""

    vector: int
    row: int
    shards: int
    processes: int = 1
    each: int = 1
    flags: int = 0
    share: Share | None = None

    def of(self, processes: int) -> SumSizes:
        """The same for another number of processes."""
        share = self.share if self.share is not None and self.share.size == processes else None
        return replace(self, processes=processes, share=self.share if processes == 1 else share)

    @property
    def owned(self) -> int:
        """The shards of one process."""
        return self.shards // self.processes

    @property
    def stores(self) -> int:
        """The number of vectors that wait for their right neighbour. The frame of a run holds that of one shard until
        the next one has run, but not over several micro-batches."""
        levels = self.owned.bit_length() - 1
        return max(0, levels - 1) if self.each == 1 else levels

    @property
    def part(self) -> int:
        """The most of a vector that one process adds."""
        return max(sum(size for _, size in self.parts(rank)) for rank in range(self.processes))

    @property
    def incoming(self) -> int:
        """What the other processes send of this one's part."""
        return (self.processes - 1) * self.part

    @property
    def rows(self) -> int:
        """Loss and metrics of all runs."""
        return self.shards * self.each * self.row

    @property
    def told(self) -> int:
        """What the updates of all processes tell of gradients."""
        return 0 if self.share is None or self.processes == 1 else self.processes * self.flags

    def parts(self, rank: int) -> list[tuple[int, int]]:
        """The parts of a vector that a process adds: (offset, bytes). If it has a share of updates, first the gradients
        of its slices; then a part of what all processes read."""
        gradients = 0 if self.share is None else self.share.total
        units = (self.vector - gradients) // SUM_ALIGNMENT
        first, end = (gradients + SUM_ALIGNMENT * (units * r // self.processes) for r in (rank, rank + 1))
        return [*([] if self.share is None else [self.share.part(rank)]), (first, end - first)]

    @property
    def device(self) -> tuple[int, ...]:
        """The sizes of the blocks that are taken from the device."""
        return tuple(size for size in (*(self.vector,) * self.stores, self.incoming, self.rows, self.told) if size)

    @property
    def pooled(self) -> int:
        """The bytes that these blocks take of the device's pool."""
        return sum(map(size_class, self.device))

    @property
    def exchanged(self) -> int:
        """Those of ``pooled`` for what the other processes send."""
        return size_class(self.incoming) if self.incoming else 0

    @property
    def nccl(self) -> int:
        """About what NCCL takes next to the pool."""
        return 0 if self.processes == 1 else NCCL_OF_TWO + (self.processes - 2) * NCCL_OF_ANOTHER


def aligned_sum(size: int) -> int:
    return -(-size // SUM_ALIGNMENT) * SUM_ALIGNMENT


def steps_held(entries: Iterable[str], steps: int) -> int:
    """How many of the requested ``steps`` one launch of these entries holds: 1 with micro-batches or shards, which are
    separate runs."""
    listed = list(entries)
    return steps if any(map(has_frames, listed)) and not {"accumulate_step", "update_step"} & {*listed} else 1


def device_blocks(programs: Sequence[Regions]) -> tuple[int, int, int]:
    """``io``, ``work`` and ``frame`` of a lane, as in ``LaneSizes``: programs share memory."""
    io = max((p.io for p in programs if not has_frames(p.entry)), default=0)
    frame = max((p.io for p in programs if has_frames(p.entry)), default=0)
    return io, max((p.work for p in programs), default=0), -(-frame // _FRAME) * _FRAME


def lane_sizes(programs: Sequence[Loaded], steps: int) -> LaneSizes:
    """The sizes of a lane for these programs, of which one runs at a time."""
    steps = steps_held((p.entry for p in programs), steps)
    regions = [
        Regions(p.entry, p.io_bytes, p.work_bytes, p.context_bytes, p.carried, p.prepared_bytes) for p in programs
    ]
    io, work, frame = device_blocks(regions)
    updates = [p for p in programs if has_own_slots(p.entry)]
    others = [p for p in programs if not has_own_slots(p.entry)]
    copied = max((input_bytes(p.plan) for p in others), default=0)
    results = [(output_spans(p.plan)[1], steps if has_frames(p.entry) else 1) for p in others]
    outputs = max((size * count for size, count in results), default=0)
    update = None
    if updates:
        update = max(input_bytes(p.plan) for p in updates), max(output_spans(p.plan)[1] for p in updates)
    return LaneSizes(io, work, frame, steps, max(copied, frame * steps), outputs, context_sizes(regions), update)


def context_sizes(programs: Sequence[Regions]) -> dict[Hashable, int]:
    """The bytes of each context that these programs carry, by layout."""
    return {p.layout: p.context for p in programs if p.context}


def foreseen_bytes(
    state: int,
    programs: Sequence[Regions],
    steps: int,
    contexts: int = 1,
    *,
    on_gpu: bool,
    sums: Iterable[SumSizes] = (),
) -> int:
    """Bytes of a session of these programs: host memory on a CPU, pool memory on a GPU. ``sums``: on a GPU, those over
    the shards of each training step."""
    prepared = max((p.prepared for p in programs), default=0)
    if not on_gpu:
        carried = sum(context_sizes(programs).values())
        return state + prepared + contexts * (max(p.io for p in programs) + max(p.work for p in programs) + carried)
    steps = steps_held((p.entry for p in programs), steps)
    io, work, frame = device_blocks(programs)
    sizes = LaneSizes(io, work, frame, steps, 0, 0, context_sizes(programs))
    return session_bytes(state, sizes, contexts, prepared) + sum(each.pooled for each in sums)


def session_bytes(state: int, sizes: LaneSizes, contexts: int, prepared: int = 0) -> int:
    """The exact bytes that a session takes from its device's pool: the state, what is prepared from it, and a lane for
    each context."""
    return sum(map(size_class, filter(None, (state, prepared, *sizes.device * contexts))))
