"""The sums over the shards of a step in device memory: of one GPU, or of several that exchange them.

The tree is that of ``shard_sum.py``. A shard's gradients and buffers lie side by side in the frame of its run, and the
update reads their sums side by side in its io, at the same distances: each level of the tree is one addition of whole
vectors. Nothing passes through the host but loss and metrics.

Of several GPUs, rank r receives the r-th part of every rank's sum and adds these. If it has a share of the update, this
is its slices of the gradients; after the update it sends the parameters of its slices to all. Else, and of all that
other ranks read, it sends its part of the total to all. NCCL moves bytes, and only ``Addition`` adds. All of it follows
on the lane's stream. The host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from dslc.runtime.cuda.sizes import SLOTS, SumSizes
from dslc.runtime.cuda.sums.addition import Addition
from dslc.runtime.cuda.sums.pinned_numbers import PinnedNumbers
from dslc.runtime.session.backend import LateOutputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Buffer
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.device_state import DeviceState
    from dslc.runtime.cuda.executor import DevicePlan
    from dslc.runtime.cuda.lane import Lane
    from dslc.runtime.cuda.libraries.nccl import Nccl
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.cuda.sums.layout import Layout
    from dslc.runtime.session.backend import Bound, Outputs
    from dslc.runtime.session.calls.shard_sum import Exchange

    #: The communicator of this process with the others of a group; takes the sums' memory now, and with the group.
    Connect = Callable[[Exchange, SumSizes, SumSizes], Nccl]


class DeviceSums:
    """Implements ``Sums`` for one lane at a time. OutOfMemory R401 if the device has no room for the sums."""

    def __init__(
        self,
        layout: Layout,
        sizes: SumSizes,
        device: Device,
        addition: Addition,
        owned: Callable[[], Owned],
        connect: Connect,
        state: DeviceState,
        flags: Buffer,
    ) -> None:
        """``sizes``: for one process; ``owned`` makes an owner that the session closes when its streams are idle.
        ``state``: what the update changes; ``flags``: what it tells of gradients."""
        self._layout, self._sizes, self._device = layout, sizes, device
        self._state, self._flags = state, flags
        self._addition, self._new_owner, self._connect = addition, owned, connect
        self._nccl: Nccl | None = None
        self._lane: Lane | None = None
        self._take(0, 1)
        self.begin()

    def join(self, group: Exchange) -> None:
        with self._device as device:
            if self._lane is not None:
                device.driver.synchronise(self._lane.stream)
            wanted = self._sizes.of(group.size)
            self._nccl = self._connect(group, wanted.of(1), wanted)
            self._owned.close()
            self._take(group.rank, group.size)
        self.begin()

    def _take(self, rank: int, size: int) -> None:
        """Take the memory for this process's part of the sums."""
        self._rank, self._size = rank, size
        sizes = self._sizes = self._sizes.of(size)
        self._owns, self._runs = sizes.owned, sizes.owned * sizes.each
        device, self._owned = self._device, self._new_owner()
        noted = self._owned.noted
        with self._owned:
            self._stores = [device.pool.allocate(sizes.vector, noted).address for _ in range(sizes.stores)]
            incoming = device.pool.allocate(sizes.incoming, noted).address if sizes.incoming else 0
            others = [r for r in range(size) if r != rank]
            self._incoming = {r: incoming + n * sizes.part for n, r in enumerate(others)}
            self._rows = device.pool.allocate(sizes.rows, noted).address if sizes.rows else 0
            told = sizes.told
            self._told = device.pool.allocate(told, noted).address if told else 0
            self._turns = [PinnedNumbers(device, max(sizes.rows, 1), self._owned) for _ in range(SLOTS)]
            self._tellers = [PinnedNumbers(device, max(told, 1), self._owned) for _ in range(SLOTS)]

    def begin(self) -> None:
        self._ran = 0
        self._done = 0  # shards
        self._running = 0  # the sum of a shard's micro-batches so far
        self._waiting: dict[int, int] = {}  # level of the tree -> the sum that waits for its right neighbour

    def run(self, shard: Bound) -> None:
        plan = cast("DevicePlan", shard)
        plan.run()
        lane = self._lane = plan.lane
        number = self._rank * self._runs + self._ran
        self._ran += 1
        with self._device as device:
            if self._rows:
                row = self._rows + number * self._layout.row
                device.driver.copy(row, plan.io + self._layout.numbers, self._layout.row, lane.stream)
            self._add_run(plan.io + self._layout.given, lane)

    def _add_run(self, vector: int, lane: Lane) -> None:
        """Add the next micro-batch's vector to the sum of those before it, in its own place: the frames of two runs in
        a row are different ones. The last sum is the shard's; a left neighbour's goes to a store, as frames do not
        last so long."""
        each, place = self._sizes.each, self._ran % self._sizes.each
        if each > 1:
            left = self._owns > 1 and self._done % 2 == 0
            target = self._stores[0] if place == 0 and left else vector
            if place != 1:
                self._addition.add(target, self._running, vector, self._layout.bytes, lane.stream)
            self._running = vector = target
        if place == 0:
            self._add(vector, lane)

    def _add(self, vector: int, lane: Lane) -> None:
        """Add the next shard's vector, in whose place sums may be written. A level's sum waits in a store, unless the
        next shard takes it: the frames of two runs in a row are different ones."""
        self._done += 1
        level, right = 0, vector
        while self._done % (2 << level) == 0 and 2 << level <= self._owns:
            goes_on = self._done % (4 << level) == 0 and 4 << level <= self._owns
            last = 2 << level == self._owns
            target = right
            if last and self._size == 1:
                target = lane.io + self._layout.read
            elif not (last or goes_on):
                target = self._stores[level + (self._sizes.each > 1)]
            self._addition.add(target, self._waiting.pop(level), right, self._layout.bytes, lane.stream)
            level, right = level + 1, target
        self._waiting[level] = right

    def total(self) -> Mapping[str, NDArray[Any]]:
        lane = self._lane
        assert lane is not None and self._done == self._owns, "the tree is not complete"
        turn = self._turns[0]
        self._turns.reverse()
        turn.settle()
        with self._device as device:
            if self._nccl is not None:
                self._exchange(self._nccl, lane)
            if self._rows:
                device.driver.copy_out(turn.address, self._rows, self._sizes.rows, lane.stream)
            device.driver.record(turn.arrived, lane.stream)
        self._numbers = turn.numbers(self._layout, self._sizes.shards * self._sizes.each)
        return {}

    def _exchange(self, nccl: Nccl, lane: Lane) -> None:
        """Add this process's parts of all sums, and send what others read of the totals. Loss and metrics travel with
        the sums."""
        [own], total, others = self._waiting.values(), lane.io + self._layout.read, self._incoming
        parts = [self._sizes.parts(rank) for rank in range(self._size)]
        mine, row = parts[self._rank], self._runs * self._layout.row
        starts = [0, *accumulate(size for _, size in mine)][: len(mine)]
        rows = [(self._rows + r * row, row) for r in range(self._size)]
        nccl.swap(
            {r: [*((own + at, size) for at, size in parts[r]), rows[self._rank]] for r in others},
            {r: [*((others[r] + s, size) for s, (_, size) in zip(starts, mine)), rows[r]] for r in others},
            lane.stream,
        )
        for start, (at, size) in zip(starts, mine):
            self._add_parts(total + at, [own + at if r == self._rank else others[r] + start for r in range(self._size)],
                            size, lane.stream)  # fmt: skip
        share = self._sizes.share
        read = parts if share is None or share.reads_all else [part[1:] for part in parts]
        if any(size for part in read for _, size in part):
            nccl.swap(
                {r: [(total + at, size) for at, size in read[self._rank]] for r in others},
                {r: [(total + at, size) for at, size in read[r]] for r in others},
                lane.stream,
            )

    def finish(self, outputs: Outputs) -> Outputs:
        share, lane, nccl = self._sizes.share, self._lane, self._nccl
        if share is None or lane is None or nccl is None:
            return outputs
        base, size, others = self._state.address, self._flags.bytes, self._incoming
        ranges = [[(base + at, count) for at, count in share.updated(r)] for r in range(self._size)]
        turn = self._tellers[0]
        self._tellers.reverse()
        turn.settle()
        with self._device as device:
            told = [(self._told + r * size, size) for r in range(self._size)]
            device.driver.copy(told[self._rank][0], lane.io + self._flags.offset, size, lane.stream)
            nccl.swap(
                {r: [*ranges[self._rank], told[self._rank]] for r in others},
                {r: [*ranges[r], told[r]] for r in others},
                lane.stream,
            )
            device.driver.copy_out(turn.address, self._told, self._size * size, lane.stream)
            device.driver.record(turn.arrived, lane.stream)
            self._state.written_by(lane, turn.arrived)
        return turn.flags(cast("LateOutputs", outputs), self._flags, self._size)

    def _add_parts(self, total: int, parts: list[int], size: int, stream: Any) -> None:
        """The upper part of the tree: the sum of all ranks' parts, in whose place sums are written."""
        while len(parts) > 1:
            last = len(parts) == 2
            for left, right in zip(parts[::2], parts[1::2], strict=True):
                self._addition.add(total if last else left, left, right, size, stream)
            parts = parts[::2]

    def numbers(self) -> Sequence[Outputs]:
        return self._numbers
