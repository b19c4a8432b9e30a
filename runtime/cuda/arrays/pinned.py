"""Pinned memory of the host: for inputs, and for results that callers may keep.

The GPU writes a large result where it stays: a copy takes as long as the bus, and fresh memory longer, since the
operating system clears its pages first. The next run of the slot then writes other memory.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dslc.runtime.cuda.owned import Owned, let_go_of
from dslc.runtime.session import fork

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.checked_calls import Noted

#: Blocks of a lane that callers may have at a time: that of the last call's result, and of this one's. Who keeps more
#: gets copies, so that little memory is pinned.
MOST_LENT: Final = 2


def pinned(device: Device, size: int, noted: Noted) -> tuple[NDArray[np.uint8], int]:
    """Pinned memory of zeros as numpy sees it, and its address. The device's context is current."""
    if not size:
        return np.empty(0, np.uint8), 0
    address = device.driver.allocate_host(size, noted)
    view = seen(address, size)
    view[:] = 0
    return view, address


def seen(address: int, size: int) -> NDArray[np.uint8]:
    """Memory as an array whose base is no array, so that each view of it keeps it alive."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


class Block:
    """Pinned memory for results: ``memory`` at ``address``."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.address = 0
        self._noted: Noted = []
        self._lent: weakref.ref[NDArray[np.uint8]] | None = None
        self._forks = 0

    def allocate(self, device: Device, size: int) -> None:
        self.memory, self.address = pinned(device, size, self._noted)

    @property
    def free(self) -> bool:
        """True if no array of a caller lies in it. A forked child shares the memory and may have one that its parent
        has no more, so what was lent before a fork is never free again."""
        lent = self._lent
        return lent is None or (lent() is None and self._forks == fork.children())

    def lend(self) -> NDArray[np.uint8]:
        """The memory as a caller's: it is not free while a view of the array exists."""
        self._forks = fork.children()
        array = seen(self.address, self.memory.nbytes)
        self._lent = weakref.ref(array)
        return array

    def close(self, device: Device) -> None:
        """Let go of the memory, or have the last array in it do so. The device's context is current."""
        let_go = partial(let_go_of, device.driver, self._noted)
        lent = None if self._lent is None else self._lent()
        if lent is None:
            let_go()
        else:
            weakref.finalize(lent, device.leave, let_go).atexit = False


class Blocks:
    """Blocks of ``size`` bytes each, ``count`` at first. The device's context is current where they are made."""

    def __init__(self, device: Device, size: int, count: int, owned: Owned) -> None:
        self._device, self._size = device, size
        self.all: list[Block] = []
        owned.on_close(partial(_close, device, self.all))
        for _ in range(count):
            self.take(self.all[:])

    def take(self, taken: list[Block]) -> Block:
        """A free block that is not one of these. DslcError if there is no memory for another one."""
        for block in self.all:
            if block.free and block not in taken:
                break
        else:
            self.all.append(block := Block())
        if block.memory.nbytes < self._size:
            with self._device as device:
                block.allocate(device, self._size)
        return block

    def lend(self, block: Block) -> NDArray[np.uint8] | None:
        """A block's memory as a caller's; None if callers have as many as they may."""
        lent = sum(not each.free for each in self.all)
        return block.lend() if lent < MOST_LENT and block.free else None


def _close(device: Device, blocks: list[Block]) -> None:
    while blocks:
        blocks[-1].close(device)
        blocks.pop()
