"""W&B: one row for each step, with columns ``KIND/NAME``, written by wandb. Its own files are in the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dslc.base.errors import DataError
from dslc.base.words import reason
from dslc.runtime.sinks.sink import About, Point

#: Modes without a server.
_LOCAL: Final = ("offline", "disabled", "dryrun")


class Wandb:
    """W&B shows NaN and infinities as such. Without a server, each part of a resumed run writes the whole run into a
    folder of its own: wandb keeps the last points in memory, so the folder of a process that was killed lacks some."""

    def __init__(self, run: Any, where: str) -> None:
        self._run = run
        self.where = where

    def write(self, points: Sequence[Point]) -> None:
        for step, row in rows(points):
            if step >= self._run.starting_step:  # earlier ones are there: the process was killed after they were sent
                self._run.log(row, step=step)

    def close(self, state: str, exit_code: int) -> None:
        self._run.finish(exit_code=exit_code)


def rows(points: Sequence[Point]) -> list[tuple[int, dict[str, float]]]:
    """The values of all points of a step as one row, by step."""
    found: dict[int, dict[str, float]] = {}
    for point in points:
        row = found.setdefault(point.step, {})
        row.update({f"{point.kind}/{name}": value for name, value in point.values.items()})
    return list(found.items())


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration by sections: ``{"train": {"epochs": 3}}``. A name with a dot would be read as nested."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        section, dot, key = name.partition(".")
        if dot:
            found.setdefault(section, {})[key.replace(".", "_")] = value
        else:
            found[section] = value
    return found


@lru_cache(maxsize=1)
def require_login(mode: str | None, place: str) -> None:
    """Ask for an API key on a terminal, as `wandb login` does. DataError R104 if there is none."""
    import wandb

    if (mode or os.environ.get("WANDB_MODE", "online")) in _LOCAL:
        return
    try:
        wandb.login()
    except wandb.errors.UsageError as error:
        help = "run `wandb login`, or set `mode: offline` and send the run later with `wandb sync`"
        raise DataError("R104", f"W&B: {reason(error)}", place=place, help=help) from error
    except wandb.errors.Error:
        return  # no answer now; the sink tries again while the run trains


def open_sink(about: About, **options: Any) -> Wandb:
    import wandb

    given = {"project": about.model, "name": about.name, **options}
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    run = wandb.init(
        **given,
        dir=str(about.folder),
        id=about.id,
        config=sections(about.config),
        allow_val_change=True,  # of a run that is resumed with more epochs
        reinit="create_new",
        resume="allow",
        settings=settings,
    )
    return Wandb(run, "" if run.offline else str(run.url or ""))
