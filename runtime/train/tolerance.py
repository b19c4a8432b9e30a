"""Bad samples: how many of them a run tolerates, and which rows stand in for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.data.rows import BadSample


class Tolerance:
    """Counts bad samples and tolerates up to ``skip`` of them. Each row counts once, whoever reads it."""

    def __init__(self, skip: int, warn: Callable[[str], None]) -> None:
        self.skip = skip
        self.rows: set[int] = set()
        self._warn = warn

    def note(self, bad: BadSample, section: str) -> None:
        """Count a bad sample. DataError R101 if it exceeds the limit."""
        if bad.row in self.rows:
            return
        self.rows.add(bad.row)
        place = bad.place or f"record {bad.row} of {section}"
        if len(self.rows) > self.skip:
            help = "fix or remove it; `data.on_bad: skip 10` tolerates ten such samples"
            raise DataError("R101", f"record {bad.row} cannot be read: {bad.why}", place=place, help=help)
        self._warn(f"{place}: record {bad.row} is skipped: {bad.why} ({len(self.rows)} of {self.skip} such samples)")

    def good(self, rows: NDArray[np.int64], section: str) -> NDArray[np.int64]:
        """The rows, with each bad row replaced by the first good row among them. DataError R106 if none is good."""
        if not self.rows:
            return rows
        wrong = np.isin(rows, np.fromiter(self.rows, np.int64))
        if not wrong.any():
            return rows
        if wrong.all():
            raise DataError(
                "R106", f"none of the {len(rows)} rows of a batch can be read", place=section, help="fix or remove them"
            )
        return np.where(wrong, rows[np.argmin(wrong)], rows)
