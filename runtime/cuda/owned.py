"""What is taken of a device, noted in the same step as it is made, so that no interrupt comes between the two."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dslc.base.errors import DslcError
from dslc.base.turns import Turn

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.driver import Driver
    from dslc.runtime.cuda.libraries.checked_calls import Noted


class Owned:
    """The device resources of one owner. Calls of the driver and of the pool add to ``noted``; the last one is released
    first.

    ``with owned:`` closes it when an exception leaves the block. An owner lost by an interrupt is
    released at the next use of the device, so nothing in ``noted`` may refer to it. The device's context is current.
    """

    def __init__(self, device: Device) -> None:
        self.noted: Noted = []
        self._driver = device.driver
        self._turn = Turn()
        self._forgotten = weakref.finalize(self, device.leave, partial(let_go_of, device.driver, self.noted))
        self._forgotten.atexit = False

    def on_close(self, do: Callable[[], object]) -> None:
        """Have ``do`` called before all is let go of that is noted by now. An interrupt may have it called twice."""
        self.noted.append((do, ()))

    @property
    def closed(self) -> bool:
        return not self._forgotten.alive

    def close(self) -> None:
        """Let go of all of it. May be called again, and goes on where an interrupt struck. Raises the first error of
        the driver, when all is gone."""
        with self._turn.hold() as scope, scope:
            let_go_of(self._driver, self.noted)
            self._forgotten.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()


def let_go_of(driver: Driver, noted: Noted) -> None:
    """Let go of all that is noted, the last first, and take it off the list. The device's context is current."""
    first: DslcError | None = None
    while noted:
        entry = noted[-1]
        try:
            if callable(entry[0]):
                entry[0]()
                noted.pop()
            else:
                driver.let_go(noted)
        except DslcError as error:
            first = first or error
            if noted and noted[-1] is entry:
                noted.pop()
    if first is not None:
        raise first
