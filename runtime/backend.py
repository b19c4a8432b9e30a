"""What a session needs of the machine that it runs on; the CPU's and the GPU's fit it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.context import Loaded

#: What a run gives: (port, kind, array) of each output. Reading it waits for the run; the arrays are good until the
#: context is fed again.
Outputs: TypeAlias = Iterable[tuple[str, str, "NDArray[Any]"]]


class LateOutputs(ABC):
    """Outputs of a run that may not be over: reading them waits. They are settled before their memory is used again."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]: ...

    @abstractmethod
    def settle(self) -> None:
        """Wait, and keep copies of one's own: what is read after that stays."""


class OnDevice(ABC):
    """An array in a device's memory, as a session takes and gives it."""

    dtype: str
    shape: tuple[int, ...]

    @abstractmethod
    def __getitem__(self, rows: slice) -> OnDevice:
        """Rows of the first axis, sharing memory."""

    @abstractmethod
    def at(self, index: int) -> OnDevice:
        """One of the arrays that are stacked along the first axis, sharing memory."""

    @abstractmethod
    def numpy(self) -> NDArray[Any]:
        """A copy on the host."""


class StateBlock(Protocol):
    """The bytes of the state region. Offsets in bytes; arrays are dense."""

    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Fill ``out`` from the block, behind every run that was started before."""
        ...

    def write(self, offset: int, values: NDArray[Any]) -> None:
        """The other way."""
        ...


class Measured(NamedTuple):
    """``times``: seconds that an instruction took by itself in each round, by its number in the plan. ``roof``: bytes
    that a ``copy`` moves in a second, and operations a second of ``matrix16``, ``matrix32``, ``matrix64``, ``f32``,
    ``f64``, as far as they are known."""

    times: Mapping[int, Sequence[float]]
    roof: Mapping[str, float]


class Change(NamedTuple):
    """What a run calls around all that writes the state: ``begin`` before, ``end`` right after. Both are C functions,
    so that where the writing is one call, no interrupt comes between it and them. ``begin`` may be called again."""

    begin: Callable[[], None]
    end: Callable[[], None]


class Bound(Protocol):
    """A plan on a context's memory. One caller at a time: ``begin``, then scalars and inputs, then ``run``.

    ``steps``: how many steps' inputs a run takes at most."""

    @property
    def steps(self) -> int: ...

    def begin(self, step: int = 0) -> None:
        """Make room for the inputs of a run's first step, after which the last run's outputs are gone; or of a later
        step of the same run."""
        ...

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """Where the inputs are written, in host memory."""
        ...

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        """Write the step block: a value for each scalar that the plan reads. ``seed`` is u64, stored as its bits."""
        ...

    def load_constants(self) -> None:
        """Bring the constants to their places, where another plan may have been."""
        ...

    def run(self, change: Change | None = None) -> Outputs:
        """Start the plan. ``change``: for one that writes the state."""
        ...

    def watch(self, see: Callable[[str, str, Sequence[NDArray[Any]]], None]) -> None:
        """Run instruction by instruction; after each, ``see`` gets its name, its node and what it has written."""
        ...

    def measure(self, rounds: int) -> Measured:
        """Run so often, timing each instruction. The state is then that of as many steps with the same inputs."""
        ...


class DeviceBound(Bound, Protocol):
    """A plan that takes and gives arrays of its device."""

    def inputs_of(self, count: int) -> Mapping[str, NDArray[Any]]:
        """Where the inputs of the first ``count`` steps of a run are written, in host memory: axis 0 counts them."""
        ...

    def place(self, name: str, array: OnDevice, row: int = 0) -> None:
        """An input, or its rows from ``row`` on, for the run that was begun; the host's is not read then."""
        ...

    def run_steps(self, count: int, changes: Sequence[Change] = ()) -> Sequence[LateOutputs]:
        """Start the first ``count`` steps whose inputs were given, one after the other; the outputs of each.
        ``changes``: one a step, for those that write the state."""
        ...

    def run_into(self, targets: Mapping[str, OnDevice]) -> None:
        """Run, with the outputs of these names copied to arrays of the device, first rows first; waits for it."""
        ...


class Backend(Protocol):
    """A machine with an artifact's code and memory on it."""

    @property
    def name(self) -> str:
        """``cpu`` or ``gpu:0``."""
        ...

    @property
    def state(self) -> StateBlock: ...

    @property
    def contexts(self) -> Sequence[Mapping[Loaded, Bound]]:
        """For each context the bound plans; plans of one context overlay each other."""
        ...

    def check(self) -> None:
        """Raise DeviceLostError R207 for a machine that nothing can run on any more."""
        ...

    def adopt(self, call: str, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """The inputs, with those that lie in the device's memory as ``OnDevice``. InputError R105 for one that cannot
        be read there."""
        ...

    def new_array(self, dtype: str, shape: Sequence[int]) -> OnDevice:
        """Memory of the device for a result; where inputs may lie on it alone."""
        ...

    def counters(self) -> Mapping[str, int]:
        """What was done so far, added up over the contexts; nothing is counted on the CPU."""
        ...

    def keep_choices(self) -> int:
        """Keep what libraries chose on this machine, so that later loads need not ask them; how many choices."""
        ...

    def close(self) -> None:
        """Let go of all of it. Nothing runs any more."""
        ...
