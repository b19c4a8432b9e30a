"""Our side of a comparison of predictions: ``ours.py`` with ``predict`` instead of training steps.

    python predict_ours.py run NAME FOLDER --entry predict --batch 1 [--device gpu] [--dtype bf16] [--only-time]

A call takes numpy arrays and gives numpy arrays. The command ``kernels SECONDS`` times runs without copies, on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ours import Ours, main
from steps import BURSTS, LEAST, output_error


class Predicting(Ours):
    """A session that predicts."""

    calls: tuple[str, ...] | None = ("predict",)

    def ready(self) -> dict[str, Any]:
        from dslc.runtime.session.measure import program_of

        self.program = program_of(self.session, "predict", {})
        return {"launches": sum(hasattr(each, "where") for each in self.program.plan.instructions)}

    def call(self) -> Any:
        given: dict[str, Any] = dict(self.inputs)
        return self.session.predict(**given)

    def agreement(self) -> dict[str, Any]:
        """The error of a prediction with the twin's weights."""
        self.session.weights.load(self.folder / "weights.safetensors", map=self.entry.map)
        found = self.call()
        found = getattr(found, self.entry.result) if self.entry.result else found
        return {"output": output_error(found, np.load(self.folder / "prediction.npy"))}

    def run(self, count: int) -> float:
        for _ in range(count):
            self.call()
        return 0.0

    def kernels(self, seconds: str) -> list[tuple[float, float]]:
        """The milliseconds of a run without copies, in several bursts of runs."""
        from dslc.runtime.session.measure import time_kernels

        given = self.session, self.program, self.inputs
        count = max(1, round(max(float(seconds) / BURSTS, LEAST) / time_kernels(*given, 3)))
        return [(1e3 * time_kernels(*given, count), 0.0) for _ in range(BURSTS)]

    def commands(self) -> dict[str, Callable[..., object]]:
        return super().commands() | {"kernels": self.kernels}


if __name__ == "__main__":
    main(Predicting)
