"""An interrupt at any point of our Python: Ctrl-C as a trace function raises it, once, where it is told to.

Points are what ``sys.settrace`` sees in the files of ``WATCHED``: calls, lines and returns, or each
instruction of the interpreter. That is more than signals reach: at the last line of a ``with``, before ``__exit__`` is
called, no signal is raised. Where no handler of the function would get the exception, and no signal is raised either,
there is no point: at the instruction of a ``try`` that does nothing, at a ``yield`` that has given its value, and at
the next turn of a loop within one line.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dis import get_instructions, opmap
from functools import cache
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from thinning import SOAK, turn

import dslc
from dslc.base.errors import DslcError
from dslc.runtime.session.session import Session

ROOT = str(Path(dslc.__file__).parent) + "/"
WATCHED = (ROOT + "runtime/", ROOT + "base/", ROOT + "compiler/toolchain/", ROOT + "face.py")
PATIENCE = 20.0  # seconds after which a call counts as hung


@cache
def _code(code: CodeType) -> bytes:
    return code.co_code


@cache
def _turns(code: CodeType) -> frozenset[int]:
    """Where a loop that is within one line jumps back to.

    Python from 3.12 on reports the line again there. An exception of the trace function then passes the handlers
    around it; that of a signal, which is raised at the jump, does not.
    """
    if sys.version_info < (3, 12):
        return frozenset()
    found = list(get_instructions(code))
    lines = {i.offset: i.positions and i.positions.lineno for i in found}
    back = [i for i in found if i.opcode == opmap["JUMP_BACKWARD"]]
    return frozenset(i.argval for i in back if lines[i.argval] == lines[i.offset])


def _unreachable(frame: FrameType, event: str) -> bool:
    if event == "line" and frame.f_lasti in _turns(frame.f_code):
        return True
    if event == "return" and frame.f_code.co_flags & CO_GENERATOR:
        return True
    return _code(frame.f_code)[frame.f_lasti] == opmap["NOP"]


class Strike:
    """``with Strike(number): ...`` raises KeyboardInterrupt at the point of that number, from 1; 0 only counts.

    ``struck``: where, None if nowhere; ``points``: how many were passed.
    """

    def __init__(
        self, number: int = 0, *, opcodes: bool = False, kind: Callable[[], KeyboardInterrupt] = KeyboardInterrupt
    ) -> None:
        self.number, self.opcodes, self.kind = number, opcodes, kind
        self.points = 0
        self.struck: str | None = None
        self.error: KeyboardInterrupt | None = None
        self._raised: KeyboardInterrupt | None = None
        self._shows = sys.unraisablehook

    def _show(self, lost: sys.UnraisableHookArgs) -> None:
        """An interrupt that strikes the end of a generator which nobody has any more is shown by the interpreter, not
        raised. Ours need not be seen; all else is shown."""
        if lost.exc_value is None or lost.exc_value is not self._raised:
            self._shows(lost)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if self.struck is None:
            frame.f_trace_opcodes = self.opcodes
        if (event == "opcode") == self.opcodes and event != "exception" and not _unreachable(frame, event):
            self.points += 1
            if self.points == self.number:
                name = frame.f_code.co_filename.removeprefix(ROOT)
                self.struck = f"{name}:{frame.f_lineno} {event} in {frame.f_code.co_name}"
                if self.opcodes:
                    self.struck += f" at {frame.f_lasti}"
                sys.settrace(None)
                self._raised = self.kind()
                raise self._raised
        return self._trace

    def __enter__(self) -> Strike:
        if self.opcodes:  # Python 3.12 looks, in settrace, whether any frame has asked for them so far
            sys._getframe().f_trace_opcodes = True
        self._shows, sys.unraisablehook = sys.unraisablehook, self._show
        sys.settrace(self._trace)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)
        sys.unraisablehook = self._shows
        self._raised = None  # its traceback holds frames


def _apart(call: Callable[[], object]) -> Iterator[object]:
    """The call in a generator, which keeps the exception that is being handled to itself.

    A point may be the last instruction of an ``except``, where a signal cannot strike and the interpreter forgets to
    leave the handler: every later exception of the thread would have that one as its context.
    """
    yield call()


def count(call: Callable[[], object], *, opcodes: bool = False) -> int:
    """How many points a call passes."""
    with Strike(opcodes=opcodes) as strike:
        next(_apart(call))
    return strike.points


def strike(
    call: Callable[[], object],
    number: int,
    *,
    opcodes: bool = False,
    kind: Callable[[], KeyboardInterrupt] = KeyboardInterrupt,
) -> Strike:
    """Call, with an interrupt at a point. The exception is kept, as a shell keeps the last one: its traceback holds
    every frame, so nothing may hang on their end."""
    with Strike(number, opcodes=opcodes, kind=kind) as found:
        try:
            next(_apart(call))
        except KeyboardInterrupt as interrupt:
            found.error = interrupt
    assert sys.exc_info() == (None, None, None), "a later exception would have another one as its context"
    return found


def settle() -> None:
    """From here on a search for garbage looks only at what is made later, not at all that a long run of tests has
    imported and kept: a sweep makes one at each point."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Remains:
    """All that a call could leave over."""

    processes: int
    threads: int
    hidden: tuple[str, ...]  # temp files and locks
    descriptors: int

    @classmethod
    def of(cls, folder: Path) -> Remains:
        processes = sum(map(_is_ours, Path("/proc").glob("[0-9]*")))
        hidden = sorted(str(p.relative_to(folder)) for p in folder.rglob(".*"))
        return cls(processes, threading.active_count(), tuple(hidden), len(os.listdir("/proc/self/fd")))

    def more_than(self, before: Remains) -> bool:
        """Whether anything is left over; what another test began may end meanwhile."""
        counts = ((self.processes, before.processes), (self.threads, before.threads))
        hidden, descriptors = set(self.hidden) - set(before.hidden), self.descriptors - before.descriptors
        return any(now > then for now, then in counts) or bool(hidden) or descriptors > 0


