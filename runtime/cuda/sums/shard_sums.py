"""The sums over the shards of a step in device memory: of one GPU, or of several that exchange them.

The tree is that of ``shard_sum.py``. What a shard gives lies side by side in the frame of its run. If all of it has the
dtype of the sums, it lies as the update reads them, and each level of the tree is one addition of whole vectors. Else
``Gathering`` adds what two shards give, and writes f32 where the update reads the sums. Nothing passes through the host
but loss and metrics. ``exchange.py`` has the part of several GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dslc.runtime.cuda.sizes import SLOTS
from dslc.runtime.cuda.sums.exchange import DeviceExchange, Transport
from dslc.runtime.cuda.sums.gathering import Gathered, Kernels, Tables
from dslc.runtime.cuda.sums.pinned_numbers import PinnedNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Buffer
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.device_state import DeviceState
    from dslc.runtime.cuda.executor import DevicePlan
    from dslc.runtime.cuda.lane import Lane
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.cuda.sums.layout import Layout
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes
    from dslc.runtime.session.backend import Bound, Change, Feed, LateOutputs, Outputs
    from dslc.runtime.session.calls.shard_sum import Exchange

    #: What moves bytes to the other processes of a group; takes the sums' memory now, and with the group.
    Connect = Callable[[Exchange, SumSizes, SumSizes], Transport]


class DeviceSums:
    """Implements ``Sums`` for one lane at a time. OutOfMemory R401 if the device has no room for the sums."""

    def __init__(
        self,
        layout: Layout,
        sizes: SumSizes,
        device: Device,
        kernels: Kernels,
        owned: Callable[[], Owned],
        connect: Connect,
        state: DeviceState,
        flags: Buffer,
    ) -> None:
        """``sizes``: for one process; ``owned`` makes an owner that the session closes when its streams are idle.
        ``state``: what the update changes; ``flags``: what it tells of gradients."""
        self._layout, self._terms, self._sizes, self._device = layout, layout.terms, sizes, device
        self._state, self._flags = state, flags
        self._kernels, self._addition = kernels, kernels.addition(layout.terms.dtype)
        self._new_owner, self._connect = owned, connect
        self._lane: Lane | None = None
        self._take(0, None)
        self.begin()

    def join(self, group: Exchange) -> None:
        with self._device as device:
            if self._lane is not None:
                device.driver.synchronise(self._lane.stream)
            wanted = self._sizes.of(group.size)
            transport = self._connect(group, wanted.of(1), wanted)
            self._owned.close()
            self._sizes = wanted
            self._take(group.rank, transport)
        self.begin()

    def _take(self, rank: int, transport: Transport | None) -> None:
        """Take the memory for this process's part of the sums."""
        sizes, self._rank = self._sizes, rank
        self._owns, self._runs = sizes.owned, sizes.owned * sizes.each
        device, self._owned = self._device, self._new_owner()
        noted = self._owned.noted
        with self._owned:
            self._stores = [device.pool.allocate(sizes.vector, noted).address for _ in range(sizes.stores)]
            self._rows = device.pool.allocate(sizes.rows, noted).address if sizes.rows else 0
            self._whole = [] if sizes.as_given else self._gathered()
            self._exchange = None
            if transport is not None and sizes.processes > 1:
                parts = device, self._kernels, transport, self._state, self._owned
                self._exchange = DeviceExchange(sizes, rank, *parts)
            self._turns = [PinnedNumbers(device, max(sizes.rows, 1), self._owned) for _ in range(SLOTS)]
            self._updated = device.driver.event(noted)
            self._tellers = [PinnedNumbers(device, max(sizes.told, 1), self._owned) for _ in range(SLOTS)]

    def _gathered(self) -> list[Gathered]:
        """How what two shards give is added."""
        sizes, device = self._sizes, self._device
        if not sizes.table:
            return []
        tables = Tables(self._kernels, device.pool.allocate(sizes.table, self._owned.noted).address)
        found = [tables.of(span) for span in self._terms.spans(0, sizes.vector)]
        tables.send(device)
        return found

    def begin(self) -> None:
        self._ran = 0
        self._done = 0  # shards
        self._told: Sequence[Any] = ()
        self._running = 0  # the sum of a shard's micro-batches so far
        self._waiting: dict[int, int] = {}  # level of the tree -> the sum that waits for its right neighbour

    def run(self, shard: Bound) -> None:
        plan = cast("DevicePlan", shard)
        plan.run()
        lane, self._told = plan.lane, [event for _, event in plan.told]
        self._lane = lane
        number = self._rank * self._runs + self._ran
        self._ran += 1
        with self._device as device:
            if self._rows:
                row = self._rows + number * self._layout.row
                device.driver.copy(row, plan.io + self._layout.numbers, self._layout.row, lane.stream)
            self._add_run(plan.io + self._terms.first, lane)

    def _add_run(self, vector: int, lane: Lane) -> None:
        """Add the next micro-batch's vector to the sum of those before it, in its own place: the frames of two runs in
        a row are different ones. The last sum is the shard's; a left neighbour's goes to a store, as frames do not
        last so long."""
        each, place = self._sizes.each, self._ran % self._sizes.each
        if each > 1:
            left = self._owns > 1 and self._done % 2 == 0
            target = self._stores[0] if place == 0 and left else vector
            if place != 1:
                self._addition.add(target, self._running, vector, self._terms.bytes, lane.stream)
            self._running = vector = target
        if place == 0:
            self._add(vector, lane)

    def _add(self, vector: int, lane: Lane) -> None:
        """Add what the next shard gives. A level's sum waits in a store, unless it is added at once, or is the last: it
        then lies where the update reads."""
        self._done += 1
        level, right = 0, vector
        while self._done % (2 << level) == 0 and 2 << level <= self._owns:
            goes_on = self._done % (4 << level) == 0 or 2 << level == self._owns
            target = lane.io + self._terms.read if goes_on else self._stores[level + (self._sizes.each > 1)]
            left = self._waiting.pop(level)
            if level == 0 and self._whole:
                for span in self._whole:
                    span.add(target, left + span.given, right + span.given, lane.stream)
            else:
                self._addition.add(target, left, right, self._terms.bytes, lane.stream)
            level, right = level + 1, target
        self._waiting[level] = right

    def total(self) -> Mapping[str, NDArray[Any]]:
        self._started()
        with self._device:
            for stage in range(self.count if self._exchange is not None else 0):
                self.before(stage)
        return {}

    def updated(self, feed: Feed, change: Change) -> Outputs:
        lane = self._started()
        plan = cast("DevicePlan", feed({}))
        exchange = self._exchange
        if exchange is None:
            return plan.run(change)
        outputs = plan.run(change, self)
        return outputs if self._sizes.share is None else self._all_told(outputs, lane.updating)

    def before(self, stage: int) -> None:
        """The lane begins a stage of the update."""
        assert self._exchange is not None and self._lane is not None
        if stage == self.count - 1:
            with self._device:
                self._send_numbers(self._exchange.stream)
        self._exchange.complete(stage, self._lane.updating)

    def after(self, stage: int) -> None:
        """The lane has begun all of a stage of the update."""
        assert self._exchange is not None and self._lane is not None
        flags = self._lane.io + self._flags.offset, self._flags.bytes
        self._exchange.spread(stage, flags, self._lane.updating)

    @property
    def count(self) -> int:
        """The number of stages."""
        return 1 if self._exchange is None else self._exchange.stages

    def _started(self) -> Lane:
        """Begin the exchange. Loss and metrics go to the host now, or with the last stage of an exchange."""
        lane = self._lane
        assert lane is not None and self._done == self._owns, "the tree is not complete"
        self._turns.reverse()
        self._turns[0].settle()
        with self._device:
            if self._exchange is None:
                self._send_numbers(lane.stream)
            else:
                [own], row = self._waiting.values(), self._runs * self._layout.row
                self._exchange.begin(own, lane.io + self._terms.read, self._rows, row, lane, self._told)
        self._numbers = self._turns[0].numbers(self._layout, self._sizes.shards * self._sizes.each)
        return lane

    def _send_numbers(self, stream: Any) -> None:
        """Send loss and metrics of all runs to the host: after their exchange on its stream, so no update waits."""
        turn, driver = self._turns[0], self._device.driver
        if self._rows:
            driver.copy_out(turn.address, self._rows, self._sizes.rows, stream)
        driver.record(turn.arrived, stream)

    def _all_told(self, outputs: Outputs, lane: Lane) -> Outputs:
        """The outputs of an update with what those of all processes tell of gradients."""
        assert self._exchange is not None
        turn = self._tellers[0]
        self._tellers.reverse()
        turn.settle()
        with self._device as device:
            device.driver.record(self._updated, lane.stream)
            self._state.written_by(lane, self._updated)
            device.driver.copy_out(turn.address, self._exchange.told, self._sizes.told, lane.stream)
            device.driver.record(turn.arrived, lane.stream)
        return turn.flags(cast("LateOutputs", outputs), self._flags, self._sizes.processes)

    def numbers(self) -> Sequence[Outputs]:
        return self._numbers
