"""Events for TensorBoard (extra ``logs``), in the folder ``events`` of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra

FOLDER: Final = "events"


class Events(Protocol):
    """A destination for a run's numbers in addition to the log."""

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class NoEvents:
    """Used if events are not requested."""

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class TensorBoard:
    """Scalars ``KIND/NAME``, written by tensorboardX."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class Guarded:
    """Events whose first failure is a warning and their end: training continues without them."""

    def __init__(self, events: Events, warn: Callable[[str], None]) -> None:
        self._events: Events | None = events
        self._warn = warn

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._try(lambda events: events.write(kind, step, values))

    def close(self) -> None:
        """A second call does nothing."""
        self._try(lambda events: events.close())
        self._events = None

    def _try(self, action: Callable[[Events], None]) -> None:
        if self._events is None:
            return
        try:
            action(self._events)
        except Exception as error:  # noqa: BLE001  # whatever the other package raises, training is worth more
            self._events = None
            self._warn(f"no more events are written for TensorBoard: {type(error).__name__}: {error}"[:300])


def open_events(folder: Path, wanted: bool, done: int, warn: Callable[[str], None]) -> Events:
    """Opens the events of a run; those after step ``done`` of a resumed run are void. A later failure is told to
    ``warn`` once. R205 if tensorboardX is missing."""
    if not wanted:
        return NoEvents()
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise EnvironmentFault(
            "R205",
            "events for TensorBoard need tensorboardX",
            place="save.tensorboard",
            help=install_extra("logs"),
        ) from error
    try:
        writer = SummaryWriter(str(folder / FOLDER), purge_step=done + 1 if done else None)
    except OSError as error:
        warn(f"no events are written for TensorBoard: {error}"[:300])
        return NoEvents()
    return Guarded(TensorBoard(writer), warn)
