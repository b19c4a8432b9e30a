"""What both sides of a comparison do: measure errors, time steps, answer commands. Needs numpy alone."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

#: Of a GPU: so many measurements of several steps each, and the least seconds of one.
BURSTS: Final = 5
LEAST: Final = 0.02


def answer(found: object) -> None:
    """A line for the other process."""
    print(json.dumps(found), flush=True)


def resident(peak: bool = False) -> float:
    """MiB of memory that this process has now, or at most had."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) / 1024


def forget_peak() -> None:
    """``resident(peak=True)`` counts from here, without the freed memory that the allocator has kept so far."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def norm_errors(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of each tensor the norm of the difference by its norm plus a thousandth of the norm of all."""
    norms = {n: float(np.linalg.norm(wanted[n])) for n in found}
    all = float(np.linalg.norm(list(norms.values())))
    return {n: float(np.linalg.norm(x - wanted[n])) / (norms[n] + 1e-3 * all) for n, x in found.items()}


def output_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error by the largest number."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def timed(run: Callable[[int], object], seconds: float, together: bool) -> list[tuple[float, float]]:
    """The milliseconds, and the processor's milliseconds, of a step. ``run(n)`` makes n steps and waits for the last.

    ``together``: several steps without a wait in between, as a GPU is used; else each by itself, at least three.
    """
    count = 1
    if together:
        begin = time.perf_counter()
        run(3)
        each = (time.perf_counter() - begin) / 3
        count = max(1, round(max(seconds / BURSTS, LEAST) / each))
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or (time.perf_counter() < end and not (together and len(found) >= BURSTS)):
        begin, busy = time.perf_counter(), time.process_time()
        run(count)
        now, done = time.perf_counter(), time.process_time()
        found.append(((now - begin) * 1e3 / count, (done - busy) * 1e3 / count))
    return found


def serve(commands: Mapping[str, Callable[..., object]]) -> None:
    """Answers each line of the input, a command and its arguments, until the input ends."""
    for line in sys.stdin:
        command, *rest = line.split()
        answer(commands[command](*rest))
