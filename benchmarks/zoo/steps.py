"""What both sides of a comparison do on command: time steps, say how much memory they took. Needs no package."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def answer(found: object) -> None:
    """A line for the other process."""
    print(json.dumps(found), flush=True)


def resident(peak: bool = False) -> float:
    """MiB of memory that this process has now, or at most had."""
    with open("/proc/self/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) / 1024


def serve(step: Callable[[], object], before: float) -> None:
    """Answers ``time SECONDS`` with the milliseconds of each of several steps, and ``memory`` with the most MiB above
    ``before``, until the input ends."""
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "memory":
            answer(resident(peak=True) - before)
            continue
        found: list[float] = []
        end = time.perf_counter() + float(rest[0])
        while len(found) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            step()
            found.append((time.perf_counter() - begin) * 1e3)
        answer(found)
