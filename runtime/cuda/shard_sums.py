"""The sums over the shards of a step in device memory: of one GPU, or of several that exchange them.

The tree is that of ``shard_sum.py``. A shard's gradients and buffers lie side by side in the frame of its run, and the
update reads their sums side by side in its io, at the same distances: each level of the tree is one addition of whole
vectors. Nothing passes through the host but loss and metrics.

Of several GPUs, rank r receives the r-th part of every rank's sum, adds these, and sends its part of the total to all.
NCCL moves bytes, and only ``Addition`` adds. All of it follows on the lane's stream. If asked (``in_buckets``), a rank
with one shard exchanges buckets on a stream of its own while it computes later gradients. The host waits for nothing.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dslc.base.errors import ArtifactError, DslcError
from dslc.runtime.artifact.interface import micro_batches_of, shards_of
from dslc.runtime.cuda.addition import Addition
from dslc.runtime.cuda.buckets import Bucket, Ranges, buckets_of, in_buckets, merged, parts_of
from dslc.runtime.cuda.lane import idle_stream
from dslc.runtime.cuda.sizes import SLOTS, SUM_ALIGNMENT, SumSizes, aligned_sum
from dslc.runtime.cuda.transfers import to_host, view_of
from dslc.runtime.session.backend import LateOutputs
from dslc.runtime.session.calls.shard_sum import Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Buffer, Plan
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.executor import DevicePlan
    from dslc.runtime.cuda.lane import Lane
    from dslc.runtime.cuda.libraries.nccl import Nccl
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.session.backend import Bound, Outputs
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Loaded

    #: The communicator of this process with the others of a group; takes the sums' memory now, and with the group.
    Connect = Callable[[Exchange, SumSizes, SumSizes], Nccl]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a shard's io has what is added (from ``given`` on, ``bytes``) and loss and metrics (from ``numbers`` on,
    ``row`` bytes), and where the update's io has the sums (from ``read`` on). In bytes.

    ArtifactError R301 for plans that do not fit each other."""

    dtype: str
    given: int
    bytes: int
    read: int
    numbers: int
    row: int
    buckets: tuple[Bucket, ...]
    ports: tuple[tuple[str, str, Buffer], ...]

    @staticmethod
    def of(shard: Plan, update: Plan) -> Layout:
        parts = Parts(shard, update)  # checks dtypes and shapes
        given = {p.name: shard.buffers[p.buffer] for p in shard.outputs if p.kind == "shard"}
        wanted = {p.name: update.buffers[p.buffer] for p in update.inputs}
        first, read = (min(b.offset for b in each.values()) for each in (given, wanted))
        size = max(buffer.end for buffer in given.values()) - first
        ports = tuple((port.name, port.kind, shard.buffers[port.buffer]) for port in to_host(shard))
        start = min((b.offset for _, _, b in ports), default=0)
        end = max((b.end for _, _, b in ports), default=0)
        apart = all(wanted[name].offset - read == buffer.offset - first for name, buffer in given.items())
        inside = any(first < b.end and b.offset < first + size for _, _, b in ports)
        places = {b.region for b in (*given.values(), *wanted.values(), *(b for _, _, b in ports))}
        if not apart or inside or places != {"io"} or first % SUM_ALIGNMENT or read % SUM_ALIGNMENT:
            raise ArtifactError("R301", "`update_step` reads the sums at other places than `train_step` gives them",
                                place="programs", help="build the artifact again")  # fmt: skip
        dtype = next(b.dtype for b in given.values())
        assert parts.dtype.itemsize == (8 if dtype == "f64" else 4)
        size = aligned_sum(size)
        whole = Bucket(len(shard.instructions) - 1, ((0, size),))
        buckets = tuple(buckets_of(shard)) if in_buckets() else (whole,)
        return Layout(dtype, first, size, read, start, aligned_sum(end - start), buckets, ports)


