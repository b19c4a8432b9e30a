"""The errors of a regression in the units of the data, for targets whose scaling was fitted in the training."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.turns import Always
from dslc.runtime.predict.rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.predict.units import Units
    from dslc.runtime.session.session import Session
    from dslc.runtime.train.data import Dataset


@dataclass
class Errors:
    """Sums over rows, in f64."""

    rows: int = 0
    absolute: float = 0.0
    squared: float = 0.0
    mean: float = 0.0
    spread: float = 0.0  # the sum of squared differences of the true values from their mean

    def add(self, true: NDArray[np.float64], found: NDArray[np.float64]) -> None:
        """Both f64[n]. The spread is merged as of Chan, Golub and LeVeque 1979."""
        wrong, count, mean = found - true, len(true), float(true.mean())
        self.absolute += float(np.abs(wrong).sum())
        self.squared += float((wrong * wrong).sum())
        apart = mean - self.mean
        self.spread += float(((true - mean) ** 2).sum()) + apart * apart * self.rows * count / (self.rows + count)
        self.mean += apart * count / (self.rows + count)
        self.rows += count

    def values(self) -> dict[str, float | None]:
        """Mean absolute error, root mean square error, and R2, which is None if all true values are equal."""
        share = None if self.spread == 0.0 else 1.0 - self.squared / self.spread
        return {"mae": self.absolute / self.rows, "rmse": sqrt(self.squared / self.rows), "r2": share}


def errors_of(session: Session, data: Dataset, units: Units, workers: int) -> dict[str, Errors]:
    """The errors of each column of a scaled target over all rows of ``data``, which has the targets too.

    Raises DataError R101 and R103 for a row that cannot be read.
    """
    inputs = {tensor.name for tensor in session.interface.inputs}
    errors = {name: Errors() for name in units.names}
    step = Rows(session, data, None).step()
    starts = range(0, data.rows, step)
    feed = data.feed(((data.index[start : start + step], 0) for start in starts), workers)
    with Always(feed.close), Always(feed.close):
        for start, arrays in zip(starts, feed):
            found = session.predict(**{name: arrays[name] for name in inputs}, row=start)
            for name, true, predicted in _pairs(session, units, arrays, found):
                errors[name].add(true, predicted)
    return errors


def _pairs(session: Session, units: Units, arrays: dict[str, Any], found: Any) -> Any:
    """Column, true values and predicted values, f64[rows] each."""
    results = session.interface.results
    for result, values in zip(results, [found] if len(results) == 1 else found, strict=True):
        for at, (name, unit) in enumerate(units.decoded.get(result.name, ())):
            both = (np.asarray(each) for each in (arrays[units.targets[result.name]], values))
            true, predicted = (each.reshape(len(each), -1)[:, at].astype(np.float64) for each in both)
            yield name, unit.decode(true), unit.decode(predicted)
