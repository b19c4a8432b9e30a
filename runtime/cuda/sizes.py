"""The GPU memory of a session, computed from its artifact alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dslc.runtime.cuda.memory_pool import size_class
from dslc.runtime.cuda.transfers import has_frames, has_own_slots, input_bytes, output_spans

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes
    from dslc.runtime.session.context import Loaded

#: Entries that run when a session starts or its weights change, and then hardly ever: no graph is kept for them.
RUN_ONCE: Final = ("init", "prepare")
SLOTS: Final = 2  # runs of a lane that may be under way: one is filled while another one runs
#: What the driver takes of a GPU for the context of one process, before anything is loaded: what cuMemGetInfo says is
#: gone beyond plans and code, 518 to 524 MiB for ResNet-50 and GPT-2 (H200, 2026-11-26 and 27).
CONTEXT: Final = 520 << 20
_FRAME: Final = 512  # bytes; frames begin at multiples, as blocks of the pool do


@dataclass(frozen=True, slots=True)
class LaneSizes:
    """Sizes in bytes. ``io``: for entries other than training steps; ``frame``: for one training step, with ``steps``
    frames in each slot, aligned for any kernel; ``inputs`` and ``outputs`` of each slot, pinned on the host;
    ``update``: both of each slot for `update_step`, None without one; ``contexts``: those that programs carry from run
    to run, by layout; ``twin``: the work of updates that begin while a shard runs, None if none does."""

    io: int
    work: int
    frame: int
    steps: int
    inputs: int
    outputs: int
    contexts: Mapping[Hashable, int] = field(default_factory=dict)
    update: tuple[int, int] | None = None
    twin: int | None = None

    @property
    def pinned(self) -> int:
        """Bytes of the host's memory."""
        return SLOTS * (self.inputs + self.outputs + sum(self.update or ()))

    @property
    def device(self) -> tuple[int, ...]:
        """The sizes of the blocks that a lane takes from the device."""
        blocks = self.io, self.work, *(self.frame * self.steps,) * SLOTS, *self.contexts.values(), self.twin or 0
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
    twin = max(p.work_bytes for p in updates) if any(p.early is not None for p in programs) else None
    return LaneSizes(io, work, frame, steps, max(copied, frame * steps), outputs, context_sizes(regions), update, twin)


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


def fitting_batch(artifact: Artifact, programs: Sequence[Loaded], free: int, need: int) -> str | None:
    """``B=48``: the batch with which the largest program would fit, by linear scaling; None if no batch would fit."""
    batch = next((d["name"] for d in artifact.header["interface"]["dims"] if d.get("batch")), None)
    sized = [p for p in programs if batch is not None and batch in p.sizes]
    fixed = int(artifact.header["state"]["bytes"])
    if not sized or batch is None or free <= fixed:
        return None
    largest = max(sized, key=lambda p: (p.io_bytes + p.work_bytes, p.sizes[batch]))
    rows = largest.sizes[batch] * (free - fixed) // (need - fixed)
    return f"{batch}={rows}" if rows else None
