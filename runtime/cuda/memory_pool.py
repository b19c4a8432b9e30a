"""The pool that provides all device memory.

Each block has a size class: up to 1 MiB the next power of two, at least 512 bytes; above, the next multiple of 2 MiB
(the driver's page), so that a large block owns its pages. A freed block stays in the pool and serves a later request of
its class. If the driver has no memory, or an allocation would leave less than the headroom, cached blocks are first
returned to the driver; a failed allocation is then tried once more. Equal requests take equal bytes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from dslc.base.errors import OutOfMemory
from dslc.base.turns import Turn, unbroken
from dslc.runtime.cuda.owned import let_go_of

if TYPE_CHECKING:
    from dslc.runtime.cuda.driver import Driver
    from dslc.runtime.cuda.libraries.checked_calls import Noted

PAGE: Final = 2 << 20
SMALLEST: Final = 512
_SMALL: Final = 1 << 20  # the largest class that is a power of two
HEADROOM: Final = 0.05  # fraction of the device's memory left for the driver and other libraries


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Sizes in bytes. ``free`` and ``total``: of the device, as reported by the driver. Of this process's pool:
    ``used`` by live blocks, ``cached`` for later requests, ``peak`` of ``used``; ``blocks``: number of live blocks;
    ``allocations``: number made by the driver."""

    free: int
    total: int
    used: int
    cached: int
    peak: int
    blocks: int
    allocations: int


@dataclass(eq=False, slots=True)
class Block:
    """``size`` bytes of device memory from ``address``, aligned to 512; ``room`` is the size of the block's class."""

    address: int
    size: int
    room: int


def size_class(size: int) -> int:
    """The bytes that a request for ``size`` occupies: equal for all requests of one class."""
    if size <= SMALLEST:
        return SMALLEST
    if size <= _SMALL:
        return 1 << (size - 1).bit_length()
    return -(-size // PAGE) * PAGE


class MemoryPool:
    """The pool of one device, whose context must be current. Thread-safe."""

    def __init__(self, driver: Driver, name: str, headroom: float = HEADROOM) -> None:
        self._driver = driver
        self._name = name
        self._headroom = headroom
        self._turn = Turn()
        self._cached: dict[int, list[int]] = defaultdict(list)  # class -> addresses
        self._living: dict[int, dict[int, Block]] = defaultdict(dict)  # class -> blocks by address
        self._fresh: Noted = []  # of the driver, in no class yet
        self._peak = self._allocations = 0

    def allocate(self, size: int, noted: Noted | None = None) -> Block:
        """A block of at least one byte, of any content; noted in the same step in a list of the owner's, else it is for
        ``free``. OutOfMemory R401 with what is free and what the pool holds."""
        room = size_class(size)
        with self._turn.hold() as scope, scope:
            cached, living = self._cached[room], self._living[room]
            if not cached:
                self._from_driver(size, room)
            block = Block(cached[-1], size, room)
            owner: Noted = [] if noted is None else noted
            note = partial(owner.append, (partial(self._give_back, block), ()))
            unbroken((cached.pop, partial(living.__setitem__, block.address, block), note))
            self._peak = max(self._peak, self._used)
        return block

    @property
    def _used(self) -> int:
        return sum(room * len(blocks) for room, blocks in self._living.items())

    def _from_driver(self, size: int, room: int) -> None:
        """One more cached block of a class."""
        let_go_of(self._driver, self._fresh)  # that an interrupt has left
        free, total = self._driver.memory()
        if free - room < total * self._headroom:
            self._release_cached()
        try:
            address = self._driver.allocate(room, self._fresh)
        except OutOfMemory:
            self._release_cached()
            try:
                address = self._driver.allocate(room, self._fresh)
            except OutOfMemory as error:
                raise self._refusal(size) from error
        unbroken((self._fresh.pop, partial(self._cached[room].append, address)))
        self._allocations += 1

    def _refusal(self, size: int) -> OutOfMemory:
        from dslc.runtime.session.host_memory import size_text

        free, total = self._driver.memory()
        return OutOfMemory(
            "R401",
            f"{size_text(size)} of GPU memory are needed; {size_text(free)} of {size_text(total)} are free, and "
            f"this process holds {size_text(self._used)}",
            place=self._name,
            help="free memory of the GPU (`nvidia-smi` shows which processes use it), or use a smaller batch (--size)",
        )

    def free(self, block: Block) -> None:
        """Back into the pool; nothing on the device may use it any more."""
        if not self._give_back(block):
            raise AssertionError(f"a block at {block.address:#x} is freed, but not allocated")

    def _give_back(self, block: Block) -> bool:
        """Whether it lived; nothing is done where it did not."""
        with self._turn.hold() as scope, scope:
            living = self._living[block.room]
            if living.get(block.address) is not block:
                return False
            unbroken((partial(living.pop, block.address), partial(self._cached[block.room].append, block.address)))
            return True

    def available(self) -> int:
        """Bytes that can be allocated now: free ones, and cached ones, which can be returned to the driver."""
        with self._turn.hold() as scope, scope:
            return self._driver.memory()[0] + self._cached_bytes()

    def info(self) -> MemoryInfo:
        with self._turn.hold() as scope, scope:
            free, total = self._driver.memory()
            cached, blocks = self._cached_bytes(), sum(map(len, self._living.values()))
            return MemoryInfo(free, total, self._used, cached, self._peak, blocks, self._allocations)

    def release_cached(self) -> None:
        """Return cached blocks to the driver."""
        with self._turn.hold() as scope, scope:
            self._release_cached()

    def _release_cached(self) -> None:
        let_go_of(self._driver, self._fresh)
        for addresses in self._cached.values():
            while addresses:
                self._driver.free(addresses)

    def _cached_bytes(self) -> int:
        return sum(room * len(addresses) for room, addresses in self._cached.items())
