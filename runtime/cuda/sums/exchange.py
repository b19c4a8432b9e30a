"""How several GPUs exchange sums of a step, and what each has updated.

Rank r receives the r-th part of every rank's sum and adds these parts. If each rank has one shard, the ranks send the
shard's results as they are. If ranks share the update, the part of a rank is its slices of the gradients, and after the
update it sends the parameters of its slices to all. Otherwise, and if other ranks read its sums, it sends its part of
the total to all. A transport moves bytes, and only the runtime's kernels add. The host does not wait.

An exchange has stages, whose transfers have a stream of their own. When the parts of a stage have arrived, the lane of
updates adds them and updates its slices, while the parts of the next stage arrive and the parameters of the preceding
stage leave. If a process has one shard, a stage may begin while the shard runs: when the gradients of its parts are
computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dslc.runtime.artifact.slices import aligned
from dslc.runtime.cuda.lane import Lane, idle_stream
from dslc.runtime.cuda.sums.gathering import Gathered, Kernels, Tables

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.device_state import DeviceState
    from dslc.runtime.cuda.libraries.nccl import Pieces
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes

    #: Addresses and sizes, for each other process.
    Moves = Mapping[int, Pieces]


class Transport(Protocol):
    """Moves bytes between the processes' devices. The device's context is current."""

    def swap(self, key: Hashable, send: Moves, receive: Moves, stream: Any) -> None:
        """Enqueue on ``stream``: send pieces to each rank and receive pieces from it. The pieces that one rank sends to
        another have the same number, sizes and order on both sides. The transfers begin when all processes have made
        the same call. ``key``: calls with the same key receive at the same addresses."""
        ...


class _Part(NamedTuple):
    """``size`` bytes of the sums, from ``at`` on, which this process adds. ``pieces``: where each process has the terms
    of this part, (offset, bytes) in its sum or in its shard's results; ``arrive``: for each other process, the
    addresses at which they arrive; ``gathered``: how pieces of a shard's results are added, empty for sums;
    ``partial``: memory for sums of two other processes."""

    at: int
    size: int
    pieces: Sequence[tuple[int, int]]
    arrive: Mapping[int, Sequence[int]]
    gathered: Sequence[Gathered]
    partial: Sequence[int]


class DeviceExchange:
    """The exchange of one process. ``owned`` takes its memory; the device's context is current."""

    def __init__(
        self,
        sizes: SumSizes,
        rank: int,
        device: Device,
        kernels: Kernels,
        transport: Transport,
        state: DeviceState,
        owned: Owned,
    ) -> None:
        self._sizes, self._rank, self._device = sizes, rank, device
        self._addition, self._transport, self._state = kernels.addition(sizes.terms.dtype), transport, state
        self._others = [r for r in range(sizes.processes) if r != rank]
        noted, driver = owned.noted, device.driver
        blocks = sizes.incoming, sizes.partial, sizes.table, sizes.told
        taken = [device.pool.allocate(size, noted).address if size else 0 for size in blocks]
        incoming, partial, table, self.told = taken
        tables = Tables(kernels, table)
        self._stages: list[list[_Part]] = []
        self._incoming = {r: incoming + n * (sizes.incoming // len(self._others)) for n, r in enumerate(self._others)}
        for stage in range(sizes.stages):
            self._stages.append(self._parts(stage, partial, tables))
        tables.send(device)
        self._arrived = [driver.event(noted) for _ in self._stages]
        self._ready, self._spread = driver.event(noted), driver.event(noted)
        self.stream = idle_stream(device, owned)
        self._shards: Lane
        self._numbers: list[tuple[int, int]]
        self._early: Sequence[Any]
        self._own = self._total = self._begun = 0

    @property
    def stages(self) -> int:
        return len(self._stages)

    def _parts(self, stage: int, partial: int, tables: Tables) -> list[_Part]:
        sizes, found = self._sizes, list[_Part]()
        room = sizes.partial // max(1, sizes.processes // 2 - 1)
        for at, size in sizes.parts(self._rank, stage):
            gathered = [tables.of(span) for span in sizes.terms.spans(at, size)] if sizes.as_given else []
            pieces = self._pieces(at, size)
            arrive: dict[int, list[int]] = {}
            for r in self._others:
                starts = list(accumulate((aligned(count) for _, count in pieces), initial=self._incoming[r]))
                arrive[r], self._incoming[r] = starts[:-1], starts[-1]
            before = sum(part.size for part in found)
            places = [partial + n * room + before for n in range(sizes.processes // 2 - 1)]
            found.append(_Part(at, size, pieces, arrive, gathered, places))
        return found

    def _pieces(self, at: int, size: int) -> list[tuple[int, int]]:
        """Where a process has the terms of a part of the sums: (offset, bytes)."""
        if not self._sizes.as_given:
            return [(at, size)]
        return [(span.given, span.size) for span in self._sizes.terms.spans(at, size)]

    def begin(self, own: int, total: int, rows: int, row: int, shards: Lane, ready: Sequence[Any]) -> None:
        """Enqueue the transfers before the first stage of an update. ``own``: the address of this process's sum, or of
        its shard's results; ``total``: where the update reads the sums; ``rows``: loss and metrics of all processes,
        ``row`` bytes of each, which move with the last stage. ``ready``: events of each stage but the last, which the
        lane ``shards`` records; without them all stages follow that lane."""
        self._own, self._total, self._shards, self._early = own, total, shards, ready
        self._numbers = [(rows + r * row, row) for r in range(self._sizes.processes)]
        self._begun = 0
        self._begin_next()

    def _begin_next(self) -> None:
        """Enqueue the transfers before the next stage of the update."""
        stage, driver = self._begun, self._device.driver
        last = stage == self.stages - 1
        send: dict[int, list[tuple[int, int]]] = {}
        for r in self._others:
            wanted = [piece for part in self._sizes.parts(r, stage) for piece in self._pieces(*part)]
            send[r] = [(self._own + at, size) for at, size in wanted]
        receive = {
            r: [(at, size) for p in self._stages[stage] for at, (_, size) in zip(p.arrive[r], p.pieces, strict=True)]
            for r in self._others
        }
        if last:
            send = {r: [*pieces, self._numbers[self._rank]] for r, pieces in send.items()}
            receive = {r: [*pieces, self._numbers[r]] for r, pieces in receive.items()}
        if self._early and not last:
            driver.wait(self.stream, self._early[stage])
        else:
            self._follow(self._shards)
        self._transport.swap((self, "given", stage), send, receive, self.stream)
        driver.record(self._arrived[stage], self.stream)
        self._begun += 1

    def complete(self, stage: int, lane: Lane) -> None:
        """Have the lane add a stage's parts, and wait for the sums of others that this process reads. The transfers of
        the next stage are enqueued first, so they come before the updated parameters of this stage."""
        if self._begun < self.stages:
            self._begin_next()
        self._device.driver.wait(lane.stream, self._arrived[stage])
        for part in self._stages[stage]:
            self._add(part, lane.stream)
        read = [self._read(r) for r in range(self._sizes.processes)]
        if stage == 0 and any(size for parts in read for _, size in parts):
            self._move("read", 0, read, lane)
            self._return(lane)

    def _read(self, rank: int) -> list[tuple[int, int]]:
        """The addresses of sums that a process adds for all."""
        share, parts = self._sizes.share, self._sizes.parts(rank, 0)
        if share is not None and not share.reads_all:
            return []
        return [(self._total + at, size) for at, size in parts]

    def _add(self, part: _Part, stream: Any) -> None:
        """The upper part of the tree: adds the terms of all processes for a part. Sums of sums overwrite them."""
        own = [self._own + at for at, _ in part.pieces]
        pieces = [own if r == self._rank else part.arrive[r] for r in range(self._sizes.processes)]
        places, total = [each[0] for each in pieces if each], self._total + part.at
        if part.gathered:
            places = [total, *part.partial]
            for place, left, right in zip(places, pieces[::2], pieces[1::2], strict=True):
                for gathered, one, two in zip(part.gathered, left, right, strict=True):
                    gathered.add(place, one, two, stream)
        while len(places) > 1:
            last = len(places) == 2
            for place, other in zip(places[::2], places[1::2], strict=True):
                self._addition.add(total if last else place, place, other, part.size, stream)
            places = places[::2]

    def spread(self, stage: int, flags: tuple[int, int], lane: Lane) -> None:
        """Send the parameters that the lane has updated in a stage, and receive those of the others. After the last
        stage, also exchange which gradients were not finite, ``flags``: (address, bytes) of this process's part. The
        lane then waits for all transfers."""
        share = self._sizes.share
        if share is None:
            return
        base, last = self._state.address, stage == self.stages - 1
        pieces = [[(base + at, size) for at, size in share.updated(r, stage)] for r in range(self._sizes.processes)]
        if last:
            at, size = flags
            told = [(self.told + r * size, size) for r in range(self._sizes.processes)]
            self._device.driver.copy(told[self._rank][0], at, size, lane.stream)
            pieces = [[*updated, each] for updated, each in zip(pieces, told, strict=True)]
        self._move("updated", stage, pieces, lane)
        if last:
            self._return(lane)

    def _move(self, what: str, stage: int, pieces: Sequence[Pieces], lane: Lane) -> None:
        """Send this process's pieces to all, and receive those of each, after the lane's work so far."""
        self._follow(lane)
        send, receive = {r: pieces[self._rank] for r in self._others}, {r: pieces[r] for r in self._others}
        self._transport.swap((self, what, stage), send, receive, self.stream)

    def _follow(self, lane: Lane) -> None:
        self._device.driver.record(self._ready, lane.stream)
        self._device.driver.wait(self.stream, self._ready)

    def _return(self, lane: Lane) -> None:
        self._device.driver.record(self._spread, self.stream)
        self._device.driver.wait(lane.stream, self._spread)
