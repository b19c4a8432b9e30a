"""The interface of a vendor's library: one class per library, in a file of its own, listed in ``registry.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from dslc.base.errors import EnvironmentFault
from dslc.base.version import install_extra
from dslc.base.words import reason
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

#: The text of an algorithm, and the bytes of workspace that it needs.
Way: TypeAlias = tuple[str, int]

#: The extra that installs all libraries.
EXTRA: Final = "vendor"


class Problem(Protocol):
    """What a library is asked for: a dataclass whose ``repr`` is complete."""

    @property
    def algorithm(self) -> str:
        """The text of the algorithm to use; empty for the library's own choice."""

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""


class Runnable(Protocol):
    """A problem that is ready to run. ``algorithm``: the text of what the library uses; ``workspace``: the bytes that
    it needs."""

    algorithm: str
    workspace: int

    def run(self, operands: Sequence[int], workspace: int, stream: Any) -> None:
        """Enqueue it on a stream. ``operands``: the addresses of all inputs and of the result; ``workspace``: the
        address of its workspace, a multiple of 256."""


@dataclass(frozen=True, slots=True)
class Installed:
    """``version`` of a library here; ``file``: how its shared object's name begins; ``packages``: the versions of the
    Python packages through which it is called."""

    version: str
    file: str
    packages: tuple[tuple[str, str], ...] = ()


P = TypeVar("P", bound=Problem)


class Library(ABC, Generic[P]):
    """An open library. ``name``: in instructions; ``title``: in messages; ``packages``: of Python, next to the library
    itself. The device's context must be current in every call."""

    name: ClassVar[str]
    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def open(cls, noted: Noted) -> Self:
        """Load and open it. ``noted``: where all that is made is noted. EnvironmentFault R205 if it is missing."""

    @classmethod
    @abstractmethod
    def installed(cls) -> Installed:
        """Loads the library, without a GPU. EnvironmentFault R205 if it is missing."""

    @property
    @abstractmethod
    def version(self) -> str:
        """``13.1.0``"""

    @abstractmethod
    def problem(self, call: Gemm | GraphOp, buffers: Sequence[Buffer], places: Sequence[int], workspace: int) -> P:
        """The problem of an instruction on ``buffers``: all inputs and the result, which lie at ``places``.
        EnvironmentFault R202 if the library does not compute it."""

    @abstractmethod
    def default(self, problem: P) -> Way:
        """The library's own choice. EnvironmentFault R202 if it has none."""

    @abstractmethod
    def candidates(self, problem: P, limit: int, deterministic: bool) -> list[Way]:
        """The ways that the library proposes with at most ``limit`` bytes of workspace, each of which ``prepare``
        accepts; ``deterministic``: only those that give the same bits each time."""

    @abstractmethod
    def prepare(self, problem: P) -> Runnable:
        """Ready to run, by the problem's algorithm, for which the library is not asked, or by the library's choice.
        EnvironmentFault R202 if it cannot do that."""

    def refused(self, problem: P, why: str) -> EnvironmentFault:
        """R202: the library does not compute a problem, or not by its algorithm."""
        if problem.algorithm:
            said = f"cannot run `{problem.algorithm}` for {problem}: {why}"
            return EnvironmentFault(
                "R202",
                f"{self.title} {self.version} {said}",
                place=self.title,
                help="measure with this version and build again: dslc tune; or build with --providers own",
            )
        return EnvironmentFault(
            "R202", f"{self.title} {why} for {problem}", place=self.title, help="build with --providers own"
        )


def unknown(what: str) -> EnvironmentFault:
    """R202: the plan holds a call that no library here computes."""
    return EnvironmentFault(
        "R202",
        f"the plan holds {what}, which this runtime does not support",
        place="libraries",
        help="build it with --providers own",
    )


def missing(title: str, error: Exception) -> EnvironmentFault:
    """R205: a library cannot be loaded."""
    why = reason(error)
    return EnvironmentFault(
        "R205", f"{title} cannot be loaded: {why}", help=f"{install_extra(EXTRA)}, or build with --providers own"
    )


def version_text(number: int) -> str:
    """130100 as ``13.1.0``, the version format of cuBLASLt and cuDNN."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
