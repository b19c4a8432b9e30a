"""A plan on a GPU: addresses worked out, kernels found, bulks made into graphs; then a run is a few calls.

Counterpart of ``cpu/executor.py``. A run copies the step block and the inputs in with one copy, launches each bulk with
one graph launch, and copies the results out; the host waits for nothing but an earlier run's slot. Instructions outside
of bulks are launched and waited for one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.base.errors import DslcError, EnvironmentFault
from dslc.runtime.cuda.driver import Arguments
from dslc.runtime.cuda.graph import Bulk, Launch, Mark, Move, Placed, Step, fill_steps
from dslc.runtime.cuda.lane import Lane, Slot
from dslc.runtime.dtypes import numpy_dtype
from dslc.runtime.plan import (
    Buffer,
    BulkBegin,
    BulkEnd,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Instruction,
    Kernel,
    Plan,
    accesses,
)  # fmt: skip
from dslc.runtime.plan_schema import STEP_BLOCK
from dslc.runtime.scalars import write_scalars

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.modules import Modules

_GAP: Final = 4096  # results closer than this leave the device with one copy
_SIZES: Final = {"i32": 4, "f32": 4}  # of arguments by value; all others have 8 bytes
See = Callable[[str, str, "Sequence[NDArray[Any]]"], None]


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a region that leave the device together: from ``offset``, to ``at`` of the slot's outputs."""

    region: str
    offset: int
    bytes: int
    at: int


def input_bytes(plan: Plan) -> int:
    """Bytes from the start of io that a run copies in: the step block and the inputs."""
    ends = [plan.buffers[p.buffer].end for p in plan.inputs]
    return max([*ends, STEP_BLOCK if plan.scalars else 0], default=0)


