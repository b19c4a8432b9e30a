"""Moves bytes between the GPUs of several processes of one host: each process writes into the memory of the others.

Copy engines do that, so concurrent kernels keep all multiprocessors. A process opens the allocations in which the
others receive (CUDA's interprocess handles). Each process counts its swaps and writes the count into the memory of the
others twice: before a swap, to tell them that they may write, and after its copies, to tell them that these have
arrived. Streams wait for these numbers; the host does not.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import DslcError
from dslc.runtime.cuda.driver import SHARED_BYTES
from dslc.runtime.cuda.libraries.nccl import require_own_gpus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.nccl import Pieces
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.session.calls.shard_sum import Exchange

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  # differs after each boot
_DIGEST: Final = hashlib.sha256().digest_size
_ROW: Final = np.dtype([("shared", np.uint8, (SHARED_BYTES,)), ("offset", "<u8")])
_NUMBER: Final = 4  # bytes


def peers_of(device: Device, group: Exchange, owned: Owned) -> Peers | None:
    """The transport of a group; None for all of its processes if they are not on one host, or if one of them cannot
    write into another one's memory. All call this together; ``owned`` takes the memory. RanksError R601 if two of them
    use one GPU."""
    boot = _BOOT.read_text(encoding="ascii") if _BOOT.exists() else ""
    places = (f"{platform.node()} {boot}", f"{platform.node()} {device.bus_id}")
    row = b"".join(hashlib.sha256(place.encode()).digest() for place in places)
    rows = group.gathered(np.frombuffer(row, np.uint8))
    require_own_gpus(rows[:, _DIGEST:], device)
    if (rows[:, :_DIGEST] != rows[0, :_DIGEST]).any():
        return None
    found = Peers(device, group, owned)
    return found if found.meet() else None


class Peers:
    """Implements ``Transport`` for a group of which all processes are on this host. The device's context is current."""

    def __init__(self, device: Device, group: Exchange, owned: Owned) -> None:
        self._device, self._group, self._owned = device, group, owned
        self._others = [*range(group.rank + 1, group.size), *range(group.rank)]
        self._count = 0  # swaps so far, modulo 2^32
        self._opened: dict[tuple[int, bytes], int] = {}
        self._targets: dict[Hashable, dict[int, list[int]]] = {}
        size = 2 * _NUMBER * group.size
        self._numbers = device.pool.allocate(size, owned.noted).address
        self._numbers_of: dict[int, int] = {}
        device.driver.fill(self._numbers, 0, 1, size, device.inbox)
        device.driver.synchronise(device.inbox)

    def meet(self) -> bool:
        """Opens the numbers of the others. False in all processes if one of them cannot."""
        row, done = np.zeros(1, _ROW), True
        try:
            row = self._described([(self._numbers, 0)])
        except DslcError:  # no handles on this machine; the others cannot open a row of zeros
            done = False
        rows = self._group.gathered(row.view(np.uint8)).view(_ROW)
        try:
            self._numbers_of = {r: self._address(r, rows[r, 0]) for r in self._others} if done else {}
        except DslcError:
            done = False
        return bool(self._group.gathered(np.array([done], np.uint8)).all())

    def swap(self, key: Hashable, send: Mapping[int, Pieces], receive: Mapping[int, Pieces], stream: Any) -> None:
        """As ``Transport`` says. The addresses of a key are exchanged at its first swap."""
        driver, rank, size = self._device.driver, self._group.rank, self._group.size
        if key not in self._targets:
            self._targets[key] = self._learnt(receive)
        targets = self._targets[key]
        self._count = (self._count + 1) % (1 << 32)
        for r in self._others:
            driver.write_number(self._numbers_of[r] + _NUMBER * rank, self._count, stream)
        for r in self._others:
            driver.wait_for_number(self._numbers + _NUMBER * r, self._count, stream)
            pieces = [piece for piece in send.get(r, ()) if piece[1]]
            for target, (source, count) in zip(targets[r], pieces, strict=True):
                driver.copy(target, source, count, stream)
            driver.write_number(self._numbers_of[r] + _NUMBER * (size + rank), self._count, stream)
        for r in self._others:
            driver.wait_for_number(self._numbers + _NUMBER * (size + r), self._count, stream)

    def _learnt(self, receive: Mapping[int, Pieces]) -> dict[int, list[int]]:
        """Where the others receive the pieces that this process sends: addresses of this process, by rank. All call
        this together."""
        size, rank = self._group.size, self._group.rank
        pieces = [[piece for piece in receive.get(r, ()) if piece[1]] for r in range(size)]
        counts = np.array([len(each) for each in pieces], "<u8")
        every = self._group.gathered(counts.view(np.uint8)).view("<u8")  # [receiver, sender]
        rows = np.zeros(max(1, int(every.sum(axis=1).max())), _ROW)
        rows[: sum(map(len, pieces))] = self._described([piece for each in pieces for piece in each])
        there = self._group.gathered(rows.view(np.uint8)).view(_ROW)
        found: dict[int, list[int]] = {}
        for r in self._others:
            first = int(every[r, :rank].sum())
            found[r] = [self._address(r, row) for row in there[r, first : first + int(every[r, rank])]]
        return found

    def _described(self, pieces: Pieces) -> NDArray[Any]:
        """Rows from which other processes find pieces of this process's memory."""
        rows = np.zeros(len(pieces), _ROW)
        for row, (address, _) in zip(rows, pieces, strict=True):
            shared, offset = self._device.driver.shared(address)
            row["shared"], row["offset"] = np.frombuffer(shared, np.uint8), offset
        return rows

    def _address(self, rank: int, row: Any) -> int:
        """The address in this process of a piece that process ``rank`` has described."""
        shared = row["shared"].tobytes()
        if (rank, shared) not in self._opened:
            self._opened[rank, shared] = self._device.driver.open_shared(shared, self._owned.noted)
        return self._opened[rank, shared] + int(row["offset"])