def _is_ours(process: Path) -> bool:
    """Whether a folder of /proc is that of a child of this process."""
    try:
        text = (process / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False
    return int(text.rpartition(")")[2].split()[1]) == os.getpid()


def leaves_nothing(
    call: Callable[[], object],
    folder: Path,
    pick: Callable[[int], Iterable[int]],
    *,
    least: int,
    opcodes: bool = False,
    kind: Callable[[], KeyboardInterrupt] = KeyboardInterrupt,
    after: Callable[[], object] = lambda: None,
) -> int:
    """Strike a call at the points that ``pick`` chooses. Whatever the point: no process, thread, lock or temp file
    under ``folder`` remains, and no descriptor once its frames are gone; ``after`` finds nothing wrong; the next call
    has the result of the first. ``least``: points that the call has at least, else the sweep has missed it."""
    expected = call()
    settle()
    before = Remains.of(folder)
    points = count(call, opcodes=opcodes)
    assert points >= least, f"only {points} points"
    broken, struck, chosen = [], 0, list(pick(points))
    for number in chosen:
        found = strike(call, number, opcodes=opcodes, kind=kind)
        if found.struck is None:  # the call was shorter this time
            continue
        struck += 1
        left = Remains.of(folder)
        if left.descriptors != before.descriptors:
            found.error = None
            gc.collect()  # the files of its frames are closed with them
            left = replace(left, descriptors=Remains.of(folder).descriptors)
        if left.more_than(before):
            broken.append(f"{found.struck} leaves {left}, not {before}")
        before = Remains.of(folder)
        try:
            after()
            again = elsewhere(call)
            if again != expected:
                broken.append(f"{found.struck}: then {again!r}"[:200])
        except Exception as error:  # noqa: BLE001 - reported with the point
            broken.append(f"{found.struck}: {type(error).__name__} {error}")
    assert not broken, f"{len(broken)} of {struck} points:\n" + "\n".join(broken)
    assert 2 * struck >= len(chosen), f"only {struck} of {len(chosen)} points were struck"
    return struck


class Hung(AssertionError):
    """A call that another thread made did not come back."""


def elsewhere(call: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What another thread gets of a call: a result, or the error."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Hung("a call of another thread waits for ever")
    return found[0]


@dataclass(frozen=True)
class Shot:
    """The inputs of a session's computation, and its results."""

    step: int
    state: Mapping[str, bytes]
    prediction: bytes


class World:
    """A session, struck again and again. ``torn``: how often its state was half updated, and it said so."""

    def __init__(self, session: Session, inputs: Mapping[str, Any], held: Callable[[], object] = lambda: None) -> None:
        self.session, self.inputs, self.held = session, inputs, held
        self.start = session.state_tensors()
        self.torn = self.struck = 0
        self.broken: list[str] = []
        settle()

    def reset(self) -> None:
        self.session.restore(self.start, 5)

    def predict(self) -> bytes:
        found = self.session.predict(**self.inputs)
        return b"".join(np.asarray(x).tobytes() for x in (found if isinstance(found, tuple) else (found,)))

    def shot(self) -> Shot:
        state = {name: value.tobytes() for name, value in self.session.state_tensors().items()}
        return Shot(self.session.step, state, self.predict())

    def sweep(
        self,
        call: Callable[[], object],
        pick: Callable[[int], Iterable[int]],
        *,
        opcodes: bool = False,
        halfway: Callable[[], object] | None = None,
    ) -> int:
        """Strike a call at the points that ``pick`` chooses of so many; how many there are. The session then waits for
        nobody, and its state is that before the call or that after it, or after ``halfway``, or it says that it is
        torn."""
        self.reset()
        possible = []
        if halfway is not None:
            halfway()
            possible.append(self.shot())
            self.reset()
        before = self.shot()
        points = count(call, opcodes=opcodes)
        assert points >= (600 if opcodes else 150), f"only {points} points: the sweep has missed the call"
        after = self.shot()
        possible += [before, after]
        for number in pick(points):
            self.reset()
            held = self.held()
            found = strike(call, number, opcodes=opcodes)
            if found.struck is None:
                continue
            self.struck += 1
            try:
                self._examine(possible)
                self.reset()
                assert self.shot() == before, "other bits"
                call()
                assert self.shot() == after, "other bits of the call made again"
                if self.held() != held:
                    found.error = None  # the files of its frames are closed with them
                    gc.collect()
                assert self.held() == held, f"{self.held()} is held, not {held}"
            except Hung as error:
                self.broken.append(f"{found.struck}: {error}")
                return points  # nothing more can be asked of this session
            except Exception as error:  # noqa: BLE001 - reported with the point
                self.broken.append(f"{found.struck}: {type(error).__name__} {error}")
        return points

    def _examine(self, possible: Sequence[Shot]) -> None:
        answer = elsewhere(self.predict)
        if isinstance(answer, DslcError) and answer.code == "R310":
            self.torn += 1
            for call in (self.session.state_tensors, lambda: self.session.train_step(**self.inputs)):
                refused = elsewhere(call)
                assert isinstance(refused, DslcError) and refused.code in ("R310", "R105"), f"{refused} of a torn state"
            return
        if isinstance(answer, Exception):
            raise answer
        now = self.shot()
        assert now.prediction == answer
        assert now in possible, f"neither the state before the call nor that after it; step {now.step}"


def spread(most: int) -> Callable[[int], Iterable[int]]:
    """At most so many points, all over them; six times as many with DSLC_SOAK=1. DSLC_PART moves them."""
    if SOAK:
        most *= 6

    def pick(points: int) -> Iterable[int]:
        if points <= most:
            return range(1, points + 1)
        step = points / most
        first = turn(max(1, int(step)))
        return (1 + int(first + n * step) % points for n in range(most))

    return pick
