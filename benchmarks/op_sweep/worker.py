"""What both processes of a sweep do: they answer requests with lines of JSON, and save samples of results.

    open {name, path, out}   the run with this name; ``path``: its file if it is ours; a sample of the results goes to
                             ``out``, the answer says what is known of the case
    time {seconds}           seconds of one call, several times
    close {}                 gives the memory of the case back

An answer ``{"failed": WHY}`` says why a case cannot run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from op_sweep.case import FLOATS, Run, runs
from op_sweep.drawn import cases_of, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAMPLED: Final = 1 << 18  # elements of each result that are compared
_SHORT: Final = 1e-3  # seconds that a measurement of a CPU takes at least
_MOST: Final = 1000
#: Of one thread the processor's time counts, which other work on the machine disturbs less.
_CLOCK: Final = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter


class Opened(Protocol):
    """A case that is ready to run."""

    @property
    def about(self) -> dict[str, Any]:
        """What the row of the case says in addition."""

    def results(self) -> list[NDArray[Any]]:
        """The results of a run, as numbers; of large ones a sample, by ``sampled``."""

    def times(self, seconds: float) -> list[float]:
        """Seconds of one call, several times, for about so long."""

    def close(self) -> None:
        """Gives the memory back."""


def step_of(count: int) -> int:
    """The distance of the elements in the sample of a result."""
    return max(1, count // _SAMPLED)


def sampled(x: NDArray[Any]) -> NDArray[Any]:
    """Some elements of a result, the same on both sides."""
    return x.reshape(-1)[:: step_of(x.size)]


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of one call on the CPU; short calls are repeated within a measurement."""
    begun = _CLOCK()
    call()
    first = _CLOCK() - begun
    repeats = max(1, int(_SHORT / max(first, 1e-7)))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or (time.perf_counter() < end and len(found) < _MOST):
        begun = _CLOCK()
        for _ in range(repeats):
            call()
        found.append((_CLOCK() - begun) / repeats)
    return found


def table(sizes: str) -> dict[str, Run]:
    """All runs by name."""
    cases = cases_of(sizes)
    return {run.name: run for dtype in FLOATS for run in runs(cases, [dtype])}


def serve(start: Callable[[str], Callable[[Run, str], Opened]]) -> None:
    """Answers requests until the input ends. ``start(device)`` gives the function that opens a case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=("cpu", "gpu"))
    parser.add_argument("sizes", type=checked)
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(found: object) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    known, opens = table(given.sizes), start(given.device)
    answer({"ready": True})
    opened: Opened | None = None
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        try:
            if do == "open":
                opened = opens(known[request["name"]], request["path"])
                with open(request["out"], "wb") as file:
                    np.savez(file, *opened.results())
                answer(opened.about)
            elif do == "time":
                assert opened is not None, "no case is open"
                answer({"times": opened.times(request["seconds"])})
            elif do == "close":
                if opened is not None:
                    opened.close()
                opened = None
                answer({})
        except Exception as error:  # noqa: BLE001  # any fault of a case is a row of the table
            if opened is not None and do != "time":
                opened.close()
                opened = None
            answer({"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
            if given.device == "gpu":  # the context may be lost; the next request starts a new process
                os._exit(1)
