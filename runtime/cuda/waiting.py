"""How the host waits for a GPU: it polls with a time limit, because the driver's own waits have none."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final

from dslc.base.errors import InputError

_PATIENCE: Final = 600.0  # seconds
#: Seconds of busy polling: a batch of predictions takes 1 to 4 ms, and the shortest sleep of an operating system 60 us,
#: 3 % of that. A later poll comes after a sleep of a fraction of the wait.
_SPINNING: Final = 5e-3
_FRACTION: Final = 1 / 128
_LONGEST_SLEEP: Final = 1e-3


def patience() -> float:
    """``DSLC_GPU_TIMEOUT``: seconds, or ``off``, which is inf; 600 by default. InputError R105 for anything else."""
    asked = os.environ.get("DSLC_GPU_TIMEOUT", "")
    if asked == "off":
        return math.inf
    if not asked:
        return _PATIENCE
    if not (asked.isascii() and asked.isdigit() and len(asked) < 8 and int(asked)):
        raise InputError(
            "R105",
            f"DSLC_GPU_TIMEOUT is {asked[:40]!r}",
            place="DSLC_GPU_TIMEOUT",
            help="set it to a number of seconds, at least 1, or to off",
        )
    return float(asked)


def comes_true(ready: Callable[[], bool], seconds: float) -> bool:
    """Poll until ``ready`` is true; False after ``seconds`` seconds. Short waits cost no more than the driver's own."""
    begun = time.monotonic()
    while not ready():
        waited = time.monotonic() - begun
        if waited > seconds:
            return False
        if waited > _SPINNING:
            time.sleep(min(waited * _FRACTION, _LONGEST_SLEEP))
    return True
