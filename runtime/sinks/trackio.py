"""trackio: one row for each step, with columns ``KIND/NAME``; on this machine, or where its variables say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.runtime.sinks.sink import About, Point
from dslc.runtime.sinks.wandb import rows, sections


class Trackio:
    """trackio keeps NaN and infinities; it knows no state of a run."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, points: Sequence[Point]) -> None:
        for step, row in rows(points):
            self._run.log(row, step=step)

    def close(self, state: str, exit_code: int) -> None:
        self._run.finish()


def open_sink(about: About, **options: Any) -> Trackio:
    import trackio

    given = {"project": about.model, **options}
    name = f"{about.name}-{about.id[:8]}"  # trackio finds a run to resume by its name, so no other may have it
    return Trackio(trackio.init(**given, name=name, config=sections(about.config), resume="allow", embed=False))
