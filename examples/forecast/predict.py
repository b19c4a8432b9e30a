"""Forecast the last test window's day with the trained model, and draw it as text.

python examples/forecast/predict.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "build"))

import forecast  # noqa: E402  (build/forecast, made by `dslc train` or `dslc build`)

WIDTH = 60  # characters of the picture


def main() -> None:
    with np.load(HERE / "data" / "load.npz", allow_pickle=False) as data:
        inputs = {name: data[f"test_{name}"] for name in ("past", "when", "ahead")}
        target = data["test_target"]
    found = forecast.predict(**inputs)
    low, high = min(found[-1].min(), target[-1].min()), max(found[-1].max(), target[-1].max())
    for hour, (guess, truth) in enumerate(zip(found[-1], target[-1])):
        line = [" "] * WIDTH
        for value, mark in ((truth, "o"), (guess, "x")):
            line[round(float((value - low) / (high - low)) * (WIDTH - 1))] = mark
        print(f"+{hour + 1:2} h  {guess:6.2f}  {''.join(line).rstrip()}")
    print(f"x: forecast, o: what came. Mean error over {len(target)} days: {np.abs(found - target).mean():.3f}")


if __name__ == "__main__":
    main()
