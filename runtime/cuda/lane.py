"""A caller's resources on a GPU: streams, io and work blocks, and two slots that alternate.

A slot carries the inputs and results of one run, and is free again when that run is done. So at most two runs are in
flight, and the host prepares the second while the device executes the first. Training steps have an io block in each
slot, with one frame or several; a frame is the io of one step. So the inputs of a run reach the device during the
previous run, and a run may have several steps. The updates of a model with shards have two slots of their own, so that
the host is a whole step ahead.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.cuda.arrays.pinned import Block, Blocks, pinned
from dslc.runtime.cuda.sizes import SLOTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.arrays.arrays import DeviceArray
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.cuda.sizes import LaneSizes


class Pending(Protocol):
    """Results that are still in a slot, unless they are ``settled``."""

    @property
    def settled(self) -> bool: ...

    def settle(self) -> None:
        """Wait for the results and copy them, because the slot is needed."""
        ...

    def fail(self, error: DslcError) -> None:
        """Mark the results as lost; reading them raises this error."""
        ...


class DeviceInput(NamedTuple):
    """An input that is already on the device; ``offset`` is its place in its frame."""

    frame: int
    name: str
    offset: int
    array: DeviceArray


@dataclass(eq=False, slots=True)
class Slot:
    """``inputs``: pinned host memory, u8, and its address; ``outputs``: that of the results. ``io``: the frames of
    training steps on the device, 0 if there are none. ``arrived``: the inputs have reached the frames; ``done``: the
    results have reached ``outputs``. ``run``: the number of its last run, whose ``done`` is recorded; ``seen``: that of
    the last run known to be done. ``placed`` and ``sent``: inputs of the next run that are on the device, or on their
    way from ``inputs``."""

    inputs: NDArray[np.uint8]
    inputs_at: int
    outputs: Block
    io: int
    arrived: Any
    done: Any
    run: int = 0
    seen: int = 0
    pending: weakref.ref[Pending] | None = None
    placed: list[DeviceInput] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return self.seen != self.run


@dataclass(slots=True)
class Counters:
    """The work of a lane. ``synchronisations``: by the host during runs; ``waits``: for results, or for a slot."""

    graph_launches: int = 0
    launches: int = 0
    synchronisations: int = 0
    waits: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Slots:
    """Two slots that alternate. ``blocks``: what they have for results."""

    def __init__(self, lane: Lane, both: Sequence[Slot], blocks: Blocks) -> None:
        self.both, self.blocks = both, blocks
        self._lane, self._turn = lane, 0

    def next(self) -> Slot:
        """The slot with the older run, after that run is done."""
        self._turn = (self._turn + 1) % SLOTS
        slot = self.both[self._turn]
        self._lane.settle(slot)
        if not slot.outputs.free:
            slot.outputs = self.blocks.take([each.outputs for each in self.both])
        return slot


class Lane:
    """One caller at a time. The device's context must be current where the lane is made."""

    def __init__(self, device: Device, sizes: LaneSizes, owned: Owned) -> None:
        """``owned`` takes what is to be let go of, in the order that the device needs."""
        self.device = device
        self.owner: object = None  # the object that must live as long as results in the slots
        self.counters = Counters()
        self.frame = sizes.frame
        driver = device.driver
        # Memory is let go of last: when the streams are idle.
        self.io = _block(device, sizes.io, owned)
        self.work = _block(device, sizes.work, owned)
        self.contexts = {layout: _block(device, size, owned) for layout, size in sizes.contexts.items()}
        wanted = [(sizes.inputs, sizes.outputs, sizes.frame * sizes.steps)]
        wanted += [(*sizes.update, 0)] if sizes.update is not None else []
        blocks = [Blocks(device, outputs, SLOTS, owned) for _, outputs, _ in wanted]
        parts = [
            [(*pinned(device, inputs, owned.noted), block, _block(device, frames, owned)) for block in of.all]
            for of, (inputs, _, frames) in zip(blocks, wanted)
        ]
        # that of updates: another one, with work and a stream of its own, if these begin while a shard runs
        self.updating = self
        self.stream = idle_stream(device, owned)
        self.copies = idle_stream(device, owned)
        pairs = [[Slot(*part, _event(device, owned), _event(device, owned)) for part in pair] for pair in parts]
        self.all_slots = [slot for pair in pairs for slot in pair]
        self.slots, self.slots_of_updates = Slots(self, pairs[0], blocks[0]), Slots(self, pairs[-1], blocks[-1])
        twin = _block(device, sizes.twin, owned) if sizes.twin else 0
        frames = ((slot.io, sizes.frame * sizes.steps, self.copies) for slot in self.slots.both)
        own = ((self.io, sizes.io), (self.work, sizes.work), (twin, sizes.twin or 0))
        for address, size, stream in (*((*block, self.stream) for block in own), *frames):
            if size:  # unwritten memory is 0, as on the CPU
                driver.fill(address, 0, 1, size, stream)
        if sizes.twin is not None:
            self.updating = copy(self)
            self.updating.updating, self.updating.work = self.updating, twin
            self.updating.stream = idle_stream(device, owned)
            driver.record(filled := _event(device, owned), self.stream)
            driver.wait(self.updating.stream, filled)

    @property
    def busy(self) -> bool:
        """False if no run is under way."""
        return any(slot.busy for slot in self.all_slots)

    def settle(self, slot: Slot) -> None:
        """Wait for a slot's run and copy its unread results out of the slot."""
        waiting = slot.pending() if slot.pending is not None else None
        try:
            self.wait_for(slot)
            if waiting is not None and not waiting.settled:
                waiting.settle()
        except DslcError as error:
            if waiting is not None:
                waiting.fail(error)
            slot.pending = None
            raise
        slot.pending = None  # only now: an interrupt may come before the copies are complete
        slot.placed.clear()
        slot.sent.clear()

    def recover(self, slot: Slot) -> None:
        """After a failed call of a run: wait for the work submitted before it, so that the slot is free again."""
        with suppress(DslcError), self.device:  # report the original error instead
            self.device.driver.synchronise(self.copies)
            self.device.driver.synchronise(self.stream)
        slot.seen = slot.run

    def drained_by(self, owned: Owned) -> None:
        """Have ``owned`` wait until nothing runs here, before it lets go of what it has taken so far."""
        for stream in dict.fromkeys((self.stream, self.copies, self.updating.stream)):
            owned.on_close(partial(_drain, self.device, stream))

    def wait_for(self, slot: Slot) -> None:
        """Wait for the slot's last run; for any thread, with or without the device's context."""
        run = slot.run
        if slot.seen == run:
            return
        with self.device as device:
            if not device.driver.done(slot.done):
                self.counters.waits += 1
                device.driver.wait_host(slot.done)
        slot.seen = run  # of two threads the slower one may write an older number, which costs another query


def _block(device: Device, size: int, owned: Owned) -> int:
    """The address of ``size`` bytes; 0 for none."""
    if not size:
        return 0
    return device.pool.allocate(size, owned.noted).address


def idle_stream(device: Device, owned: Owned) -> Any:
    """A stream that is idle before it is destroyed, and before what was taken earlier is let go of."""
    stream = device.driver.stream(owned.noted)
    owned.on_close(partial(_drain, device, stream))
    return stream


def _drain(device: Device, stream: Any) -> None:
    if device.driver.lost is None:
        device.driver.synchronise(stream)


def _event(device: Device, owned: Owned) -> Any:
    return device.driver.event(owned.noted)
