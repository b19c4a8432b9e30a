"""The thread of a sink: it follows the log and gives new points to the sink, which may take as long as it wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dslc.base.words import reason
from dslc.runtime.sinks.delivered import Delivered, write_delivered
from dslc.runtime.sinks.sink import Point, Sink
from dslc.runtime.sinks.tail import Tail

THREAD: Final = "dslc-sink-"
_LOOK: Final = 0.5  # seconds between two looks at the log


@dataclass(frozen=True)
class Ending:
    state: str
    exit_code: int


class Follower:
    """``failure`` and ``where`` are set by the thread; the training's thread reads them."""

    def __init__(
        self, name: str, open_sink: Callable[[], Sink], log: Path, there: Delivered, note: Path | None
    ) -> None:
        """``there``: what the sink has; ``note``: the run's folder, to write that down."""
        self.name = name
        self.failure: str | None = None
        self.where = ""
        self.delivered = there
        self._open, self._note, self._tail = open_sink, note, Tail(log)
        self._ending: Ending | None = None
        self._abandoned = False
        self._signal = threading.Lock()
        self._signal.acquire()
        self._thread = threading.Thread(target=self._run, name=THREAD + name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, ending: Ending) -> None:
        """Deliver what the log holds, then close the sink; does not wait."""
        if self._ending is None:
            self._ending = ending
            self._signal.release()

    def ended(self, seconds: float) -> bool:
        """Wait; True if the thread has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Deliver nothing after the present call of the sink."""
        self._abandoned = True

    def _run(self) -> None:
        try:
            self._follow(self._open())
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever another package raises, training goes on
            self.failure = f"{type(error).__name__}: {reason(error)}"

    def _follow(self, sink: Sink) -> None:
        where = getattr(sink, "where", "")
        self.where = where if isinstance(where, str) else ""
        while True:
            ending = self._ending  # looked at before the log: what was logged before the end is delivered
            while not self._abandoned and (points := self._tail.read()):
                self._deliver(sink, [point for point in points if not self.delivered.has(point)])
            if self._abandoned:
                return
            if ending is not None:
                return sink.close(ending.state, ending.exit_code)
            self._signal.acquire(timeout=_LOOK)

    def _deliver(self, sink: Sink, points: list[Point]) -> None:
        if not points:
            return
        sink.write(points)
        for point in points:
            self.delivered = self.delivered.after(point)
        if self._note is not None:
            write_delivered(self._note, self.name, self.delivered)
