"""What a run copies between a slot's pinned memory and the device, and its results on the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DslcError
from dslc.runtime.backend import LateOutputs
from dslc.runtime.dtypes import numpy_dtype
from dslc.runtime.plan import Buffer, Plan
from dslc.runtime.plan_schema import STEP_BLOCK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dslc.runtime.cuda.lane import Lane, Slot

_GAP: Final = 4096  # bytes; results closer than this leave the device with one copy
_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a region that leave the device together: from ``offset``, to ``at`` of the slot's outputs."""

    region: str
    offset: int
    bytes: int
    at: int

    def holds(self, buffer: Buffer) -> bool:
        return self.region == buffer.region and self.offset <= buffer.offset and buffer.end <= self.offset + self.bytes


def input_bytes(plan: Plan) -> int:
    """Bytes from the start of io that a run copies in: the step block and the inputs."""
    ends = [plan.buffers[p.buffer].end for p in plan.inputs]
    return max([*ends, STEP_BLOCK if plan.scalars else 0], default=0)


def output_spans(plan: Plan) -> tuple[list[Span], int]:
    """What a run copies out, and the bytes of it all in a slot."""
    spans: list[Span] = []
    end = 0
    for buffer in sorted((plan.buffers[p.buffer] for p in plan.outputs), key=lambda b: (b.region, b.offset)):
        last = spans[-1] if spans else None
        if last is not None and last.region == buffer.region and buffer.offset <= last.offset + last.bytes + _GAP:
            spans[-1] = Span(last.region, last.offset, max(last.bytes, buffer.end - last.offset), last.at)
        elif buffer.bytes:
            spans.append(Span(buffer.region, buffer.offset, buffer.bytes, end))
        if spans:
            end = -(-(spans[-1].at + spans[-1].bytes) // _ALIGNMENT) * _ALIGNMENT
    return spans, end


def is_staged(entry: str) -> bool:
    """Whether an entry's inputs are copied to the device while the run before still works."""
    return entry in ("train_step", "accumulate_step")


class SlotViews:
    """Where a plan's inputs, scalars and outputs lie in a slot."""

    def __init__(self, plan: Plan, spans: Sequence[Span], slot: Slot) -> None:
        def view(block: NDArray[np.uint8], offset: int, buffer: Buffer) -> NDArray[Any]:
            return block[offset : offset + buffer.bytes].view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)

        self.inputs: dict[str, NDArray[Any]] = {}
        for port in plan.inputs:
            buffer = plan.buffers[port.buffer]
            self.inputs[port.name] = view(slot.inputs, buffer.offset, buffer)
        self.scalars = {s.name: view(slot.inputs, s.offset, Buffer("io", s.offset, s.dtype, ())) for s in plan.scalars}
        self.outputs: list[tuple[str, str, NDArray[Any]]] = []
        for port in plan.outputs:
            buffer = plan.buffers[port.buffer]
            at = next((s.at + buffer.offset - s.offset for s in spans if s.holds(buffer)), 0)  # 0: it has no bytes
            found = view(slot.outputs, at, buffer)
            found.flags.writeable = False
            self.outputs.append((port.name, port.kind, found))


class DeviceOutputs(LateOutputs):
    """A run's results in its slot. Iterating waits for the run; ``settle`` takes copies, so that the slot is free."""

    def __init__(self, lane: Lane, slot: Slot, name: str, views: Sequence[tuple[str, str, NDArray[Any]]]) -> None:
        self._lane, self._slot, self._name = lane, slot, name
        self._views = views
        self._settled = False
        self._error: DslcError | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        if not self._settled:
            self._wait()
        return iter(self._views)

    def settle(self) -> None:
        with self._lock:
            if not self._settled:
                self._wait()
                self._views = [(name, kind, view.copy()) for name, kind, view in self._views]
                self._settled = True

    def fail(self, error: DslcError) -> None:
        self._error = error

    def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            with self._lane.device:
                self._lane.wait_for(self._slot)
        except DslcError as error:
            error.place = f"{self._name}: {error.place}"
            raise
