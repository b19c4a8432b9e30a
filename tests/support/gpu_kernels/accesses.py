"""Finds accesses to memory that no barrier puts in order: two threads, the same bytes, at least one of them writes.

A barrier orders the threads of a block, ``bar.warp.sync`` those of a warp; exchanges (``shfl``, ``ldmatrix``, ``mma``)
order nothing. What a block did before a barrier and a release (``red.release``) comes before what another block does
after an acquiring load (``ld.acquire``) and a barrier. An asynchronous copy writes at any time until its thread has
waited for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

WARP = 32
#: Block, thread, barriers of the block so far, barriers of the warp so far.
_Stamp: TypeAlias = tuple[tuple[int, ...], int, int, int]


@dataclass(slots=True)
class _Cell:
    """Who touched some bytes: the last writer, the readers since, and the thread whose copy is on its way there."""

    writer: _Stamp | None = None
    data: bytes = b""
    atomic: bool = False
    readers: set[_Stamp] = field(default_factory=set)
    many: tuple[tuple[int, ...], int] | None = None  # block and barriers of which two warps are among the readers
    coming: int | None = None


class Race(AssertionError):
    """Two threads meet in memory."""


class Accesses:
    """The accesses of one launch. ``grain``: bytes that every access is a multiple of, and begins at a multiple of.
    Without ``races``, two threads may access the same bytes."""

    def __init__(self, grain: int, races: bool = True) -> None:
        self._grain = grain
        self._races = races
        self._shared: dict[int, _Cell] = {}
        self._global: dict[int, _Cell] = {}
        self._block: tuple[int, ...] = ()
        self._barriers = 0
        self._warps: dict[int, int] = {}
        self._left: dict[tuple[int, ...], tuple[dict[int, _Cell], int, dict[int, int]]] = {}
        self._released: dict[tuple[int, ...], list[int]] = {}  # by block: its barriers before each release
        #: By block: its barriers before each acquire, and how many releases of each block are then seen.
        self._acquired: dict[tuple[int, ...], list[tuple[int, dict[tuple[int, ...], int]]]] = {}

    def begin(self, block: tuple[int, ...]) -> None:
        """A block begins, with shared memory of its own."""
        self._left.pop(block, None)
        self.enter(block)

    def enter(self, block: tuple[int, ...]) -> None:
        """A block runs on, or begins."""
        self._left[self._block] = self._shared, self._barriers, self._warps
        self._block = block
        self._shared, self._barriers, self._warps = self._left.pop(block, ({}, 0, {}))

    @property
    def releases(self) -> int:
        """How many there were, of all blocks."""
        return sum(map(len, self._released.values()))

    def release(self) -> None:
        """A thread of the block says that the block has come so far."""
        self._released.setdefault(self._block, []).append(self._barriers)

    def acquire(self) -> None:
        """A thread of the block sees how far all blocks have come."""
        seen = {block: len(barriers) for block, barriers in self._released.items()}
        self._acquired.setdefault(self._block, []).append((self._barriers, seen))

    def barrier(self) -> None:
        """All threads of the block have come to a barrier."""
        self._barriers += 1
        self._shared = {at: _Cell(coming=c.coming) for at, c in self._shared.items() if c.coming is not None}

    def ends(self, bits: int) -> dict[int, int]:
        """Of each piece of global memory, by its number in the bits above: the end of what was touched."""
        found: dict[int, int] = {}
        for at in self._global:
            number, offset = at >> bits, at & ((1 << bits) - 1)
            found[number] = max(found.get(number, 0), offset + self._grain)
        return found

    def warp_barrier(self, warp: int) -> None:
        self._warps[warp] = self._warps.get(warp, 0) + 1

    def read(self, thread: int, shared: bool, address: int, size: int) -> None:
        mine = self._stamp(thread)
        for at, cell in self._cells(shared, address, size):
            if cell.coming is not None:
                self._not_coming(at, cell, thread)
            if cell.writer is not None and not self._ordered(cell.writer, mine):
                self._race(f"thread {thread} reads what thread {cell.writer[1]} writes, at {at:#x}: no barrier between")
            if cell.many != (mine[0], mine[2]):  # else each later writer meets one of the readers that are known
                self._add_reader(cell, mine)

    def write(self, thread: int, shared: bool, address: int, data: bytes, atomic: bool = False) -> None:
        mine = self._stamp(thread)
        for number, (at, cell) in enumerate(self._cells(shared, address, len(data))):
            self._not_coming(at, cell, thread)
            part = data[number * self._grain : (number + 1) * self._grain]
            self._take(at, cell, mine, part, shared, atomic)

    def copy_begins(self, thread: int, address: int, size: int) -> None:
        """An asynchronous copy to shared memory is on its way from now on."""
        mine = self._stamp(thread)
        for at, cell in self._cells(True, address, size):
            self._not_coming(at, cell, thread)
            self._take(at, cell, mine, b"", True, False)
            cell.coming = thread

    def copy_ends(self, thread: int, address: int, size: int) -> None:
        """Its thread has waited for it: there for this thread now, for others after a barrier."""
        mine = self._stamp(thread)
        for at, cell in self._cells(True, address, size):
            cell.coming = None
            self._take(at, cell, mine, b"", True, False)

    def _add_reader(self, cell: _Cell, mine: _Stamp) -> None:
        if mine in cell.readers:
            return
        warp = mine[1] // WARP
        if any(r[1] // WARP != warp and r[2] == mine[2] and r[0] == mine[0] for r in cell.readers):
            cell.many = mine[0], mine[2]
        cell.readers.add(mine)

    def _take(self, at: int, cell: _Cell, mine: _Stamp, data: bytes, shared: bool, atomic: bool) -> None:
        same = not shared and data == cell.data  # a flag that several set
        if cell.writer is not None and not (same or (atomic and cell.atomic)) and not self._ordered(cell.writer, mine):
            self._race(f"threads {cell.writer[1]} and {mine[1]} both write, at {at:#x}: no barrier between")
        for reader in cell.readers:
            if not self._ordered(reader, mine):
                self._race(f"thread {mine[1]} writes what thread {reader[1]} reads, at {at:#x}: no barrier between")
        cell.writer, cell.data, cell.atomic = mine, data, atomic
        cell.many = None
        cell.readers.clear()

    def _not_coming(self, at: int, cell: _Cell, thread: int) -> None:
        if cell.coming is not None:
            self._race(f"thread {thread} is at {at:#x} while the copy of thread {cell.coming} is on its way there")

    def _race(self, text: str) -> None:
        if self._races:
            raise Race(text)

    def _ordered(self, before: _Stamp, now: _Stamp) -> bool:
        if before[0] != now[0]:
            return self._seen(before, now)
        if before[1] == now[1] or before[2] < now[2]:
            return True
        return before[1] // WARP == now[1] // WARP and before[3] < now[3]

    def _seen(self, before: _Stamp, now: _Stamp) -> bool:
        """Whether the one's block released after it what the other's block acquired before it."""
        acquired = [seen for barriers, seen in self._acquired.get(now[0], ()) if barriers < now[2]]
        count = acquired[-1].get(before[0], 0) if acquired else 0
        return count > 0 and self._released[before[0]][count - 1] > before[2]

    def _stamp(self, thread: int) -> _Stamp:
        return self._block, thread, self._barriers, self._warps.get(thread // WARP, 0)

    def _cells(self, shared: bool, address: int, size: int) -> list[tuple[int, _Cell]]:
        cells = self._shared if shared else self._global
        found = []
        for at in range(address, address + size, self._grain):
            cell = cells.get(at)
            if cell is None:
                cell = cells[at] = _Cell()
            found.append((at, cell))
        return found
