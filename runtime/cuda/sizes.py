"""What a session takes of a GPU, known from its artifact alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dslc.runtime.cuda.pool import size_class
from dslc.runtime.cuda.transfers import has_frames, input_bytes, output_spans

if TYPE_CHECKING:
    from dslc.runtime.context import Loaded

SLOTS: Final = 2  # runs of a lane that may be under way: one is filled while another one runs
_FRAME: Final = 512  # bytes; frames begin at multiples, as blocks of the pool do


@dataclass(frozen=True, slots=True)
class LaneSizes:
    """Bytes. ``io``: of entries that are not training steps; ``frame``: of one training step, of which each slot has
    ``steps``, aligned for any kernel; ``inputs`` and ``outputs`` of each slot, pinned on the host."""

    io: int
    work: int
    frame: int
    steps: int
    inputs: int
    outputs: int

    @property
    def device(self) -> tuple[int, ...]:
        """The blocks that a lane takes of the device."""
        return tuple(size for size in (self.io, self.work, *(self.frame * self.steps,) * SLOTS) if size)


def lane_sizes(programs: Sequence[Loaded], steps: int) -> LaneSizes:
    """Programs overlay each other: one runs at a time. Micro-batches are runs of their own."""
    training = [p for p in programs if has_frames(p.entry)]
    if not training or any(p.entry == "accumulate_step" for p in training):
        steps = 1
    frame = -(-max((p.io_bytes for p in training), default=0) // _FRAME) * _FRAME
    copied = max(input_bytes(p.plan) for p in programs)
    results = [(output_spans(p.plan)[1], steps if has_frames(p.entry) else 1) for p in programs]
    return LaneSizes(
        io=max((p.io_bytes for p in programs if not has_frames(p.entry)), default=0),
        work=max(p.work_bytes for p in programs),
        frame=frame,
        steps=steps,
        inputs=max(copied, frame * steps),
        outputs=max(size * count for size, count in results),
    )


def session_bytes(state: int, sizes: LaneSizes, contexts: int) -> int:
    """Bytes that a session takes of its device's pool: the state and a lane for each context, no more and no less."""
    return sum(map(size_class, filter(None, (state, *sizes.device * contexts))))
