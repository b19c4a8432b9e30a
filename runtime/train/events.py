"""Events for TensorBoard (extra ``logs``), in the folder ``events`` of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def open_events(folder: Path, wanted: bool, done: int) -> Events:
    """Opens the events of a run; those after step ``done`` of a resumed run are void. R205 if tensorboardX is
    missing."""
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
    return TensorBoard(SummaryWriter(str(folder / FOLDER), purge_step=done + 1 if done else None))
