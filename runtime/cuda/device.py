"""A GPU of this process: its primary context, its memory pool, and its pending cleanups."""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from dslc.base.errors import EnvironmentFault, InputError
from dslc.base.turns import Scope, Turn
from dslc.runtime.cuda.driver import Driver, load_driver
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.memory_pool import MemoryInfo, MemoryPool
from dslc.runtime.cuda.owned import let_go_of
from dslc.runtime.session import fork

_NAME: Final = re.compile(r"gpu(?::(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """``index`` is that of ``device="gpu:1"``; ``capability`` (9, 0) is sm_90; ``memory`` in bytes, of all
    processes."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: MemoryInfo

    @property
    def target(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


class _OfThread(threading.local):
    """``pushed``: the pushes of this thread that have not been popped yet."""

    def __init__(self) -> None:
        self.pushed: list[Any] = []


class Device:
    """One GPU. ``with device:`` makes its primary context current on this thread, and restores the previous one.

    The primary context is shared with all users of the CUDA runtime in this process. It is kept until the process ends:
    no driver call is made at interpreter shutdown, when the driver releases everything.
    """

    def __init__(self, driver: Driver, index: int, retained: Noted) -> None:
        """``retained``: where the context is noted."""
        self.driver = driver
        self.index = index
        self._born = fork.generation()
        self._handle = driver.device(index)
        self.name = driver.device_name(self._handle)
        self.capability = driver.capability(self._handle)
        self._retained = retained
        self.context: Any = driver.retain(self._handle, retained)
        self.pool = MemoryPool(driver, str(self))
        self._left: deque[Callable[[], None]] = deque()
        self._inbox: Noted = []
        self._turn, self._letting_go, self._capturing = Turn(), Turn(), Turn()
        self._thread = _OfThread()

    def __str__(self) -> str:
        return f"gpu:{self.index}"

    def __enter__(self) -> Self:
        if fork.is_child(self._born):
            fork.refuse_child(self._born, f"the GPU {self.index}")
        self.driver.push(self.context, self._thread.pushed)
        if self._left:
            with self._letting_go.hold_now() as scope, scope as mine:
                while mine and self._left:
                    self._left[0]()  # twice where an interrupt comes before it is forgotten
                    self._left.popleft()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pushed = self._thread.pushed
        if pushed:
            self.driver.pop(pushed)

    def mend(self) -> None:
        """Pop contexts that an interrupt kept this thread from popping; do not call inside ``with device``."""
        pushed = self._thread.pushed
        while pushed:
            self.driver.pop(pushed)

    @property
    def target(self) -> str:
        """``sm_90``"""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def multiprocessors(self) -> int:
        return self.driver.multiprocessors(self._handle)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the second-level cache."""
        return self.driver.cache_bytes(self._handle)

    @property
    def bus_id(self) -> str:
        """The place of the GPU on the machine's bus, the same for all processes."""
        return self.driver.bus_id(self._handle)

    @property
    def cycles(self) -> int:
        """Cycles per second of all multiprocessors together, at the highest clock."""
        return self.multiprocessors * self.driver.clock_rate(self._handle)

    @property
    def inbox(self) -> Any:
        """The stream on which arrays of other libraries become ready. The context must be current."""
        with self._turn.hold() as scope, scope:
            if not self._inbox or self._inbox[0][1][0]:
                self.driver.stream(self._inbox)
            return self._inbox[-1][1][1]

    def undisturbed(self) -> Scope[None]:
        """``with device.undisturbed() as scope, scope: ...`` around captures, and around calls that may wait for all
        work of the device, which ends the captures of all threads: libraries that open, prepare or close do so."""
        return self._capturing.hold()

    def leave(self, let_go: Callable[[], None]) -> None:
        """Call ``let_go`` when the device is next used. For finalizers, which may run at any point of any thread, where
        no driver call is safe. Does nothing in a forked child or at shutdown."""
        if not fork.is_child(self._born) and not sys.is_finalizing():
            self._left.append(let_go)

    def info(self) -> DeviceInfo:
        with self:
            return DeviceInfo(self.index, self.name, self.capability, self.pool.info())

    def close(self) -> None:
        """Release cached memory and the context."""
        with self:
            let_go_of(self.driver, self._inbox)
            self.pool.release_cached()
        self.driver.release(self._handle, self._retained)


class _Machine:
    """The driver and the devices that this process has opened."""

    def __init__(self) -> None:
        self.born = fork.generation()
        self.turn = Turn()
        self.driver: Driver | None = None
        self.devices: dict[int, Device] = {}
        self.retained: dict[int, Noted] = {}  # contexts


_machine = _Machine()


def driver() -> Driver:
    """The driver of this process, loaded at the first call. EnvironmentFault R201 if there is none."""
    machine = _of_process()
    with machine.turn.hold() as scope, scope:
        if machine.driver is None:
            machine.driver = load_driver()
        return machine.driver


def device(index: int = 0) -> Device:
    """The GPU with this index, opened at the first call. EnvironmentFault R201 if it does not exist."""
    found, machine = driver(), _of_process()
    with machine.turn.hold() as scope, scope:
        if index not in machine.devices:
            count = found.device_count()
            if index >= count:
                have = f"there are {count}, from 0" if count else "CUDA_VISIBLE_DEVICES may hide them"
                raise EnvironmentFault(
                    "R201",
                    f"there is no GPU {index}: {have}",
                    place=f'device="gpu:{index}"',
                    help='look at `nvidia-smi`, or take the CPU: device="cpu", or --device cpu',
                )
            machine.devices[index] = Device(found, index, machine.retained.setdefault(index, []))
        return machine.devices[index]


def devices() -> list[DeviceInfo]:
    """The GPUs that this process can use; empty without a driver. Opens each of them."""
    try:
        count = driver().device_count()
    except EnvironmentFault as error:
        if error.code == "R201":
            return []
        raise
    return [device(index).info() for index in range(count)]


def memory_info(gpu: str | int = "gpu") -> MemoryInfo:
    """Free memory of a GPU (``"gpu"``, ``"gpu:1"`` or its index) and the memory that this process holds on it, in
    bytes."""
    index = gpu if isinstance(gpu, int) else index_of(gpu)
    return device(index).info().memory


def index_of(name: str) -> int:
    """The index in ``gpu:1``; 0 for ``gpu``. InputError R105 for anything else."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError("R105", f"{name[:40]!r} is not a GPU", place="device", help="it is 'gpu' or 'gpu:1'")
    return int(found[1] or 0)


def _of_process() -> _Machine:
    """The process's driver. A forked child cannot use its parent's driver, nor initialise the driver again."""
    if _machine.driver is not None:
        fork.refuse_child(_machine.born, "the GPU's driver")
    return _machine
