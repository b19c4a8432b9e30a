"""Runs a plan on a GPU, the counterpart of ``cpu/executor.py``: after binding, a run is a few driver calls.

A run copies the step blocks and the inputs to the device, launches each bulk as one graph, and copies the results back.
The host waits only for an earlier run that uses the same slot. A run may have several training steps: their frames are
filled in turn and copied together, and all the steps are one graph. Instructions outside bulks are launched and awaited
one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cuda.arrays.arrays import DeviceArray
from dslc.runtime.cuda.arrays.inputs import from_pinned, put, send
from dslc.runtime.cuda.binding import Binder, Group
from dslc.runtime.cuda.graphs.graph import Bulk, Join, Placed
from dslc.runtime.cuda.inspection import Inspection
from dslc.runtime.cuda.lane import DeviceInput, Lane, Slot, Slots
from dslc.runtime.cuda.sums.stages import Stages, in_turn
from dslc.runtime.cuda.transfers import (
    DeviceOutputs,
    Results,
    RunResults,
    copy_results,
    from_host,
    input_bytes,
    view_of,
)
from dslc.runtime.session.backend import Change, Measured, OnDevice
from dslc.runtime.session.step_block import StepBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device_state import DeviceState
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.runtime.cuda.modules import Modules
    from dslc.runtime.cuda.owned import Owned

Fetch: TypeAlias = Callable[[int, int], None]
Changes: TypeAlias = Sequence[Change]
_JOIN: Final[Placed] = (0, Join())
_LARGEST_PITCH: Final = 1 << 31  # bytes; the driver does not copy rows with a larger pitch


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """A plan whose io region begins at ``io``. ``groups`` is the work of one step; ``many`` is the steps of all frames
    from ``io`` on as one bulk, None if a run has one step."""

    io: int
    binder: Binder
    groups: Sequence[Group]
    many: Bulk | None


class DevicePlan:
    """A plan bound to a lane's memory. Implements ``DeviceBound``.

    ``slots``: those of the lane for its runs. ``frames``: how many steps of a training entry a run is to hold; 0 for
    another entry, which works in the lane's io. ``context``: the address of the states that it carries from run to run,
    if any. ``once``: it hardly ever runs, and keeps no graphs, whose nodes take memory of the device.
    ``early``: the numbers of instructions after which it records an event, one each of ``told``.
    ``bulk`` as ``Binder.groups`` takes it; only steps that are one bulk run together. Raises what ``Binder`` raises,
    before anything runs. The device's context is current.
    """

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        state: DeviceState,
        modules: Modules,
        libraries: Libraries,
        constants: Callable[[str], bytes | memoryview],
        owned: Owned,
        *,
        name: str,
        slots: Slots,
        frames: int,
        bulk: int | None,
        context: int | None = None,
        once: bool = False,
        early: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.told = [(number, lane.device.driver.event(owned.noted)) for number in early]
        self.lane = lane
        self._plan, self._lane, self._state = plan, lane, state
        self._in_frames = frames > 0
        self._input_bytes, self._results = input_bytes(plan), Results(plan)
        self._step_block = StepBlock(plan.scalars, name)

        bases = {"state": state.address, "prepared": state.prepared, "work": lane.work}
        bases |= {} if context is None else {"context": context}

        def binder(io: int) -> Binder:
            return Binder(plan, {**bases, "io": io}, modules, libraries, name)

        def bound(io: int) -> _Bound:
            groups = binder(io).groups(lane, bulk, owned, once=once, told=self.told)
            together = frames > 1 and [g.bulk is not None for g in groups] == [True] and self._results.in_io
            together = together and lane.frame < _LARGEST_PITCH
            many = None
            if together:
                binders = [binder(io + frame * lane.frame) for frame in range(frames)]
                placed = [p for b in binders for p in (_JOIN, *(p for i in plan.instructions for p in b.placed(i)))]
                many = Bulk(lane.device, placed, lane.stream, owned)
            return _Bound(io, binder(io), groups, many)

        ios = [slot.io if self._in_frames else lane.io for slot in slots.both]
        found = {io: bound(io) for io in dict.fromkeys(ios)}
        self._of_slot = {id(slot): found[io] for slot, io in zip(slots.both, ios)}
        self.steps = frames if all(b.many is not None for b in found.values()) else 1
        self._views = {id(slot): [self._input_views(slot, n) for n in range(self.steps)] for slot in slots.both}
        first = found[ios[0]]
        self._constants = [
            (first.binder.address(c.buffer), constants(c.blob)[c.offset : c.offset + plan.buffers[c.buffer].bytes])
            for c in plan.constants
        ]
        writers = [number for number, group in enumerate(first.groups) if group.writes_state]
        # the state is torn between these groups; for a plan that writes nothing, the last group ends its change
        last = len(first.groups) - 1
        self._writes_state = bool(writers)
        self._first_write, self._last_write = (writers[0], writers[-1]) if writers else (last, last)
        self._slots, self._slot, self._frame = slots, slots.both[0], 0

    @property
    def io(self) -> int:
        """The address of the io region of the run that was begun last."""
        return self._of_slot[id(self._slot)].io

    # Before a run

    def begin(self, step: int = 0) -> None:
        if not step:
            try:
                self._slot = self._slots.next()
            except DslcError as error:  # an error of the previous run, usually of this program
                error.place = f"{self.name}: {error.place}"
                raise
        self._frame = step

    def _input_views(self, slot: Slot, frame: int) -> dict[str, NDArray[Any]]:
        ports = ((port.name, self._plan.buffers[port.buffer]) for port in from_host(self._plan))
        return {name: view_of(slot.inputs, frame * self._lane.frame + b.offset, b) for name, b in ports}

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        return self._views[id(self._slot)][self._frame]

    def inputs_of(self, count: int) -> Mapping[str, NDArray[Any]]:
        def stacked(first: NDArray[Any]) -> NDArray[Any]:
            strides = (self._lane.frame, *first.strides)
            return np.lib.stride_tricks.as_strided(first, (count, *first.shape), strides)

        return {name: stacked(first) for name, first in self._views[id(self._slot)][0].items()}

    def put(self, name: str, array: NDArray[Any], *, once: bool = False) -> None:
        put(self._lane, self._slot, None if self._in_frames else self.io, name, self.inputs[name], array, once=once)

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        self._step_block.write(self._slot.inputs, self._frame * self._lane.frame, values)

    def place(self, name: str, array: OnDevice, row: int = 0) -> None:
        [port] = [p for p in self._plan.inputs if p.name == name]
        buffer = self._plan.buffers[port.buffer]
        assert isinstance(array, DeviceArray) and array.dtype == buffer.dtype
        offset = buffer.offset + (row * buffer.bytes // buffer.shape[0] if row else 0)
        self._slot.placed.append(DeviceInput(self._frame, name, offset, array))

    def load_constants(self) -> None:
        if self._constants:
            with self._lane.device as device:
                for address, data in self._constants:
                    raw = np.frombuffer(data, np.uint8)
                    device.driver.copy_in(address, raw.ctypes.data, raw.nbytes, self._lane.stream)

    # Runs

    def run(self, change: Change | None = None, stages: Stages | None = None) -> DeviceOutputs:
        return self.run_steps(1, () if change is None else (change,), stages)[0]

    def run_steps(self, count: int, changes: Changes = (), stages: Stages | None = None) -> list[DeviceOutputs]:
        self._start(count, self._copy_out, changes, stages)
        run = RunResults(self._lane, slot := self._slot, self._slots.blocks, self.name, self._results, count)
        slot.pending = weakref.ref(run)
        return [DeviceOutputs(run, step) for step in range(count)]

    def run_into(self, targets: Mapping[str, OnDevice]) -> None:
        io = self._of_slot[id(self._slot)].binder

        def fetch(first: int, count: int) -> None:
            for port in self._plan.outputs:
                target = targets.get(port.name)
                if isinstance(target, DeviceArray) and target.nbytes:
                    source = io.address(port.buffer)
                    self._lane.device.driver.copy(target.address, source, target.nbytes, self._lane.stream)

        self._start(1, fetch, ())
        self._lane.wait_for(self._slot)
        self._slot.placed.clear()

    def _start(self, count: int, fetch: Fetch, changes: Changes, stages: Stages | None = None) -> None:
        """Submit inputs, steps and ``fetch`` (first step, count), and record the end. If that fails, no work remains in
        flight, and the state is torn if anything was to write it. After an interrupt it is torn if not all writes were
        submitted."""
        lane, slot = self._lane, self._slot
        bound = self._of_slot[id(slot)]
        begun = False
        try:
            with lane.device as device:
                self._send(slot, bound.io, count)
                if bound.many is not None and count == self.steps:
                    begun = bool(changes)
                    bound.many.launch(lane.stream, Change(changes[0].begin, changes[-1].end) if begun else None)
                    lane.counters.graph_launches += 1
                    fetch(0, count)
                else:
                    for step in range(count):
                        if step:  # single steps use the first frame
                            frame = bound.io + step * lane.frame
                            device.driver.copy(bound.io, frame, self._input_bytes, lane.stream)
                        change = changes[step] if changes else None
                        for number, group in in_turn(bound.groups, stages):
                            begun = begun or (change is not None and group.writes_state)
                            self._submit(group, self._part(change, number))
                        fetch(step, 1)
                device.driver.record(slot.done, lane.stream)
                if self._writes_state:
                    self._state.written_by(lane, slot.done)
                slot.run += 1
        except BaseException as error:
            lane.recover(slot)
            if isinstance(error, DslcError):
                if begun:
                    changes[0].begin()
                error.place = f"{self.name}: {error.place}"
            raise

    def _send(self, slot: Slot, io: int, count: int) -> None:
        """Copies inputs and step blocks of ``count`` steps to ``io``."""
        self._state.wait_for_others(self._lane)
        if self._input_bytes:
            spans = from_pinned(self._plan, self._input_bytes, slot, count, self._lane.frame)
            send(self._lane, slot, io, spans, count, in_frames=self._in_frames)

    def _part(self, change: Change | None, number: int) -> Change | None:
        """The part of a state change for the group with this number: the last writing group ends the change."""
        if change is None or not self._first_write <= number <= self._last_write:
            return None
        return change if number == self._last_write else Change(change.begin, change.begin)

    def _submit(self, group: Group, change: Change | None = None) -> None:
        lane = self._lane
        if group.bulk is not None:
            group.bulk.launch(lane.stream, change)
            lane.counters.graph_launches += 1
            return
        if change is not None:
            change.begin()
        for step in group.steps:
            try:
                step.submit(lane.device, lane.stream)
                lane.counters.launches += 1
                if group.waits:
                    lane.device.driver.synchronise(lane.stream)
                    lane.counters.synchronisations += 1
            except DslcError as error:
                error.place = f"{step.where}: {error.place}"
                raise
        if change is not None:
            change.end()

    def _copy_out(self, first: int, count: int) -> None:
        slot = self._slot
        copy_results(self._lane, slot, self._of_slot[id(slot)].binder, self._results, first, count)

    def watch(self, see: Callable[[str, str, Sequence[NDArray[Any]]], None]) -> None:
        """Runs instruction by instruction; the bits are those of ``run``. bf16 is shown as f32."""
        self._inspection().watch(see)

    def measure(self, rounds: int) -> Measured:
        return self._inspection().measure(rounds)

    def repeat(self, count: int) -> float:
        return self._inspection().repeat(self._of_slot[id(self._slot)].groups, count)

    def _inspection(self) -> Inspection:
        slot, bound = self._slot, self._of_slot[id(self._slot)]
        send = partial(self._send, slot, bound.io, 1)
        return Inspection(self._plan, self._lane, slot, bound.binder, send, self._submit)
