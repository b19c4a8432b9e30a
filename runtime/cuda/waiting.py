"""How long the host waits for a GPU, and how: the driver's own waits never give up, so it is asked again and again."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final

from dslc.base.errors import InputError

_PATIENCE: Final = 600.0  # seconds
_SPINNING: Final = 1e-3  # seconds for which a wait asks again and again; then it sleeps between, a part of what it took
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
            help="a number of seconds, from 1 on, or off",
        )
    return float(asked)


def comes_true(ready: Callable[[], bool], seconds: float) -> bool:
    """Ask until ``ready`` says yes; False after so many seconds. Short waits cost what the driver's own do."""
    begun = time.monotonic()
    while not ready():
        waited = time.monotonic() - begun
        if waited > seconds:
            return False
        if waited > _SPINNING:
            time.sleep(min(waited / 32, _LONGEST_SLEEP))
    return True