def output_spans(plan: Plan) -> tuple[list[Span], int]:
    """What a run copies out, and the bytes of it all in a slot."""
    spans: list[Span] = []
    at = 0
    for buffer in sorted((plan.buffers[p.buffer] for p in plan.outputs), key=lambda b: (b.region, b.offset)):
        last = spans[-1] if spans else None
        if last is not None and last.region == buffer.region and buffer.offset <= last.offset + last.bytes + _GAP:
            size = max(last.bytes, buffer.end - last.offset)
            spans[-1] = Span(last.region, last.offset, size, last.at)
        else:
            spans.append(Span(buffer.region, buffer.offset, buffer.bytes, at))
        at = -(-(spans[-1].at + spans[-1].bytes) // 64) * 64
    return [s for s in spans if s.bytes], at


def is_staged(entry: str) -> bool:
    """Whether an entry's inputs are copied to the device while the run before still works."""
    return entry in ("train_step", "accumulate_step")


class DeviceOutputs:
    """A run's results. Iterating waits for the run; ``settle`` takes copies before the slot is used again."""

    def __init__(self, lane: Lane, slot: Slot, name: str, views: Sequence[tuple[str, str, NDArray[Any]]]) -> None:
        self._lane, self._slot, self._name = lane, slot, name
        self._views = views
        self._settled = False

    def __iter__(self) -> Iterator[tuple[str, str, NDArray[Any]]]:
        if not self._settled and self._slot.busy:
            try:
                with self._lane.device:
                    self._lane.wait_for(self._slot)
            except DslcError as error:
                error.place = f"{self._name}: {error.place}"
                raise
        return iter(self._views)

    def settle(self) -> None:
        self._views = [(name, kind, view.copy()) for name, kind, view in self._views]
        self._settled = True


@dataclass(frozen=True, slots=True)
class _Group:
    """What is submitted together: a bulk, or single steps that are waited for one by one."""

    bulk: Bulk | None
    steps: tuple[Step, ...]
    writes_state: bool


class DevicePlan:
    """A plan on a lane's memory. Fits ``Bound``.

    ``bulk``: None for the bulks that the plan says, else the largest number of instructions in one, 0 for none. Raises
    EnvironmentFault R202 for an instruction that the GPU's runtime does not know, ArtifactError R301 for code that does
    not fit the plan; all before anything runs. The device's context is current.
    """

    def __init__(
        self,
        plan: Plan,
        lane: Lane,
        state: int,
        written: Any,
        modules: Modules,
        constants: Callable[[str], bytes | memoryview],
        resources: ExitStack,
        *,
        name: str,
        entry: str,
        bulk: int | None,
    ) -> None:
        self.name = name
        self._plan, self._lane, self._modules = plan, lane, modules
        self._written = written  # the event behind the last run that wrote the state
        self._bases = {"state": state, "io": lane.io, "work": lane.work}
        self._staged = is_staged(entry)
        self._input_bytes = input_bytes(plan)
        self._spans, _ = output_spans(plan)
        self._constants = [
            (self._address(c.buffer), constants(c.blob)[c.offset : c.offset + plan.buffers[c.buffer].bytes])
            for c in plan.constants
        ]
        self._groups = [self._group(*cut, resources) for cut in _cut(plan, bulk)]
        self.writes_state = any(g.writes_state for g in self._groups)
        self._views = {id(slot): self._slot_views(slot) for slot in lane.slots}
        self._slot = lane.slots[0]

    # Before a run

    def begin(self) -> None:
        with self._lane.device:
            self._slot = self._lane.next_slot()

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        return self._views[id(self._slot)][0]

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        write_scalars(self._views[id(self._slot)][1], values, self.name)

    def load_constants(self) -> None:
        if self._constants:
            with self._lane.device as device:
                for address, data in self._constants:
                    raw = np.frombuffer(data, np.uint8)
                    device.driver.copy_in(address, raw.ctypes.data, raw.nbytes, self._lane.stream)

    # Runs

    def run(self, before_writing: Callable[[], None] | None = None) -> DeviceOutputs:
        try:
            with self._lane.device:
                self._send()
                for group in self._groups:
                    if group.writes_state and before_writing is not None:
                        before_writing()
                        before_writing = None
                    self._submit(group)
                if before_writing is not None:
                    before_writing()
                return self._fetch()
        except DslcError as error:
            self._lane.recover(self._slot)
            error.place = f"{self.name}: {error.place}"
            raise

    def _send(self) -> None:
        lane, slot, driver = self._lane, self._slot, self._lane.device.driver
        driver.wait(lane.stream, self._written)
        if not self._input_bytes:
            return
        host = slot.inputs.ctypes.data
        if self._staged:
            driver.copy_in(slot.staging, host, self._input_bytes, lane.copies)
            driver.record(slot.arrived, lane.copies)
            driver.wait(lane.stream, slot.arrived)
            driver.copy(lane.io, slot.staging, self._input_bytes, lane.stream)
        else:
            driver.copy_in(lane.io, host, self._input_bytes, lane.stream)
        lane.counters.bytes_in += self._input_bytes

    def _submit(self, group: _Group) -> None:
        lane = self._lane
        if group.bulk is not None:
            group.bulk.launch(lane.stream)
            lane.counters.graph_launches += 1
            return
        for step in group.steps:
            try:
                step.submit(lane.device, lane.stream)
                lane.counters.launches += 1
                lane.device.driver.synchronise(lane.stream)
                lane.counters.synchronisations += 1
            except DslcError as error:
                error.place = f"{step.where}: {error.place}"
                raise

    def _fetch(self) -> DeviceOutputs:
        lane, slot, driver = self._lane, self._slot, self._lane.device.driver
        slot.busy = True  # from here on the device may write into it
        for span in self._spans:
            target = slot.outputs.ctypes.data + span.at
            driver.copy_out(target, self._bases[span.region] + span.offset, span.bytes, lane.stream)
            lane.counters.bytes_out += span.bytes
        driver.record(slot.done, lane.stream)
        if self.writes_state:
            driver.record(self._written, lane.stream)
        outputs = DeviceOutputs(lane, slot, self.name, self._views[id(slot)][2])
        slot.pending = weakref.ref(outputs)
        return outputs

    def watch(self, see: See) -> None:
        """Instruction by instruction; bits are those of ``run``. bf16 is shown as f32."""
        lane = self._lane
        with lane.device:
            self._send()
        for instruction in self._plan.instructions:
            steps = [item for _, item in self._placed(instruction) if not isinstance(item, Mark)]
            if not steps:
                continue
            with lane.device:
                self._submit(_Group(None, tuple(steps), False))
                found = [self._read(self._plan.buffers[b]) for b in accesses(instruction)[1]]
                if self.writes_state:
                    lane.device.driver.record(self._written, lane.stream)
            see(type(instruction).__name__.lower(), steps[0].where, found)

    def _read(self, buffer: Buffer) -> NDArray[Any]:
        out = np.empty(buffer.shape, numpy_dtype(buffer.dtype))
        if out.nbytes:
            driver = self._lane.device.driver
            driver.copy_out(out.ctypes.data, self._bases[buffer.region] + buffer.offset, out.nbytes, self._lane.stream)
            driver.synchronise(self._lane.stream)
        if buffer.dtype == "bf16":
            return (out.astype(np.uint32) << 16).view(np.float32)
        return out

    # Binding

    def _slot_views(self, slot: Slot) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, Any]]]:
        """Views of a slot: inputs, scalars, outputs."""
        plan = self._plan
        inputs = {
            p.name: _view(slot.inputs, plan.buffers[p.buffer].offset, plan.buffers[p.buffer]) for p in plan.inputs
        }
        scalars = {s.name: _view(slot.inputs, s.offset, Buffer("io", s.offset, s.dtype, ())) for s in plan.scalars}
        outputs = []
        for port in plan.outputs:
            buffer = plan.buffers[port.buffer]
            view = _view(slot.outputs, self._place_of(buffer), buffer)
            view.flags.writeable = False
            outputs.append((port.name, port.kind, view))
        return inputs, scalars, outputs

    def _place_of(self, buffer: Buffer) -> int:
        for span in self._spans:
            if span.region == buffer.region and span.offset <= buffer.offset and buffer.end <= span.offset + span.bytes:
                return span.at + buffer.offset - span.offset
        return 0  # a buffer without bytes

    def _address(self, index: int) -> int:
        buffer = self._plan.buffers[index]
        if buffer.region not in self._bases:
            raise EnvironmentFault(
                "R202",
                f"{self.name} keeps state from call to call, which this runtime does not know",
                place=self.name,
                help="load it with a newer dslc",
            )
        return self._bases[buffer.region] + buffer.offset

    def _group(self, instructions: Sequence[Instruction], together: bool, resources: ExitStack) -> _Group:
        placed = [item for instruction in instructions for item in self._placed(instruction)]
        writes = any(self._plan.buffers[b].region == "state" for i in instructions for b in accesses(i)[1])
        steps = tuple(item for _, item in placed if not isinstance(item, Mark))
        if not together or not steps:
            return _Group(None, steps, writes)
        return _Group(Bulk(self._lane.device, placed, self._lane.stream, resources), steps, writes)

    def _placed(self, instruction: Instruction) -> list[Placed]:
        """What an instruction puts on its stream."""
        names = self._plan.names
        match instruction:
            case Kernel(stream=stream):
                return [(stream, self._launch(instruction))]
            case Copy(src=src, dst=dst, stream=stream, where=where):
                size = self._plan.buffers[dst].bytes
                target, source = self._address(dst), self._address(src)
                return [(stream, Move(target, source, size, names[where]))] if size and target != source else []
            case Fill(dst=dst, pattern=pattern, stream=stream, where=where):
                count = self._plan.buffers[dst].bytes // len(pattern)
                return [(stream, step) for step in fill_steps(self._address(dst), pattern, count, names[where])]
            case EventRecord(event=event, stream=stream):
                return [(stream, Mark(event, False))]
            case EventWait(event=event, stream=stream):
                return [(stream, Mark(event, True))]
            case BulkBegin() | BulkEnd():
                return []
        raise EnvironmentFault(
            "R202",
            f"the plan holds a {type(instruction).__name__}, which the GPU's runtime cannot run",
            place=self.name,
            help="build it with --providers own",
        )

    def _launch(self, kernel: Kernel) -> Launch:
        where = self._plan.names[kernel.where]
        values: list[tuple[str, int | float]] = []
        for kind, value in kernel.args:
            if kind in ("in", "out", "inout"):
                values.append(("pointer", self._address(int(value))))
            elif kind == "scalar":
                values.append(("pointer", self._bases["io"] + self._plan.scalars[int(value)].offset))
            else:
                values.append((kind, value))
        sizes = [_SIZES.get(kind, 8) for kind, _ in values]
        function = self._modules.function(kernel.blob, kernel.symbol, kernel.block, kernel.shared_bytes, sizes, where)
        return Launch(function, kernel.grid, kernel.block, kernel.shared_bytes, Arguments(values), where)


def _view(block: NDArray[np.uint8], offset: int, buffer: Buffer) -> NDArray[Any]:
    return block[offset : offset + buffer.bytes].view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)


def _cut(plan: Plan, bulk: int | None) -> Iterator[tuple[list[Instruction], bool]]:
    """The instructions in groups; of each, whether it is one bulk."""
    group: list[Instruction] = []
    inside = False
    if bulk == 0:
        yield list(plan.instructions), False
        return
    for instruction in plan.instructions:
        if bulk is None and isinstance(instruction, BulkBegin | BulkEnd):
            if group:
                yield group, inside
            group, inside = [], isinstance(instruction, BulkBegin)
            continue
        group.append(instruction)
        if bulk is not None and sum(bool(accesses(i)[1]) for i in group) >= bulk:
            yield group, True
            group = []
    if group:
        yield group, inside if bulk is None else True
