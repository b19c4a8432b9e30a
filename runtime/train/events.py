"""Events for TensorBoard (extra ``logs``), in the folder ``events`` of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from dslc.base.errors import EnvironmentFault

FOLDER: Final = "events"


class Events(Protocol):
    """Where numbers of a run go beside the log."""

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class NoEvents:
    """They are not asked for."""

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class TensorBoard:
    """Scalars ``KIND/NAME``, as tensorboardX writes them."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


def open_events(folder: Path, wanted: bool, done: int) -> Events:
    """``done``: events of later steps, of a run that is resumed, are void. R205 when tensorboardX is not there."""
    if not wanted:
        return NoEvents()
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise EnvironmentFault(
            "R205",
            "events for TensorBoard need tensorboardX",
            place="save.tensorboard",
            help="pip install 'dslc[logs]'",
        ) from error
    return TensorBoard(SummaryWriter(str(folder / FOLDER), purge_step=done + 1 if done else None))
