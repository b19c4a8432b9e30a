"""The interface of a sink: what it gets to know about its run, and the points that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

#: The kinds of points, in the order of the log for one step.
KINDS: Final = ("eval", "step", "epoch")


@dataclass(frozen=True)
class About:
    """The run of a sink.

    ``id``: 16 hexadecimal digits, of this run alone, the same after it is resumed. ``name``: as ``dslc runs`` lists it.
    ``config``: the values of the configuration by field."""

    id: str
    name: str
    model: str
    artifact: str
    folder: Path
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """Numbers of one moment. ``kind``: ``step`` (of one training step), ``epoch`` (means over an epoch) or ``eval``.
    ``step``: how many steps were done. A value may be NaN or infinite."""

    kind: str
    step: int
    epoch: int
    values: Mapping[str, float]


class Sink(Protocol):
    """All methods are called in one thread, which is the sink's own: they may wait. An exception ends the sink, not
    the training. An attribute ``where`` of type str, if there is one, is shown to the user."""

    def write(self, points: Sequence[Point], /) -> None:
        """Take points, in order. What was taken does not come again when the run is resumed."""

    def close(self, state: str, exit_code: int, /) -> None:
        """The end of the run: ``finished``, ``stopped`` (by a signal), ``failed`` or ``nan``."""