def sums_of(programs: Sequence[Loaded], interface: Mapping[str, Any]) -> list[SumSizes]:
    """The memory that one process takes for the sums of each training step among a session's programs; none without
    shards. ``interface``: that of a header. ArtifactError R301 as ``Layout.of``."""
    shards, each = shards_of(interface), micro_batches_of(interface)
    updates = {tuple(p.sizes.items()): p for p in programs if p.entry == "update_step"}
    steps = [p for p in programs if p.entry == "train_step"] if shards > 1 else []
    layouts = (Layout.of(p.plan, updates[tuple(p.sizes.items())].plan) for p in steps)
    return [SumSizes(layout.bytes, layout.row, shards, each=each) for layout in layouts]


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
    ) -> None:
        """``sizes``: for one process; ``owned`` makes an owner that the session closes when its streams are idle."""
        self._layout, self._sizes, self._device = layout, sizes, device
        self._addition, self._new_owner, self._connect = addition, owned, connect
        self._nccl: Nccl | None = None
        self._lane: Lane | None = None
        self._take(0, 1)
        self.begin()

    def join(self, group: Exchange) -> None:
        with self._device as device:
            if self._lane is not None:
                device.driver.synchronise(self._lane.stream)
            wanted = replace(self._sizes, processes=group.size)
            self._nccl = self._connect(group, replace(wanted, processes=1), wanted)
            self._owned.close()
            self._take(group.rank, group.size)
        self.begin()

    def _take(self, rank: int, size: int) -> None:
        """Take the memory for this process's part of the sums."""
        self._rank, self._size = rank, size
        sizes = self._sizes = replace(self._sizes, processes=size)
        self._owns, self._runs = sizes.owned, sizes.owned * sizes.each
        device, self._owned = self._device, self._new_owner()
        noted = self._owned.noted
        with self._owned:
            self._stores = [device.pool.allocate(sizes.vector, noted).address for _ in range(sizes.stores)]
            incoming = device.pool.allocate(sizes.incoming, noted).address if sizes.incoming else 0
            others = [r for r in range(size) if r != rank]
            self._incoming = {r: incoming + n * sizes.part for n, r in enumerate(others)}
            self._rows = device.pool.allocate(sizes.rows, noted).address if sizes.rows else 0
            self._turns = [_Turn(device, max(sizes.rows, 1), self._owned) for _ in range(SLOTS)]
            if size > 1 and in_buckets():
                self._exchanges = idle_stream(device, self._owned)
                self._ready, self._added = (device.driver.event(noted) for _ in range(2))

    def begin(self) -> None:
        self._ran = 0
        self._done = 0  # shards
        self._sent = 0  # buckets whose exchange has begun
        self._running = 0  # the sum of a shard's micro-batches so far
        self._waiting: dict[int, int] = {}  # level of the tree -> the sum that waits for its right neighbour

    def run(self, shard: Bound) -> None:
        plan = cast("DevicePlan", shard)
        if self._nccl is not None and self._runs == 1:
            plan.submitted = partial(self._send, self._nccl, plan)
        try:
            plan.run()
        finally:
            plan.submitted = None
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
                self._finish(self._nccl, lane)
            if self._rows:
                device.driver.copy_out(turn.address, self._rows, self._sizes.rows, lane.stream)
            device.driver.record(turn.arrived, lane.stream)
        self._numbers = turn.numbers(self._layout, self._sizes.shards * self._sizes.each)
        return {}

    def _send(self, nccl: Nccl, plan: DevicePlan, index: int) -> None:
        """Exchange the buckets that are complete after this instruction, but the last one."""
        buckets, driver = self._layout.buckets, self._device.driver
        while self._sent < len(buckets) - 1 and buckets[self._sent].after <= index:
            driver.record(self._ready, plan.lane.stream)
            driver.wait(self._exchanges, self._ready)
            own, total = plan.io + self._layout.given, plan.lane.io + self._layout.read
            self._exchange(nccl, buckets[self._sent].ranges, own, total, self._exchanges)
            self._sent += 1

    def _finish(self, nccl: Nccl, lane: Lane) -> None:
        """Exchange what is left, and loss and metrics; the lane waits for all sums."""
        [own] = self._waiting.values()
        rest = merged([each for bucket in self._layout.buckets[self._sent :] for each in bucket.ranges])
        row = self._runs * self._layout.row
        rows = {r: (self._rows + r * row, row) for r in range(self._size)}
        driver, stream = self._device.driver, self._exchanges if self._sent else lane.stream
        if self._sent:
            driver.record(self._ready, lane.stream)
            driver.wait(stream, self._ready)
        self._exchange(nccl, rest, own, lane.io + self._layout.read, stream, rows)
        if self._sent:
            driver.record(self._added, stream)
            driver.wait(lane.stream, self._added)

    def _exchange(
        self,
        nccl: Nccl,
        ranges: Ranges,
        own: int,
        total: int,
        stream: Any,
        rows: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        """Add ranges of all ranks' vectors, of which this one's begins at ``own``, to ``total``. ``rows``: where each
        rank's loss and metrics lie, if these are exchanged, too."""
        parts, others = parts_of(ranges, self._size), self._incoming
        mine = parts[self._rank]
        starts = [0, *accumulate(size for _, size in mine)][: len(mine)]
        sent, taken = ([rows[self._rank]], {r: [rows[r]] for r in others}) if rows else ([], {r: [] for r in others})
        nccl.swap(
            {r: [*((own + at, size) for at, size in parts[r]), *sent] for r in others},
            {r: [*((others[r] + s, size) for s, (_, size) in zip(starts, mine)), *taken[r]] for r in others},
            stream,
        )
        for start, (at, size) in zip(starts, mine):
            self._add_parts(total + at, [own + at if r == self._rank else others[r] + start for r in range(self._size)],
                            size, stream)  # fmt: skip
        nccl.swap(
            {r: [(total + at, size) for at, size in mine] for r in others},
            {r: [(total + at, size) for at, size in parts[r]] for r in others},
            stream,
        )

    def _add_parts(self, total: int, parts: list[int], size: int, stream: Any) -> None:
        """The upper part of the tree: the sum of all ranks' parts, in whose place sums are written."""
        while len(parts) > 1:
            last = len(parts) == 2
            for left, right in zip(parts[::2], parts[1::2], strict=True):
                self._addition.add(total if last else left, left, right, size, stream)
            parts = parts[::2]

    def numbers(self) -> Sequence[Outputs]:
        return self._numbers


class _Turn:
    """Pinned memory for the numbers of all shards of a step, used again two steps later."""

    def __init__(self, device: Device, size: int, owned: Owned) -> None:
        self._device = device
        self.address = device.driver.allocate_host(size, owned.noted)
        self.arrived = device.driver.event(owned.noted)
        self._view = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))
        self._pending: weakref.ref[_Numbers] | None = None
        owned.on_close(self._end)

    def _end(self) -> None:
        with suppress(DslcError):  # whoever reads the numbers gets the error
            self.settle()

    def settle(self) -> None:
        """Copy numbers that were not read yet, because the memory is needed."""
        waiting = self._pending() if self._pending is not None else None
        if waiting is not None:
            waiting.settle()
        self._pending = None

    def numbers(self, layout: Layout, count: int) -> list[Outputs]:
        found = _Numbers(self._device, self.arrived, self._view, layout)
        self._pending = weakref.ref(found)
        return [_Row(found, index) for index in range(count)]


class _Numbers:
    """Loss and metrics of all shards of a step, which may still be on their way."""

    def __init__(self, device: Device, arrived: Any, memory: NDArray[np.uint8], layout: Layout) -> None:
        self._device, self._arrived, self._memory, self._layout = device, arrived, memory, layout
        self._copies: dict[int, NDArray[np.uint8]] = {}  # at most one: the first copy made by any thread

    def settle(self) -> None:
        if not self._copies:
            with self._device as device:
                device.driver.wait_host(self._arrived)
            self._copies.setdefault(0, self._memory.copy())

    def of(self, shard: int) -> list[tuple[str, str, NDArray[Any]]]:
        self.settle()
        first = shard * self._layout.row - self._layout.numbers
        return [(name, kind, view_of(self._copies[0], first + b.offset, b)) for name, kind, b in self._layout.ports]


class _Row(LateOutputs):
    """The numbers of one shard."""

    def __init__(self, numbers: _Numbers, shard: int) -> None:
        self._of, self._shard = numbers, shard

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        return iter(self._of.of(self._shard))

    def settle(self) -> None:
        self._of.settle()
