"""The sinks of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dslc.runtime.sinks.aside import Aside
from dslc.runtime.sinks.delivered import Delivered, read_delivered
from dslc.runtime.sinks.follower import Ending, Follower
from dslc.runtime.sinks.known import OWN, opener, title_of
from dslc.runtime.sinks.sink import About, Sink

if TYPE_CHECKING:
    from dslc.runtime.config.config import SinkConfig

_PATIENCE: Final = 60.0  # seconds at the end of a run for all sinks together
_HURRY: Final = 3.0  # the same for a run that was stopped at once
_SAID: Final = 2.0  # seconds after which the end of a run says what it waits for
_LOOK: Final = 0.1


class Sinks:
    """Each follows the run's log in a thread of its own; the training never waits for one, but at its end."""

    def __init__(self, line: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._line, self._warn = line, warn
        self._followers: list[Follower] = []
        self._untold: list[Follower] = []
        self._where: list[Follower] = []
        self._aside = Aside()
        self._patience = _PATIENCE

    def start(self, wanted: Mapping[str, SinkConfig], about: About, log: Path, resumed: bool) -> None:
        """Open the sinks, in their threads. Raises DataError R101 for an entry point that is gone."""
        if not wanted:
            return
        for name, given in wanted.items():
            knows = name in OWN and OWN[name].knows
            there = Delivered() if knows or not resumed else read_delivered(about.folder, name)
            opened: Callable[[], Sink] = partial(opener(name), about, **given.options)
            self._followers.append(Follower(name, opened, log, there, None if knows else about.folder))
        self._untold, self._where = [*self._followers], [*self._followers]
        self._aside.begin()
        for follower in self._followers:
            follower.start()

    def tell(self) -> None:
        """Say where the numbers go, and which sink has failed: each once."""
        for follower in self._where[:]:
            if follower.where:
                self._where.remove(follower)
                self._line(f"{title_of(follower.name)}: {follower.where}")
        for follower in self._untold[:]:
            if follower.failure is not None:
                self._untold.remove(follower)
                self._warn(f"{title_of(follower.name)} gets no more of this run: {follower.failure}")

    def close(self, state: str, exit_code: int, hurry: Callable[[], bool]) -> None:
        """Deliver the rest and end the remote runs; ``hurry()``: the user asks not to wait. A second call does
        nothing."""
        try:
            for follower in self._followers:
                follower.end(Ending(state, exit_code))
            late = self._await(hurry)
            self.tell()
            for follower in late:
                title, step = title_of(follower.name), follower.delivered.step
                got = f"it has the points up to step {step}" if step >= 0 else "it has no points yet"
                self._warn(f"{title} has not answered: {got}")
        finally:
            for follower in self._followers:
                follower.abandon()
            self._followers = []
            self._aside.end()

    def hurry(self) -> None:
        """Wait less at the end."""
        self._patience = _HURRY

    def _await(self, hurry: Callable[[], bool]) -> Iterable[Follower]:
        """Those that have not ended in time."""
        begun, said = time.monotonic(), False
        while left := [follower for follower in self._followers if not follower.ended(0)]:
            waited = time.monotonic() - begun
            if waited > self._patience or hurry():
                return left
            if waited > _SAID and not said:
                said = True
                self._line(f"waiting for {', '.join(title_of(follower.name) for follower in left)}; Ctrl-C goes on")
            left[0].ended(_LOOK)
        return ()
