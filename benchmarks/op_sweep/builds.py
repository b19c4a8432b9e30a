"""The processes that build the cases of a sweep, ahead of their measurement and in its order."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from op_sweep.peer import Failed, Peer

if TYPE_CHECKING:
    from op_sweep.case import Run

_TOGETHER: Final = 12  # cases whose kernels a process compiles together


class Builds:
    """``with builds:`` the processes run."""

    def __init__(self, wanted: Sequence[Run], words: Sequence[str], jobs: int) -> None:
        """``words``: sizes, target, provider and folder."""
        names = [run.name for run in wanted]
        self._left = deque(names[at : at + _TOGETHER] for at in range(0, len(names), _TOGETHER))
        self._command = [sys.executable, str(Path(__file__).with_name("builder.py")), *words]
        self._threads = [threading.Thread(target=self._work) for _ in range(min(jobs, len(self._left)))]
        self._changed = threading.Condition()
        self._found: dict[str, tuple[str, str]] = {}
        self._count = len(names)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.clear()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        peer: Peer | None = None
        while self._left:
            try:
                names = self._left.popleft()
            except IndexError:
                break
            try:
                peer = peer or Peer(self._command, {"OMP_NUM_THREADS": "1"})
                found = {name: (str(path), str(why)) for name, (path, why) in peer.ask({"names": names}).items()}
            except Failed as error:
                found = dict.fromkeys(names, ("", str(error)))
            with self._changed:
                self._found |= found
                self._changed.notify_all()
        if peer is not None:
            peer.close()

    def wait(self, seconds: float, progress: Callable[[str, int, int], None]) -> None:
        """Until all are built, or ``seconds`` have passed."""
        end = time.monotonic() + seconds
        with self._changed:
            while len(self._found) < self._count and time.monotonic() < end:
                self._changed.wait(min(1.0, max(0.0, end - time.monotonic())))
                progress("built", len(self._found), self._count)

    def get(self, run: Run, seconds: float) -> tuple[str, str]:
        """The file of a run and "", or "" and why there is none."""
        with self._changed:
            patience = None if seconds == float("inf") else max(0, seconds)
            self._changed.wait_for(lambda: run.name in self._found, patience)
            return self._found.get(run.name, ("", "not built within the limit"))
