"""The copies of a run between a slot's pinned memory and the device, and its results on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.plan import Buffer, Plan, Port
from dslc.runtime.artifact.reserved import STEP_BLOCK
from dslc.runtime.session.backend import LateOutputs
from dslc.runtime.session.host_copies import copies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.arrays.pinned import Blocks
    from dslc.runtime.cuda.binding import Binder
    from dslc.runtime.cuda.lane import Lane, Slot

_GAP: Final = 4096  # bytes; results closer than this are copied together
#: From so many bytes on, a caller gets the memory that the GPU has written instead of a copy. One thread copies so many
#: in 85 us, which is less time than other threads need to wake up and help.
LENT: Final = 1 << 20
_ALIGNMENT: Final = 64
_SHARD: Final = "shard."  # prefix of the names of sums over the shards of a step


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a region that are copied from the device together: from ``offset``, to ``at`` in the slot's outputs."""

    region: str
    offset: int
    bytes: int
    at: int

    def holds(self, buffer: Buffer) -> bool:
        return self.region == buffer.region and self.offset <= buffer.offset and buffer.end <= self.offset + self.bytes


def from_host(plan: Plan) -> list[Port]:
    """The inputs that a run copies from the host: all but the sums over shards, which are computed where they lie."""
    return [port for port in plan.inputs if not port.name.startswith(_SHARD)]


def to_host(plan: Plan) -> list[Port]:
    """The results that a run copies to the host: all but those that are summed over shards."""
    return [port for port in plan.outputs if port.kind != "shard"]


def input_bytes(plan: Plan) -> int:
    """Bytes from the start of io that a run copies to the device: the step block and the inputs."""
    ends = [plan.buffers[p.buffer].end for p in from_host(plan)]
    return max([*ends, STEP_BLOCK if plan.scalars else 0], default=0)


def output_spans(plan: Plan) -> tuple[list[Span], int]:
    """The spans that a run copies from the device, and their total bytes in a slot."""
    spans: list[Span] = []
    end = 0
    for buffer in sorted((plan.buffers[p.buffer] for p in to_host(plan)), key=lambda b: (b.region, b.offset)):
        last = spans[-1] if spans else None
        if last is not None and last.region == buffer.region and buffer.offset <= last.offset + last.bytes + _GAP:
            spans[-1] = Span(last.region, last.offset, max(last.bytes, buffer.end - last.offset), last.at)
        elif buffer.bytes:
            spans.append(Span(buffer.region, buffer.offset, buffer.bytes, end))
        if spans:
            end = -(-(spans[-1].at + spans[-1].bytes) // _ALIGNMENT) * _ALIGNMENT
    return spans, end


def has_frames(entry: str) -> bool:
    """True if an entry's inputs have frames of their own, so that they reach the device during the previous run."""
    return entry in ("train_step", "accumulate_step")


def has_own_slots(entry: str) -> bool:
    """True if an entry runs once per step, after the training runs of that step. Since it has slots of its own, the
    first run of the next step can be submitted while the last one of this step is in flight."""
    return entry == "update_step"


class Results:
    """The places of a plan's outputs in a slot. ``spans`` are copied together; ``bytes`` is their total per step.
    ``apart``: no byte belongs to two outputs."""

    def __init__(self, plan: Plan) -> None:
        self.spans, self.bytes = output_spans(plan)
        self.in_io = all(span.region == "io" for span in self.spans)
        self.ports: list[tuple[str, str, int, int, np.dtype[Any], tuple[int, ...]]] = []
        self._in_slots: dict[tuple[int, int], list[tuple[str, str, NDArray[Any]]]] = {}
        for port in to_host(plan):
            buffer = plan.buffers[port.buffer]
            at = next((s.at + buffer.offset - s.offset for s in self.spans if s.holds(buffer)), 0)  # 0: no bytes
            kind = numpy_dtype(buffer.dtype)
            self.ports.append((port.name, port.kind, at, at + buffer.bytes, kind, buffer.shape))
        places = sorted((at, end) for _, _, at, end, _, _ in self.ports if at < end)
        self.apart = all(end <= at for (_, end), (at, _) in pairwise(places))

    def in_slot(self, slot: Slot, step: int) -> list[tuple[str, str, NDArray[Any]]]:
        """The outputs of a step in a slot of the plan's lane, as views. The slot lives as long as the plan."""
        key = slot.outputs.address, step
        if key not in self._in_slots:
            self._in_slots[key] = self.views(slot.outputs.memory, step)
        return self._in_slots[key]

    def views(
        self, block: NDArray[np.uint8], step: int, *, writeable: bool = False
    ) -> list[tuple[str, str, NDArray[Any]]]:
        """The outputs of a step, as views."""
        first = step * self.bytes
        found = []
        for name, kind, at, end, dtype, shape in self.ports:
            view = block[first + at : first + end].view(dtype).reshape(shape)
            view.flags.writeable = writeable
            found.append((name, kind, view))
        return found


def view_of(block: NDArray[np.uint8], offset: int, buffer: Buffer) -> NDArray[Any]:
    """A buffer's bytes from ``offset`` in a block, as an array."""
    return block[offset : offset + buffer.bytes].view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)


