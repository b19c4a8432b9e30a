"""The scalars of a run: the step's number, the number of the first row, and the seed."""

from __future__ import annotations

from typing import Any

from dslc.runtime.session.open import check_options


class RunScalars:
    """Gives the scalars of a session's runs. ``seed`` may change between two calls."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of_run(self, *, step: int, row: int) -> dict[str, int | float]:
        """InputError R105 for numbers out of range."""
        check_options(step=step, row=row)
        return {"step": int(step), "row": int(row), "seed": self.seed}

    def of_step(self, step: int, rows: int, row: Any) -> dict[str, int | float]:
        """Those of a training step of so many rows; ``row`` is by default the number of rows of all steps before it."""
        if row is None:
            return {"step": step, "row": step * rows, "seed": self.seed}
        return self.of_run(step=step, row=row)
