"""The vendor libraries of a session: opened when a plan first names one; each problem is prepared once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from dslc.base.cache import Cache
from dslc.base.errors import DslcWarning, EnvironmentFault
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.libraries.choices import Prepared
from dslc.runtime.cuda.libraries.library import Library, Runnable, Way, unknown
from dslc.runtime.cuda.libraries.registry import LIBRARIES
from dslc.runtime.cuda.owned import Owned, let_go_of

_ALIGNED: Final = 256  # bytes; of a workspace
_WORTH_TELLING: Final = 1.0  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A library's kernels, ready to be enqueued. ``operands``: addresses; ``workspace``: the address of that of the
    plan."""

    runnable: Runnable
    operands: tuple[int, ...]
    workspace: int

    @property
    def need(self) -> int:
        """The bytes of workspace that the kernels need."""
        return self.runnable.workspace

    def enqueue(self, stream: Any, workspace: int | None = None) -> None:
        """Enqueue them on a stream; ``workspace``: another address, a multiple of 256."""
        self.runnable.run(self.operands, self.workspace if workspace is None else workspace, stream)


class Libraries:
    """Handles, plans and a stream of one session on one device, whose context must be current in every call.

    Equal problems share one plan: ``choices`` holds the text of each one's algorithm, and ``seconds`` the time for
    opening libraries and for choosing. Choices stored for ``artifact``, an artifact's id, are used without asking the
    library; "" for none.
    """

    def __init__(self, device: Device, owned: Owned, artifact: str = "") -> None:
        """``owned`` closes what was opened; no stream may use it any more by then."""
        self._device = device
        self._artifact = artifact
        self._told = False  # that what was kept is of no use
        self._noted: Noted = []
        owned.on_close(self._close)
        self._opened: dict[str, Library[Any]] = {}
        self._prepared: dict[str, Prepared] = {}
        self._recorder: Any = None
        self._runnables: dict[Any, tuple[Library[Any], Runnable]] = {}
        self.seconds = 0.0

    def _close(self) -> None:
        if self._device.driver.lost is None:
            with self._device.undisturbed() as scope, scope:
                let_go_of(self._device.driver, self._noted)
        else:  # the context is dead and has taken all of it along; libraries fail in it
            self._noted.clear()

    @property
    def choices(self) -> dict[Any, str]:
        """Problem -> the text of its algorithm."""
        return {problem: runnable.algorithm for problem, (_, runnable) in self._runnables.items()}

    @property
    def versions(self) -> dict[str, str]:
        """The names of the libraries in use -> their versions."""
        return {name: library.version for name, library in self._opened.items()}

    @property
    def used(self) -> int:
        """How many stored choices were used."""
        return sum(prepared.used for prepared in self._prepared.values())

    def measured_elsewhere(self, name: str, measured: Sequence[str]) -> str | None:
        """A message if the algorithms of the artifact ``name`` were measured with other versions of the libraries in
        use. ``measured``: the versions of each measurement, ``cudnn 9.19.0, driver 580.159.03``."""
        known = {tuple(word.split(" ", 1)) for text in measured for word in text.split(", ")}
        other = [
            f"{library.title} {version[0]}, here is {library.version}"
            for key, library in sorted(self._opened.items())
            for each, *version in sorted(known)
            if each == key and version and version[0] != library.version
        ]
        if not other:
            return None
        said = " and with ".join(other)
        return f"{name}: its algorithms were measured with {said}: their times and last bits may differ"

    def announcement(self, name: str) -> str | None:
        """A message with the time of the libraries for the artifact ``name``, if it is a second or more and the
        artifact leaves choices to them."""
        left = sum(not problem.algorithm for problem in self._runnables)
        if self.seconds < _WORTH_TELLING or not left:
            return None
        used = " and ".join(self._opened[n].title for n in LIBRARIES if n in self._opened)
        chosen = left - self.used
        more = f" and to choose {chosen} algorithms; `dslc warm` stores them for later loads" if chosen else ""
        return f"{name}: {used} took {self.seconds:.1f} s to load{more}"

    def keep(self) -> int:
        """Store all choices in the private cache; returns their number. ResourceError R402."""
        for problem, (library, runnable) in self._runnables.items():
            if not problem.algorithm:  # else the plan contains it
                self._prepared[library.name].add(problem, runnable.algorithm)
        cache = Cache.open()
        return sum(prepared.keep(cache) for prepared in self._prepared.values())

    @property
    def recorder(self) -> Any:
        """The stream on which calls are captured as parts of graphs."""
        if self._recorder is None:
            self._recorder = self._device.driver.stream(self._noted)
        return self._recorder

    def call(self, instruction: Gemm | GraphOp, buffers: Sequence[Buffer], address: Callable[[int], int]) -> Call:
        """The library call of an instruction, on buffers at ``address``. R205 if its library is not installed, R202 for
        an unsupported operation."""
        begun = time.monotonic()
        try:
            with self._device.undisturbed() as scope, scope:
                library, problem, places, room = self._asked(instruction, buffers, address)
                if problem not in self._runnables:
                    self._runnables[problem] = library, self._prepare(library, problem)
                _, runnable = self._runnables[problem]
        finally:
            self.seconds += time.monotonic() - begun
        return Call(runnable, places, room)

    def default(self, instruction: Gemm | GraphOp, buffers: Sequence[Buffer], address: Callable[[int], int]) -> Way:
        """The library's own choice for an instruction, with its workspace. R202, R205."""
        with self._device.undisturbed() as scope, scope:
            library, problem, _, _ = self._asked(instruction, buffers, address)
            return library.default(replace(problem, algorithm=""))

    def candidates(
        self,
        instruction: Gemm | GraphOp,
        buffers: Sequence[Buffer],
        address: Callable[[int], int],
        limit: int,
        deterministic: bool,
    ) -> list[Way]:
        """The ways to compute an instruction that its library proposes, with at most ``limit`` bytes of workspace;
        ``deterministic``: only those that give the same bits each time. R202, R205."""
        with self._device.undisturbed() as scope, scope:
            library, problem, _, _ = self._asked(instruction, buffers, address)
            return library.candidates(problem, limit, deterministic)

    def _asked(
        self, instruction: Gemm | GraphOp, buffers: Sequence[Buffer], address: Callable[[int], int]
    ) -> tuple[Library[Any], Any, tuple[int, ...], int]:
        """An instruction's library, its problem, the addresses of its operands, and that of its workspace."""
        if instruction.provider not in LIBRARIES:
            raise unknown(f"a call of {instruction.provider}")
        operands = _operands(instruction)
        places = tuple(address(i) for i in operands)
        room, size = _workspace(instruction.workspace, buffers, address)
        library = self._library(instruction.provider)
        return library, library.problem(instruction, [buffers[i] for i in operands], places, size), places, room

    def _library(self, name: str) -> Library[Any]:
        if name not in self._opened:
            library = LIBRARIES[name]().open(self._noted)
            cache = Cache.open(existing=True) if self._artifact else None
            self._prepared[name] = Prepared(cache, name, library.version, self._artifact, self._device)
            self._opened[name] = library
        return self._opened[name]

    def _prepare(self, library: Library[Any], problem: Any) -> Runnable:
        kept = None if problem.algorithm else self._prepared[library.name].get(problem)
        if kept is not None:
            try:
                return library.prepare(replace(problem, algorithm=kept))
            except EnvironmentFault as error:
                self._unfit(library.name, problem, error)
        return library.prepare(problem)

    def _unfit(self, library: str, problem: object, error: EnvironmentFault) -> None:
        """Drop the stored choice for a problem; warn once that it is not used."""
        self._prepared[library].drop(problem)
        if not self._told:
            self._told = True
            said = f"a choice stored by `dslc warm` is ignored, and chosen again: {error.message}"
            warnings.warn(DslcWarning("W002", said), stacklevel=2)


def _operands(instruction: Gemm | GraphOp) -> tuple[int, ...]:
    """The buffers of all inputs and of the result."""
    if isinstance(instruction, Gemm):
        more = tuple(b for b in (instruction.c, instruction.bias) if b is not None)
        return instruction.a, instruction.b, *more, instruction.out
    return (*instruction.inputs, *instruction.outputs)


def _workspace(index: int | None, buffers: Sequence[Buffer], address: Callable[[int], int]) -> tuple[int, int]:
    """The aligned address of a call's workspace, and its size in bytes, which does not depend on the alignment."""
    if index is None:
        return 0, 0
    size = prod(buffers[index].shape) - _ALIGNED
    return (-(-address(index) // _ALIGNED) * _ALIGNED, size) if size > 0 else (0, 0)
