"""The line model on a fake GPU and on the CPU, side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver
from fake_gpu.gpu_model import write_gpu_line

from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

Machine = Callable[..., FakeDriver]
ROWS, FEATURES = line_model.BATCH, line_model.FEATURES


def batch(step: int, rows: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((rows, FEATURES)).astype(np.float32),
            "target": rng.integers(0, 10, rows).astype(np.int32)}  # fmt: skip


class Pair:
    """The artifact on a fake GPU and on the CPU."""

    def __init__(self, folder: Path, machine: Machine, *, options: dict[str, Any] | None = None, **made: Any) -> None:
        path, kernels = write_gpu_line(folder, targets=("cpu", "sm_90"), **made)
        self.path, self.kernels = path, kernels
        self.fake = machine(**kernels.driver())
        given = {"weights": "init", "seed": 7, "meanings": line_model.MEANINGS, **(options or {})}
        self.gpu = load(path, device="gpu", **given)
        self.cpu = load(path, device="cpu", **{k: v for k, v in given.items() if k != "bulk"})

    def both(self, call: Callable[[Session], Any]) -> tuple[Any, Any]:
        return call(self.gpu), call(self.cpu)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)
