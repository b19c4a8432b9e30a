"""The copies of a run's inputs to the device, from a slot's pinned memory and from device arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DslcError
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.artifact.reserved import STEP_BLOCK
from dslc.runtime.cuda.transfers import from_host
from dslc.runtime.session.host_copies import copy_into, copy_parts, dense, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.lane import DeviceInput, Lane, Slot

#: Bytes from which on the driver may copy an input: 602 KB take 58 us so, and 65 through pinned memory; 4.8 MB 391, and
#: 532 by one thread (H200, 2026-11-28, `benchmarks/results/zoo.md`).
DIRECT: Final = 1 << 19


def from_pinned(plan: Plan, end: int, slot: Slot, steps: int, frame: int) -> list[tuple[int, int, int]]:
    """The copies from a slot's pinned memory for ``steps`` steps with frames of ``frame`` bytes, of which ``end`` bytes
    are used (``input_bytes``): (offset, bytes, number of frames). What the slot's ``placed`` and ``sent`` name is left
    out."""
    if not slot.placed and not slot.sent:
        return [(0, (steps - 1) * frame + end, 1)]
    there = {(p.frame, p.name) for p in slot.placed} | {(0, name) for name in slot.sent}
    buffers = [(port.name, plan.buffers[port.buffer]) for port in from_host(plan)]
    found: list[tuple[int, int, int]] = []
    for name, offset, size in [("", 0, min(STEP_BLOCK, end)), *((name, b.offset, b.bytes) for name, b in buffers)]:
        rows = 0
        for step in range(steps + 1):
            if step < steps and size and (step, name) not in there:
                rows += 1
            elif rows:
                found.append(((step - rows) * frame + offset, size, rows))
                rows = 0
    return found


def in_rows(placed: Sequence[DeviceInput]) -> list[tuple[DeviceInput, int, int]]:
    """Groups inputs on the device: those of consecutive steps are one copy if their arrays are equally spaced. Yields
    the first input, the pitch in bytes, and the number of rows."""
    found: list[tuple[DeviceInput, int, int]] = []
    for one in sorted(placed, key=lambda p: (p.offset, p.frame)):
        if found:
            first, pitch, rows = found[-1]
            apart = one.array.address - first.array.address - pitch * (rows - 1)  # distance from the last one
            same = (
                first.offset == one.offset
                and first.frame + rows == one.frame
                and first.array.nbytes == one.array.nbytes
            )
            if same and apart >= one.array.nbytes and (rows == 1 or apart == pitch):
                found[-1] = (first, apart, rows + 1)
                continue
        found.append((one, 0, 1))
    return found


def put(
    lane: Lane, slot: Slot, io: int | None, name: str, view: NDArray[Any], array: NDArray[Any], *, once: bool
) -> None:
    """Copies an input to ``view``, its place in the slot's pinned memory. If it has several parts, each of them goes on
    to ``io``, unless that is None, while the next one is copied.

    If it is read ``once``, and nothing runs, the driver copies the parts that fall to this thread, from the array to
    the device: its staging memory stays in a cache. While something runs, that would wait for it.
    """
    direct = once and view.nbytes >= DIRECT and not lane.busy and dense(view, array)
    parts = () if io is None else parts_of(view, array)
    if io is None or (len(parts) < 2 and not direct):
        copy_into(view, array)
        return
    driver, offset = lane.device.driver, view.ctypes.data - slot.inputs_at
    starts = [*accumulate((target.nbytes for target, _ in parts), initial=offset)]
    own = array.ctypes.data - offset

    def send(number: int, base: int = slot.inputs_at) -> None:
        start, size = starts[number], starts[number + 1] - starts[number]
        driver.copy_in(io + start, base + start, size, lane.stream)
        lane.counters.bytes_in += size

    try:
        with lane.device:
            copy_parts(parts, send, (lambda number, _: send(number, own)) if direct else None)
    except DslcError:
        lane.recover(slot)
        raise
    slot.sent.append(name)


def send(
    lane: Lane, slot: Slot, io: int, spans: Iterable[tuple[int, int, int]], count: int, *, in_frames: bool
) -> None:
    """Copies the inputs of ``count`` steps to ``io``: the ``spans`` of the slot's pinned memory (offset, bytes, rows),
    and device arrays. ``in_frames``: on the stream for copies, for which the lane's stream then waits."""
    driver = lane.device.driver
    stream = lane.copies if in_frames else lane.stream
    slot.sent.clear()  # the next run of the same inputs sends all
    for offset, size, rows in spans:
        if rows == 1:
            driver.copy_in(io + offset, slot.inputs_at + offset, size, stream)
        else:
            driver.copy_rows(io + offset, lane.frame, slot.inputs_at + offset, lane.frame, size, rows, stream)
        lane.counters.bytes_in += size * rows
    if slot.placed:
        _send_placed(lane, [p for p in slot.placed if p.frame < count], io, stream)
    if in_frames:
        driver.record(slot.arrived, stream)
        driver.wait(lane.stream, slot.arrived)
        if slot.placed:  # the owner may overwrite it as soon as the call returns
            lane.counters.waits += 1
            driver.wait_host(slot.arrived)
            slot.placed.clear()


def _send_placed(lane: Lane, placed: Sequence[DeviceInput], io: int, stream: Any) -> None:
    driver = lane.device.driver
    for ready in {id(p.array.ready): p.array.ready for p in placed if p.array.ready is not None}.values():
        driver.wait(stream, ready)
    for first, pitch, rows in in_rows(placed):
        target, size = io + first.frame * lane.frame + first.offset, first.array.nbytes
        if rows == 1:
            driver.copy(target, first.array.address, size, stream)
        else:
            driver.copy_rows(target, lane.frame, first.array.address, pitch, size, rows, stream)
