"""A plan on a GPU, the counterpart of ``cpu/executor.py``: once bound, a run is a few calls of the driver.

A run copies the step block and the inputs in, launches each bulk as one graph, and copies the results out; the host
waits for nothing but an earlier run that has the same slot. Instructions outside of bulks are launched and waited for
one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.backend import OnDevice
from dslc.runtime.cuda.arrays import DeviceArray
from dslc.runtime.cuda.binding import Binder, Group
from dslc.runtime.cuda.graph import Mark
from dslc.runtime.cuda.lane import Lane, Slot
from dslc.runtime.cuda.transfers import DeviceOutputs, SlotViews, input_bytes, is_staged, output_spans
from dslc.runtime.dtypes import ITEMSIZE, numpy_dtype
from dslc.runtime.plan import Buffer, Plan, results
from dslc.runtime.plan_schema import STEP_BLOCK
from dslc.runtime.scalars import write_scalars

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.libraries import Libraries
    from dslc.runtime.cuda.modules import Modules


class DevicePlan:
    """A plan on a lane's memory. Fits ``DeviceBound``.

    ``state``: where the state region begins; ``written``: the event behind the last run that wrote it, of any lane.
    ``bulk`` as ``Binder.groups`` takes it. Raises what ``Binder`` raises, before anything runs. The device's context is
    current.
    """

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        state: int,
        written: Any,
        modules: Modules,
        libraries: Libraries,
        constants: Callable[[str], bytes | memoryview],
        resources: ExitStack,
        *,
        name: str,
        entry: str,
        bulk: int | None,
    ) -> None:
        self.name = name
        self._plan, self._lane, self._written = plan, lane, written
        self._bases = {"state": state, "io": lane.io, "work": lane.work}
        self._staged = is_staged(entry)
        self._input_bytes = input_bytes(plan)
        self._spans, _ = output_spans(plan)
        self._binder = Binder(plan, self._bases, modules, libraries, name)
        self._constants = [
            (self._binder.address(c.buffer), constants(c.blob)[c.offset : c.offset + plan.buffers[c.buffer].bytes])
            for c in plan.constants
        ]
        self._groups = self._binder.groups(lane, bulk, resources)
        self._writes_state = any(g.writes_state for g in self._groups)
        self._all_views = {id(slot): SlotViews(plan, self._spans, slot) for slot in lane.slots}
        self._slot = lane.slots[0]

    # Before a run

    def begin(self) -> None:
        try:
            with self._lane.device:
                self._slot = self._lane.next_slot()
        except DslcError as error:
            error.place = f"{self.name}: {error.place}"
            raise

    @property
    def _views(self) -> SlotViews:
        return self._all_views[id(self._slot)]

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        return self._views.inputs

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        write_scalars(self._views.scalars, values, self.name)

    def place(self, name: str, array: OnDevice, row: int = 0) -> None:
        [port] = [p for p in self._plan.inputs if p.name == name]
        buffer = self._plan.buffers[port.buffer]
        assert isinstance(array, DeviceArray) and array.dtype == buffer.dtype
        offset = buffer.offset + (row * buffer.bytes // buffer.shape[0] if row else 0)
        self._slot.placed.append((name, offset, array))

    def load_constants(self) -> None:
        if self._constants:
            with self._lane.device as device:
                for address, data in self._constants:
                    raw = np.frombuffer(data, np.uint8)
                    device.driver.copy_in(address, raw.ctypes.data, raw.nbytes, self._lane.stream)

    # Runs

    def run(self, before_writing: Callable[[], None] | None = None) -> DeviceOutputs:
        slot = self._slot
        self._start(self._copy_out, before_writing)
        outputs = DeviceOutputs(self._lane, slot, self.name, self._views.outputs)
        slot.pending = weakref.ref(outputs)
        return outputs

    def run_into(self, targets: Mapping[str, OnDevice]) -> None:
        def fetch() -> None:
            for port in self._plan.outputs:
                target, buffer = targets.get(port.name), self._plan.buffers[port.buffer]
                if isinstance(target, DeviceArray) and target.nbytes:
                    source = self._bases[buffer.region] + buffer.offset
                    self._lane.device.driver.copy(target.address, source, target.nbytes, self._lane.stream)

        self._start(fetch, None)
        with self._lane.device:
            self._lane.wait_for(self._slot)
        self._slot.placed.clear()

    def _start(self, fetch: Callable[[], None], before_writing: Callable[[], None] | None) -> None:
        """Submit inputs, bulks and ``fetch``, and mark the end. Where that fails, nothing is under way afterwards."""
        lane, slot = self._lane, self._slot
        try:
            with lane.device as device:
                self._send(slot)
                for group in self._groups:
                    if group.writes_state and before_writing is not None:
                        before_writing()
                        before_writing = None
                    self._submit(group)
                if before_writing is not None:
                    before_writing()
                fetch()
                device.driver.record(slot.done, lane.stream)
                if self._writes_state:
                    device.driver.record(self._written, lane.stream)
                slot.busy = True
        except BaseException as error:
            lane.recover(slot)
            if isinstance(error, DslcError):
                error.place = f"{self.name}: {error.place}"
            raise

    def _send(self, slot: Slot) -> None:
        lane, driver = self._lane, self._lane.device.driver
        driver.wait(lane.stream, self._written)
        if not self._input_bytes:
            return
        target, stream = (slot.staging, lane.copies) if self._staged else (lane.io, lane.stream)
        for offset, size in self._from_host(slot):
            driver.copy_in(target + offset, slot.inputs_at + offset, size, stream)
            lane.counters.bytes_in += size
        for _, offset, array in slot.placed:
            if array.ready is not None:
                driver.wait(stream, array.ready)
            driver.copy(target + offset, array.address, array.nbytes, stream)
        if self._staged:
            driver.record(slot.arrived, stream)
            driver.wait(lane.stream, slot.arrived)
            driver.copy(lane.io, slot.staging, self._input_bytes, lane.stream)
            if slot.placed:  # its owner may write it again as soon as the call returns
                lane.counters.waits += 1
                driver.wait_host(slot.arrived)
                slot.placed.clear()

    def _from_host(self, slot: Slot) -> list[tuple[int, int]]:
        """Offsets and bytes of what comes from the slot's pinned memory."""
        if not slot.placed:
            return [(0, self._input_bytes)]
        there = {name for name, _, _ in slot.placed}
        here = [self._plan.buffers[p.buffer] for p in self._plan.inputs if p.name not in there]
        return [(0, min(STEP_BLOCK, self._input_bytes)), *((b.offset, b.bytes) for b in here if b.bytes)]

    def _submit(self, group: Group) -> None:
        lane = self._lane
        if group.bulk is not None:
            group.bulk.launch(lane.stream)
            lane.counters.graph_launches += 1
            return
        for step in group.steps:
            try:
                step.submit(lane.device, lane.stream)
                lane.counters.launches += 1
                lane.device.driver.synchronise(lane.stream)
                lane.counters.synchronisations += 1
            except DslcError as error:
                error.place = f"{step.where}: {error.place}"
                raise

    def _copy_out(self) -> None:
        lane = self._lane
        for span in self._spans:
            source = self._bases[span.region] + span.offset
            lane.device.driver.copy_out(self._slot.outputs_at + span.at, source, span.bytes, lane.stream)
            lane.counters.bytes_out += span.bytes

    def watch(self, see: Callable[[str, str, Sequence[NDArray[Any]]], None]) -> None:
        """Instruction by instruction; bits are those of ``run``. bf16 is shown as f32."""
        lane = self._lane
        with lane.device:
            self._send(self._slot)
            lane.device.driver.synchronise(lane.stream)
        for instruction in self._plan.instructions:
            steps = tuple(item for _, item in self._binder.placed(instruction) if not isinstance(item, Mark))
            if not steps:
                continue
            with lane.device:
                self._submit(Group(None, steps, False))
                found = [self._read(self._plan.buffers[index]) for index in results(instruction)]
            see(type(instruction).__name__.lower(), steps[0].where, found)

    def _read(self, buffer: Buffer) -> NDArray[Any]:
        out = np.empty(buffer.shape, numpy_dtype(buffer.dtype))
        if out.nbytes:
            assert out.nbytes == buffer.bytes and out.itemsize == ITEMSIZE[buffer.dtype]
            lane = self._lane
            source = self._bases[buffer.region] + buffer.offset
            lane.device.driver.copy_out(out.ctypes.data, source, out.nbytes, lane.stream)
            lane.device.driver.synchronise(lane.stream)
        return (out.astype(np.uint32) << 16).view(np.float32) if buffer.dtype == "bf16" else out
