"""The interface between a session and its machine; the CPU backend and the GPU backend implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from dslc.runtime.session.host_copies import copies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Carried
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Loaded

#: The outputs of a run: (port, kind, array) of each. Reading them waits for the run; the arrays are valid until the
#: context gets new inputs.
Outputs: TypeAlias = Iterable[tuple[str, str, "NDArray[Any]"]]


#: Sets the inputs of a program and returns its plan, ready to run.
Feed: TypeAlias = Callable[[Mapping[str, "NDArray[Any]"]], "Bound"]


class LateOutputs(ABC):
    """Outputs of a run that may still be executing: reading them waits. They are settled before their memory is
    reused."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]: ...

    @abstractmethod
    def settle(self) -> None:
        """Wait and copy the outputs, so that later reads remain valid."""

    def given(self, rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """Arrays of the caller's own by name, of those in ``rows`` so many first rows. Each output is read once."""
        return copies(((name, view) for name, _, view in self), rows)


class OnDevice(ABC):
    """An array in a device's memory, as a session accepts and returns it."""

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
    """The bytes of the state region. Offsets are in bytes; arrays are dense."""

    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Copy into ``out`` after all earlier runs have completed."""
        ...

    def write(self, offset: int, values: NDArray[Any]) -> None:
        """Copy ``values`` into the block after all earlier runs have completed."""
        ...


class ContextBlock(StateBlock, Protocol):
    """The bytes of a context region, for one caller at a time."""

    def fill(self, state: Carried) -> None:
        """Set a state to the number that it starts with, before any later run of the context."""
        ...


class Measured(NamedTuple):
    """``times``: seconds of each instruction, run alone, per round, by its index in the plan. ``roof``: bytes per
    second of a ``copy``, and operations per second of ``matrix16``, ``matrix32``, ``matrix64``, ``f32``, ``f64``, as
    far as they are known."""

    times: Mapping[int, Sequence[float]]
    roof: Mapping[str, float]


class Change(NamedTuple):
    """Functions that a run calls around all writes of the state: ``begin`` before, ``end`` right after. Both are C
    functions: if the write is one call, no interrupt comes between it and them. ``begin`` may be called repeatedly."""

    begin: Callable[[], None]
    end: Callable[[], None]


class Bound(Protocol):
    """A plan bound to a context's memory. One caller at a time: ``begin``, then scalars and inputs, then ``run``.

    ``steps``: the largest number of steps whose inputs one run takes."""

    @property
    def steps(self) -> int: ...

    def begin(self, step: int = 0) -> None:
        """Prepare for the inputs of a run's first step, which invalidates the last run's outputs; or for those of a
        later step of the same run."""
        ...

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """The host arrays into which the inputs are written."""
        ...

    def put(self, name: str, array: NDArray[Any], *, once: bool = False) -> None:
        """Write an input; ``array`` has its dtype and shape. ``once``: for the next run alone, so that a device may get
        it without ``inputs``."""
        ...

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        """Write the step block: a value for each scalar that the plan reads. ``seed`` is u64, stored bit for bit."""
        ...

    def load_constants(self) -> None:
        """Copy the constants to their buffers, which another plan may have overwritten."""
        ...

    def run(self, change: Change | None = None) -> Outputs:
        """Start the plan. ``change``: required for a plan that writes the state."""
        ...

    def watch(self, see: Callable[[str, str, Sequence[NDArray[Any]]], None]) -> None:
        """Run one instruction at a time; after each, ``see`` gets its name, its node and the arrays that it wrote."""
        ...

    def measure(self, rounds: int) -> Measured:
        """Run ``rounds`` times and time each instruction. The state advances by as many steps with the same inputs."""
        ...

    def repeat(self, count: int) -> float:
        """Run ``count`` times, one right after the other and without copies to or from the host; the seconds of a
        run. For a plan that does not write the state."""
        ...


class DeviceBound(Bound, Protocol):
    """A plan that accepts and returns arrays of its device."""

    def inputs_of(self, count: int) -> Mapping[str, NDArray[Any]]:
        """The host arrays for the inputs of the first ``count`` steps of a run; axis 0 is the step."""
        ...

    def place(self, name: str, array: OnDevice, row: int = 0) -> None:
        """Set an input, or its rows from ``row`` on, for the run that was begun; its host array is then not read."""
        ...

    def run_steps(self, count: int, changes: Sequence[Change] = ()) -> Sequence[LateOutputs]:
        """Start the first ``count`` steps whose inputs were set, one after the other; returns the outputs of each.
        ``changes``: one per step, if the steps write the state."""
        ...

    def run_into(self, targets: Mapping[str, OnDevice]) -> None:
        """Run and wait; copies the outputs with these names to device arrays, first rows first."""
        ...


class Sums(Protocol):
    """The sums over the shards of a step, and over the micro-batches of a shard, which are run one after the other."""

    def join(self, group: Exchange) -> None:
        """Add this process's part of the shards from now on, and exchange the sums with the other processes."""
        ...

    def begin(self) -> None:
        """Forget the shards of the last step, also if an error left it incomplete."""
        ...

    def run(self, shard: Bound) -> None:
        """Run the plan of this process's next shard or micro-batch, whose inputs were set, and add what it gives."""
        ...

    def total(self) -> Mapping[str, NDArray[Any]]:
        """The sums over all shards, as inputs of the update; empty if they lie where the update reads them."""
        ...

    def updated(self, feed: Feed, change: Change) -> Outputs:
        """Run the update on the sums, and exchange with the other processes what each has updated; returns what it
        tells, for all processes. ``feed``: sets the update's inputs."""
        ...

    def numbers(self) -> Sequence[Outputs]:
        """Loss and metrics of all runs, in the order of the shards; after ``updated``."""
        ...


class Backend(Protocol):
    """A machine that holds an artifact's code and memory."""

    @property
    def name(self) -> str:
        """``cpu`` or ``gpu:0``."""
        ...

    @property
    def state(self) -> StateBlock: ...

    @property
    def contexts(self) -> Sequence[Mapping[Loaded, Bound]]:
        """The bound plans of each context; plans of one context share memory."""
        ...

    @property
    def blocks(self) -> Sequence[Mapping[Any, ContextBlock]]:
        """The states that the plans of each context carry from run to run, by their layout."""
        ...

    def check(self) -> None:
        """Raise DeviceLostError R207 if nothing can run on the machine any more."""
        ...

    def adopt(self, call: str, inputs: Mapping[str, object]) -> Mapping[str, object]:
        """The inputs, with those in the device's memory as ``OnDevice``. InputError R105 for one that cannot be read
        there."""
        ...

    def may_be_outside(self, ranged: Sequence[tuple[OnDevice, tuple[int, int]]]) -> bool:
        """Whether one of these arrays may hold a value outside its range [low, high). Waits for the arrays and for the
        check, but for no run. True also if the artifact, which an older dslc built, has no code to check them there."""
        ...

    def new_array(self, dtype: str, shape: Sequence[int]) -> OnDevice:
        """Device memory for a result; only if inputs may be on the device."""
        ...

    def sums(self, shard: Loaded, update: Loaded, count: int, each: int) -> Sums:
        """Takes the memory to add what ``count`` shards of ``each`` runs give, which ``update`` reads. OutOfMemory
        R401, ArtifactError R301."""
        ...

    def facts(self) -> Mapping[str, str]:
        """What decides the bits of a training by several processes, in addition to the artifact and the CPU, by name.
        EnvironmentFault R205 if what moves bytes between the devices is not installed."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Counts of completed work, summed over the contexts; empty on the CPU."""
        ...

    def keep_choices(self) -> int:
        """Store the libraries' choices for this machine, so that later loads reuse them; returns the number of
        choices."""
        ...

    def close(self) -> None:
        """Release everything. No run may be active."""
        ...
