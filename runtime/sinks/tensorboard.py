"""TensorBoard: scalars ``KIND/NAME`` in the folder ``events`` of the run, written by tensorboardX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dslc.runtime.sinks.sink import About, Point

FOLDER: Final = "events"


class TensorBoard:
    """Values that are not finite are left out: TensorBoard draws no line through them."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            for name, value in point.values.items():
                if math.isfinite(value):
                    self._writer.add_scalar(f"{point.kind}/{name}", value, point.step)

    def close(self, state: str, exit_code: int) -> None:
        self._writer.close()


def open_sink(about: About) -> TensorBoard:
    """Earlier events are void, and a resumed run writes all of its log again: a process that was killed may not have
    written what it was given."""
    from tensorboardX import SummaryWriter

    folder = about.folder / FOLDER
    return TensorBoard(SummaryWriter(str(folder), purge_step=0 if folder.is_dir() else None))
