"""A plan's instructions on a GPU, grouped into bulks; each bulk is one CUDA graph.

A step is one kernel launch, copy, fill or library call with computed addresses and sizes. The plan's streams and events
determine its order: it follows the previous step on its stream, and the steps that its stream has waited for. A kernel
that follows exactly one other kernel is launched while that one ends; its own code waits for the results (programmatic
dependent launch). This hides the launch latency.

Persistent kernels of cuBLASLt and cuDNN count their tiles in the first bytes of their workspace. The library sets these
to 0 before each kernel, during which an H200 is idle for 3 to 6 us. So in a graph each such call has a small workspace
of its own, and one fill at the beginning of the graph sets all of these workspaces to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from dslc.base.errors import DslcError
from dslc.runtime.cuda.owned import Owned

if TYPE_CHECKING:
    from dslc.runtime.cuda.arguments import Arguments
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.checked_calls import Noted
    from dslc.runtime.cuda.libraries.libraries import Call
    from dslc.runtime.session.backend import Change

#: A call that needs at most so many bytes has a workspace of its own in a graph; a multiple of 256. Kernels that count
#: their tiles need 4 to 272 bytes in cuBLASLt 13.1 and cuDNN 9.19.
SMALL_WORKSPACE: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel with its arguments. ``where``: the node's name and line, for messages. ``waits``: its code begins with a
    wait for the previous kernel, so it may be launched while that one ends. ``together``: its blocks wait for one
    another, so all of them must be on the device at once."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: Arguments
    where: str
    waits: bool = False
    together: bool = False

    def add(self, device: Device, graph: Any, after: Sequence[Any]) -> Any:
        driver = device.driver
        node = driver.add_kernel(graph, after, self.function, self.grid, self.block, self.shared, self.args)
        if self.together:
            driver.keep_together(node)
        return node

    def submit(self, device: Device, stream: Any) -> None:
        launch = device.driver.launch_together if self.together else device.driver.launch
        launch(self.function, self.grid, self.block, self.shared, self.args, stream)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """``size`` bytes from one address to another."""

    target: int
    source: int
    size: int
    where: str

    def add(self, device: Device, graph: Any, after: Sequence[Any]) -> Any:
        return device.driver.add_copy(graph, after, self.target, self.source, self.size, device.context)

    def submit(self, device: Device, stream: Any) -> None:
        device.driver.copy(self.target, self.source, self.size, stream)


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """``count`` elements of 1, 2 or 4 bytes; ``pitch`` bytes apart if given, else contiguous."""

    target: int
    value: int
    width: int
    count: int
    pitch: int | None
    where: str

    def add(self, device: Device, graph: Any, after: Sequence[Any]) -> Any:
        return device.driver.add_fill(
            graph, after, self.target, self.value, self.width, self.count, device.context, self.pitch
        )

    def submit(self, device: Device, stream: Any) -> None:
        if self.pitch is None:
            device.driver.fill(self.target, self.value, self.width, self.count, stream)
        else:
            device.driver.fill_strided(self.target, self.pitch, self.value, self.count, stream)


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """Kernels that a library enqueues, captured on the stream ``recorder`` as a node of a graph."""

    call: Call
    recorder: Any
    where: str

    def captured(self, device: Device, workspace: int | None, noted: Noted) -> Any:
        """A graph of the kernels. ``workspace``: an address to use instead of that of the plan."""
        with device.undisturbed() as scope, scope:
            return device.driver.capture(self.recorder, lambda s: self.call.enqueue(s, workspace), noted)

    def submit(self, device: Device, stream: Any) -> None:
        self.call.enqueue(stream)


@dataclass(frozen=True, slots=True, eq=False)
class Tell:
    """Records an event when all earlier steps of all streams have ended. No step of the plan waits for it."""

    event: Any
    where: str

    def add(self, device: Device, graph: Any, after: Sequence[Any]) -> Any:
        return device.driver.add_record(graph, after, self.event)

    def submit(self, device: Device, stream: Any) -> None:
        device.driver.record(self.event, stream)


Step: TypeAlias = Launch | Move | Pattern | LibraryCall | Tell


@dataclass(frozen=True, slots=True)
class Mark:
    """Records ``event`` on a stream (``waits`` is False), or makes the stream wait for it."""

    event: int
    waits: bool


class Join:
    """Later items, on any stream, follow all earlier ones."""


#: An item on a stream, in the plan's order.
Placed: TypeAlias = tuple[int, Step | Mark | Join]
_Each = TypeVar("_Each")


def fill_steps(target: int, pattern: bytes, count: int, where: str) -> list[Step]:
    """The fills that write ``count`` elements of ``pattern``: one, or two for 8 bytes without a shorter period."""
    width = len(pattern)
    while width > 1 and pattern[: width // 2] == pattern[width // 2 : width]:
        width //= 2
    elements = count * len(pattern) // width
    if not elements:
        return []
    values = [int.from_bytes(pattern[i : min(i + 4, width)], "little") for i in range(0, width, 4)]
    if width <= 4:
        return [Pattern(target, values[0], width, elements, None, where)]
    return [Pattern(target + 4 * i, value, 4, elements, width, where) for i, value in enumerate(values)]


def dependencies(placed: Sequence[tuple[int, _Each | Mark | Join]]) -> tuple[list[_Each], list[tuple[int, ...]]]:
    """The steps of a bulk and, for each, the indices of those that it directly follows."""
    steps: list[_Each] = []
    after: list[tuple[int, ...]] = []
    ends: dict[int, frozenset[int]] = {}  # stream -> the predecessors of the next step on it
    events: dict[int, frozenset[int]] = {}
    joined: frozenset[int] = frozenset()
    for stream, item in placed:
        if isinstance(item, Join):
            joined = frozenset().union(*ends.values()) or joined
            ends.clear()
            continue
        end = ends.get(stream, joined)
        if isinstance(item, Mark):
            if item.waits:
                ends[stream] = end | events.get(item.event, frozenset())  # recorded in an earlier bulk: already done
            else:
                events[item.event] = end
            continue
        if isinstance(item, Tell):
            after.append(tuple(sorted(frozenset().union(*ends.values()) or joined)))
            steps.append(item)
            continue
        after.append(tuple(sorted(end)))
        ends[stream] = frozenset({len(steps)})
        steps.append(item)
    return steps, after


@contextmanager
def _told(step: Step) -> Iterator[None]:
    """Errors name the node of a step."""
    try:
        yield
    except DslcError as error:
        error.place = f"{step.where}: {error.place}"
        raise


def may_begin_early(step: Step, before: Step) -> bool:
    """True if a step may be launched while its predecessor ends."""
    if not isinstance(step, Launch) or not isinstance(before, Launch):
        return False
    return step.waits and not step.together and not before.together  # all blocks of these must be resident at once


class Bulk:
    """Steps submitted by one launch of a CUDA graph."""

    def __init__(self, device: Device, placed: Sequence[Placed], stream: Any, owned: Owned) -> None:
        """``owned`` takes the resources that outlive this call; the graph will be launched on ``stream``."""
        self.steps: list[Step]
        self.steps, self.after = dependencies(placed)
        self._device = device
        driver = device.driver
        building = Owned(device)
        try:
            graph = driver.graph(building.noted)
            calls, first = self._captured(graph, building.noted, owned)
            nodes: list[Any] = []
            for number, (step, after) in enumerate(zip(self.steps, self.after, strict=True)):
                before = [nodes[i] for i in after] or first
                with _told(step):
                    if isinstance(step, LibraryCall):
                        nodes.append(driver.add_child(graph, before, calls[number]))
                    elif len(after) == 1 and may_begin_early(step, self.steps[after[0]]):
                        nodes.append(step.add(device, graph, []))
                        driver.let_begin_early(graph, nodes[after[0]], nodes[-1])
                    else:
                        nodes.append(step.add(device, graph, before))
            self._executable = driver.instantiate(graph, owned.noted)
        finally:
            building.close()
        driver.upload(self._executable, stream)

    def _captured(self, graph: Any, building: Noted, owned: Owned) -> tuple[Mapping[int, Any], list[Any]]:
        """The graphs of the library calls, by the indices of their steps, and the nodes with which ``graph`` begins: a
        fill of all small workspaces with zeros, if a library has such a fill for one of them."""
        driver, calls = self._device.driver, {n: s for n, s in enumerate(self.steps) if isinstance(s, LibraryCall)}
        small = [number for number, step in calls.items() if 0 < step.call.need <= SMALL_WORKSPACE]
        size = SMALL_WORKSPACE * len(small)
        begin = self._device.pool.allocate(size, owned.noted).address if small else 0
        rooms = {number: begin + SMALL_WORKSPACE * i for i, number in enumerate(small)}
        found, fills = {}, 0
        for number, step in calls.items():
            with _told(step):
                found[number] = step.captured(self._device, rooms.get(number), building)
                if number in rooms:
                    fills += driver.remove_fills(found[number], rooms[number], SMALL_WORKSPACE)
        context = self._device.context
        return found, [driver.add_fill(graph, [], begin, 0, 4, size // 4, context)] if fills else []

    def launch(self, stream: Any, change: Change | None = None) -> None:
        """``change``: a change of the state made by this graph alone."""
        self._device.driver.launch_graph(self._executable, stream, change)
