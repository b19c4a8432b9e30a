"""Draw ``data/load.npz``: the hourly load of a power grid that does not exist, as windows of a week and the day after.

    python examples/forecast/make_data.py [TRAIN_WINDOWS [TEST_WINDOWS]]

The load has a curve of the day, lower weekends, weather that drifts over days, and noise. Windows begin every five
hours, those of the test after all of the training. By default there are 1,600 and 200.

Prints the mean error of a guess: the load of the same hour a week ago.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PAST, AHEAD, STRIDE = 168, 24, 5  # hours; PAST and AHEAD as in forecast.nn
SEED = 0
OUT = Path(__file__).resolve().parent / "data" / "load.npz"


def series(hours: int, rng: np.random.Generator) -> np.ndarray:
    """The load, f64 [hours], of about zero mean and a deviation of one."""
    at = np.arange(hours)
    day = np.sin(2 * np.pi * (at - 8) / 24) + 0.4 * np.sin(4 * np.pi * (at - 5) / 24)
    weekend = at // 24 % 7 >= 5
    weather = np.zeros(hours)
    for hour in range(1, hours):
        weather[hour] = 0.99 * weather[hour - 1] + rng.normal(0, 0.07)
    return np.where(weekend, 0.6, 1.0) * day - 0.5 * weekend + weather + rng.normal(0, 0.08, hours)


def calendar(hours: int) -> np.ndarray:
    """f64 [hours, 4]: sine and cosine of the hour of the day, and of the day of the week."""
    at = np.arange(hours)
    angles = (2 * np.pi * (at % 24) / 24, 2 * np.pi * (at // 24 % 7) / 7)
    return np.stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)


def main(train: int = 1600, test: int = 200) -> None:
    gap = -(-(PAST + AHEAD) // STRIDE)  # windows between, so that no hour is in both parts
    count = train + gap + test
    hours = STRIDE * (count - 1) + PAST + AHEAD
    load, when = series(hours, np.random.default_rng(SEED)), calendar(hours)
    starts = STRIDE * np.arange(count)[:, None]
    known, coming = starts + np.arange(PAST), starts + PAST + np.arange(AHEAD)
    whole = {"past": load[known], "when": when[known], "ahead": when[coming], "target": load[coming]}
    parts = {"train": slice(0, train), "test": slice(train + gap, count)}
    arrays = {f"{part}_{name}": x[rows].astype(np.float32) for part, rows in parts.items() for name, x in whole.items()}
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUT, **arrays)
    guess = np.abs(arrays["test_past"][:, :AHEAD] - arrays["test_target"]).mean()
    print(f"{OUT}: {train} + {test} windows")
    print(f"the same hour a week ago: an error of {guess:.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
