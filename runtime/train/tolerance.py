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
            help = "fix or remove it"  # no prediction stands in for that of a bad sample
            if section != "predict":
                help += "; `data.on_bad: skip 10` tolerates ten such samples"
            raise DataError("R101", f"record {bad.row} cannot be read: {bad.why}", place=place, help=help)
        self._warn(f"{place}: record {bad.row} is skipped: {bad.why} ({len(self.rows)} of {self.skip} such samples)")

    def good(self, rows: NDArray[np.int64], index: NDArray[np.int64], section: str) -> NDArray[np.int64]:
        """The rows, with each bad row replaced by the first good row among them; if none is good, all by the first good
        one that follows in ``index``, the rows of the dataset, from whose end it goes on at the start. So every reader
        takes the same one. DataError R106 if there is none."""
        if not self.rows:
            return rows
        bad = np.fromiter(self.rows, np.int64)
        wrong = np.isin(rows, bad)
        if not wrong.any():
            return rows
        if not wrong.all():
            return np.where(wrong, rows[np.argmin(wrong)], rows)
        following = np.roll(index, -int(np.argmax(index == rows[0])))
        good = following[~np.isin(following, bad)]
        if not len(good):
            cause = f"none of the {len(index):,} rows can be read"
            raise DataError("R106", cause, place=section, help="fix or remove them")
        return np.full_like(rows, good[0])
