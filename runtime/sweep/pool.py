"""The processes of the trials that run now."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dslc.base import child as package
from dslc.base.child import Child, answering
from dslc.base.errors import ResourceError
from dslc.runtime.sweep.state import Entry

_LEAVING: Final = 30.0  # seconds for a trial to finish its step, save and end
_MOST: Final = 1 << 20  # bytes of an answer


@dataclass(frozen=True)
class Place:
    """The share of the machine that one trial gets. ``device``: as ``--device`` names it; ``threads`` of a CPU."""

    device: str
    threads: int


def places(device: str, jobs: int, threads: int, gpus: int) -> list[Place]:
    """``jobs`` places (0: one for each GPU, one on a CPU) that divide ``threads``. ``gpus``: how many to spread over; 0
    for trials on a CPU or on one named device. At most one place for each GPU."""
    count = min(jobs or gpus, gpus) if gpus else jobs or 1
    share = max(1, threads // count)
    return [Place(f"gpu:{number}" if gpus else device, share) for number in range(count)]


@dataclass
class Running:
    """A trial in its process."""

    entry: Entry
    place: Place
    folder: Path
    child: Child = field(default_factory=Child)
    answer: bytearray = field(default_factory=bytearray)


@dataclass
class Ended:
    """How a trial ended: ``answer`` is what its process said, None if it said nothing; ``cause``: how it died;
    ``said``: the end of its stderr."""

    entry: Entry
    answer: Mapping[str, Any] | None
    cause: str
    said: str


class Pool:
    """Starts trials, waits for their ends, and leaves no process: ``with Always(pool.close), Always(pool.close): ...``.

    ``command``: of a trial's process."""

    def __init__(self, command: Sequence[str], given: Sequence[Place]) -> None:
        self._command = command
        self._places = list(given)
        self.running: list[Running] = []

    @property
    def free(self) -> bool:
        return len(self.running) < len(self._places)

    def start(self, entry: Entry, folder: Path, task: Mapping[str, Any]) -> None:
        """Start a trial at a free place; its task gets the ``device``. ResourceError R406 if no process can be
        started."""
        taken = [each.place for each in self.running]
        place = next(place for place in self._places if taken.count(place) < self._places.count(place))
        running = Running(entry, place, folder)
        self.running.append(running)
        try:
            running.child.start(self._command, env=_environment(place), quiet=True)
        except OSError as error:
            self.running.remove(running)
            raise ResourceError(
                "R406", f"the process of a trial cannot be started: {error.strerror}", help="give fewer --jobs"
            ) from error
        running.child.send(json.dumps({**task, "device": place.device}))

    def wait(self, seconds: float) -> list[Ended]:
        """The trials that have ended, after waiting up to ``seconds`` for one."""
        by_child = {id(each.child): each for each in self.running}
        found = []
        for child in answering([each.child for each in self.running], seconds):
            running = by_child[id(child)]
            part = child.receive()
            running.answer += part[: _MOST - len(running.answer)]
            if not part:
                child.close_pipes()
                cause = child.mourner.cause()
                self.running.remove(running)
                answer = _parsed(bytes(running.answer))
                found.append(Ended(running.entry, answer, cause, running.child.mourner.said))
        return found

    def stop(self) -> None:
        """Ask all trials to save and end."""
        for running in self.running:
            with suppress(ProcessLookupError):
                running.child.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all trials at once; nothing is saved."""
        for running in self.running:
            running.child.process.kill()

    def close(self) -> None:
        """End all trials; each may save first. May be repeated."""
        for running in tuple(self.running):
            running.child.close_pipes()
        for running in tuple(self.running):
            running.child.end(_LEAVING)
            self.running.remove(running)


def _parsed(answer: bytes) -> Mapping[str, Any] | None:
    """What the process said, if it was one whole line."""
    line, newline, _ = answer.partition(b"\n")
    return json.loads(line) if newline else None


def _environment(place: Place) -> dict[str, str]:
    """This process's environment, with the package's folder on the path and the share of the CPU."""
    root = str(Path(package.__file__).resolve().parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "DSLC_THREADS": str(place.threads),
    }
