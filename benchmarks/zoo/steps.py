"""What both sides of a comparison do: measure errors, time steps, say how much memory they took. Needs numpy alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np


def answer(found: object) -> None:
    """A line for the other process."""
    print(json.dumps(found), flush=True)


def resident(peak: bool = False) -> float:
    """MiB of memory that this process has now, or at most had."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) / 1024


def norm_errors(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of each tensor the norm of the difference by its norm plus a thousandth of the norm of all."""
    norms = {n: float(np.linalg.norm(wanted[n])) for n in found}
    all = float(np.linalg.norm(list(norms.values())))
    return {n: float(np.linalg.norm(x - wanted[n])) / (norms[n] + 1e-3 * all) for n, x in found.items()}


def serve(step: Callable[[], object], before: float) -> None:
    """Answers ``time SECONDS`` with the milliseconds and the processor's milliseconds of each of several steps, and
    ``memory`` with the most MiB above ``before``, until the input ends. What was needed before does not count."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "memory":
            answer(resident(peak=True) - before)
            continue
        found: list[tuple[float, float]] = []
        end = time.perf_counter() + float(rest[0])
        while len(found) < 3 or time.perf_counter() < end:
            begin, busy = time.perf_counter(), time.process_time()
            step()
            found.append(((time.perf_counter() - begin) * 1e3, (time.process_time() - busy) * 1e3))
        answer(found)
