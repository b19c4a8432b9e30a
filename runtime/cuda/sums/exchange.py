"""How several GPUs exchange sums of a step, and what each has updated.

Rank r receives the r-th part of every rank's sum and adds these; of ranks with one shard each, what that gives. If it
has a share of the update, this is its slices of the gradients; after the update it sends the parameters of its slices
to all. Else, and of all that other ranks read, it sends its part of the total to all. A transport moves bytes, and only
the runtime's kernels add. The host waits for nothing.

An exchange has stages, which move on a stream of their own. The lane of updates adds a stage's parts and updates its
slices as soon as they are there, while those of the next stage arrive; and what it has updated leaves while it goes on.
If a process has one shard, a stage begins when the gradients of its parts are there, while the shard computes others.
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
    """What moves bytes between the processes' devices. The device's context is current."""

    def swap(self, key: Hashable, send: Moves, receive: Moves, stream: Any) -> None:
        """Send pieces to ranks and receive pieces from ranks; each pair of ranks has as many, of the same sizes and in
        the same order. The work begins when all processes have made the same call. ``key``: calls with the same one
        receive at the same addresses."""
        ...


class _Part(NamedTuple):
    """``size`` bytes of the sums, from ``at`` on, which this process adds. ``pieces``: of what each process has of it,
    (offset, bytes): of its sum, or of what its shard gives; ``arrive``: for each other process, where they arrive;
    ``gathered``: how pieces as given are added; empty for sums. ``partial``: where sums of two others may lie."""

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
        self._stream = idle_stream(device, owned)
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
        """Where a process has a part of the sums: (offset, bytes)."""
        if not self._sizes.as_given:
            return [(at, size)]
        return [(span.given, span.size) for span in self._sizes.terms.spans(at, size)]

    def begin(self, own: int, total: int, rows: int, row: int, shards: Lane, ready: Sequence[Any]) -> None:
        """Enqueue what moves before the first stage of an update. ``own``: the address of this process's sum, or of
        what its shard gives; ``total``: where the update reads the sums; ``rows``: loss and metrics of all processes,
        ``row`` bytes of each, which move with the last stage. ``ready``: events of each stage but the last, which the
        lane ``shards`` records; without them all stages follow that lane."""
        self._own, self._total, self._shards, self._early = own, total, shards, ready
        self._numbers = [(rows + r * row, row) for r in range(self._sizes.processes)]
        self._begun = 0
        self._begin_next()

    def _begin_next(self) -> None:
        """Enqueue what moves before the next stage of the update."""
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
            driver.wait(self._stream, self._early[stage])
        else:
            self._follow(self._shards)
        self._transport.swap((self, "given", stage), send, receive, self._stream)
        driver.record(self._arrived[stage], self._stream)
        self._begun += 1

    def complete(self, stage: int, lane: Lane) -> None:
        """Have the lane add a stage's parts, and wait for what others add that this process reads. What moves before
        the next stage is enqueued first: before what this stage updates."""
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
        """The upper part of the tree: the sum of what all processes have of a part, in whose place sums are written."""
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
        """Send what the lane has updated in a stage, and receive what others have. After the last stage, also what the
        updates tell of gradients, of which this process has so many bytes at an address: ``flags``. The lane then waits
        for all that moves."""
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
        """Send this process's pieces to all, and receive those of each, after what the lane does now."""
        self._follow(lane)
        send, receive = {r: pieces[self._rank] for r in self._others}, {r: pieces[r] for r in self._others}
        self._transport.swap((self, what, stage), send, receive, self._stream)

    def _follow(self, lane: Lane) -> None:
        self._device.driver.record(self._ready, lane.stream)
        self._device.driver.wait(self._stream, self._ready)

    def _return(self, lane: Lane) -> None:
        self._device.driver.record(self._spread, self._stream)
        self._device.driver.wait(lane.stream, self._spread)
