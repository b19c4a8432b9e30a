"""Watches the other ranks: each tells rank 0 that it lives, and rank 0 tells each.

A rank that ends, that is silent for too long, or that reports an error ends the training on all ranks with one message,
which names it. Rank 0 decides which rank was the first.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from dslc.base.errors import EXIT_RANKS, DslcError, RanksError
from dslc.runtime.ranks.contract import SECONDS, STEP_SECONDS, Place
from dslc.runtime.ranks.wire import WireError, receive_text, send_text

_BEATS: Final = 4  # messages in the time in which a silent rank is given up
#: Errors that each rank finds by itself.
_OF_ALL: Final = ("R601", "R602")
_VERDICT: Final = 3.0  # seconds for rank 0 to tell which rank ended first
FINISH: Final = 10.0  # seconds in which a process that knows of another's end finishes what it does, such as a file


class Watch:
    """A thread that exchanges messages with the others over the connections ``control``.

    ``failure``: why the training must end, None while all is well. When there is one, the connections ``data`` are
    shut, so that nothing waits for them, and a process that does not end then is ended. Time in which this process is
    stopped is no silence of the others, which may be stopped, too: a batch system suspends whole jobs."""

    def __init__(self, place: Place, control: Mapping[int, socket.socket], data: Mapping[int, socket.socket]) -> None:
        self._place, self._control, self._data = place, control, data
        self._every = place.seconds / _BEATS  # seconds between messages
        self._seen = dict.fromkeys(control, time.monotonic())
        self._left: set[int] = set()  # ranks that said that they are done
        self._stopped = 0.0  # the longest time in which this process did not run
        self.failure: RanksError | None = None
        self._failed = threading.Event()
        self._closing = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="dslc-ranks", daemon=True)
        for link in control.values():
            link.settimeout(place.seconds)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def lost(self, rank: int, why: str) -> RanksError:
        """The failure for a connection that broke: rank 0's word on who was first, or else this rank's own."""
        self._failed.wait(_VERDICT)
        return self.failure or self._gone(rank, why)

    def idle(self, rank: int) -> RanksError:
        """The failure for a rank that lives, but does not take its part in a step."""
        why = f"it did not take its part of a step in {self._place.step_seconds:g} s"
        return ended(rank, self._place.size, why, f"look at its host; {STEP_SECONDS} allows more time")

    def report(self, error: BaseException) -> None:
        """Tell the others why this rank ends."""
        if self.failure is not None or (isinstance(error, RanksError) and error.code in _OF_ALL):
            return
        if isinstance(error, RanksError):  # it names another rank
            self._tell({"failed": [error.message, error.help]})
            return
        said, help = type(error).__name__, None
        if isinstance(error, DslcError):
            at = f" ({error.place})" if error.place else ""
            said, help = f"{error.code}: {error.message}{at}", error.help
        failure = ended(self._place.rank, self._place.size, f"{said}"[:1000], help)
        self._tell({"failed": [failure.message, failure.help]})

    def close(self) -> None:
        """Tell the others that this rank is done, and stop watching."""
        self._tell({"done": True})
        self._closing.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        every = self._every
        due = now = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for rank, link in self._control.items():
                selector.register(link, selectors.EVENT_READ, rank)
            while self.failure is None and not self._closing.is_set():
                ready = selector.select(min(every, 0.2))
                before, now = now, time.monotonic()
                if now - before > every:
                    self._stopped = max(self._stopped, now - before)
                    self._seen = {rank: seen + now - before for rank, seen in self._seen.items()}
                for key, _ in ready:
                    if not self._read(key.data):
                        selector.unregister(key.fileobj)
                if now >= due:
                    self._tell({"alive": True})
                    due = now + every
                for rank, seen in self._seen.items():
                    if rank not in self._left and now - seen > self._place.seconds:
                        why = f"it was silent for {self._place.seconds:g} s"
                        self._fail(ended(rank, self._place.size, why, f"look at its host; {SECONDS} allows more time"))
        if self.failure is not None:
            self._end_the_process()

    def _read(self, rank: int) -> bool:
        """Take a message; False if no more come from this rank."""
        try:
            said = receive_text(self._control[rank])
        except WireError as error:
            if rank not in self._left:
                self._fail(self._gone(rank, str(error)))
            return False
        self._seen[rank] = time.monotonic()
        if "done" in said:
            self._left.add(rank)
        found = said.get("failed")
        if isinstance(found, list) and len(found) == 2:
            help = found[1] if isinstance(found[1], str) else None
            self._fail(RanksError("R603", str(found[0]), place=f"rank {self._place.rank}", help=help))
            return False
        return True

    def _gone(self, rank: int, why: str) -> RanksError:
        """The failure for a rank whose connection broke; this rank's own, if the others gave it up."""
        if self._stopped > self._place.seconds - self._every:  # its last message was at most so old
            why = f"it was stopped for {self._stopped:.0f} s, and the others ended"
            return ended(self._place.rank, self._place.size, why)
        return ended(rank, self._place.size, why)

    def _fail(self, failure: RanksError) -> None:
        if self.failure is not None:
            return
        failure.place = f"rank {self._place.rank}"
        self.failure = failure
        if self._place.rank == 0:
            self._tell({"failed": [failure.message, failure.help]})
        self._failed.set()
        for link in tuple(self._data.values()):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it is closed

    def _tell(self, message: dict[str, Any]) -> None:
        with self._sending:
            for rank, link in self._control.items():
                if rank in self._left:
                    continue
                try:
                    send_text(link, message)
                except WireError:
                    continue  # reading from it tells that it ended

    def _end_the_process(self) -> None:
        """End a process that computes, or waits, without asking for the failure."""
        if not self._closing.wait(FINISH):
            if self.failure is not None:
                sys.stderr.write(self.failure.render() + "\n")
                sys.stderr.flush()
            os._exit(EXIT_RANKS)


def ended(rank: int, size: int, why: str, help: str | None = None) -> RanksError:
    return RanksError("R603", f"rank {rank} of {size} has ended: {why}", place=f"rank {rank}",
                      help=help or "look at its messages; `dslc train --resume` continues from the last checkpoint"
                      )  # fmt: skip