class RunResults:
    """The results of a run of some steps. They are in its slot until ``settle`` copies them and so frees the slot.
    ``blocks``: the slots' pinned memory, which callers may keep."""

    def __init__(self, lane: Lane, slot: Slot, blocks: Blocks, name: str, results: Results, steps: int) -> None:
        self._lane, self._slot, self._blocks, self._name = lane, slot, blocks, name
        self._results, self._steps = results, steps
        self._copies: dict[int, NDArray[np.uint8]] = {}  # at most one: the first copy made by any thread
        self._error: DslcError | None = None

    @property
    def settled(self) -> bool:
        return bool(self._copies)

    def of(self, step: int) -> list[tuple[str, str, NDArray[Any]]]:
        """A step's outputs, after waiting for the run."""
        copied = self._copies.get(0)
        if copied is None:
            self._wait()
            return self._results.in_slot(self._slot, step)
        return self._results.views(copied, step)

    def settle(self) -> None:
        """Copy the results out of the slot. Two threads may do so concurrently: the slot is not reused before one of
        them is done, and both then use the copy that was recorded first."""
        if not self._copies:
            self._wait()
            self._copies.setdefault(0, self._slot.outputs.memory[: self._steps * self._results.bytes].copy())

    def given(self, rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """The first step's outputs as the caller's own; ``rows`` as for ``LateOutputs``."""
        results, memory = self._results, None
        if results.bytes >= LENT and results.apart and not self._copies:
            self._wait()
            memory = self._blocks.lend(self._slot.outputs)
        if memory is None:
            return copies(((name, view) for name, _, view in self.of(0)), rows)
        views = results.views(memory, 0, writeable=True)
        return {name: view[: rows[name]] if name in rows else view for name, _, view in views}

    def fail(self, error: DslcError) -> None:
        self._error = error

    def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            self._lane.wait_for(self._slot)
        except DslcError as error:
            error.place = f"{self._name}: {error.place}"
            raise


class DeviceOutputs(LateOutputs):
    """The results of one step of a run. Iteration waits for the run."""

    __slots__ = ("_run", "_step")

    def __init__(self, run: RunResults, step: int) -> None:
        self._run, self._step = run, step

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        return iter(self._run.of(self._step))

    def settle(self) -> None:
        self._run.settle()

    def given(self, rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        return self._run.given(rows)


def copy_results(lane: Lane, slot: Slot, binder: Binder, results: Results, first: int, count: int) -> None:
    """Copies the results of ``count`` steps to their places in the slot: of one step in the first frame, or of all."""
    driver, to = lane.device.driver, slot.outputs.address + first * results.bytes
    for span in results.spans:
        source, target = binder.base(span.region) + span.offset, to + span.at
        if count == 1:
            driver.copy_out(target, source, span.bytes, lane.stream)
        else:
            driver.copy_rows(target, results.bytes, source, lane.frame, span.bytes, count, lane.stream)
        lane.counters.bytes_out += span.bytes * count
