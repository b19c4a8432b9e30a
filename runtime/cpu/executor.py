"""Runs a plan on the CPU: blocks of memory, views made once, then a loop over instructions.

A plan's buffers are dense row-major ranges of regions. ``BoundPlan`` turns them into numpy views of the given blocks,
and ``Binder`` each instruction into a callable. After that, a run allocates only what an op's numpy meaning allocates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.instructions import BulkBegin, BulkEnd, Kernel, Loop, Reference, accesses
from dslc.runtime.artifact.loops import ends_of, only_kernels, unrolled
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.cpu.binder import Binder, Step
from dslc.runtime.cpu.reference_step import Meanings
from dslc.runtime.cpu.timing import machine_roof
from dslc.runtime.cpu.views import Array, read_only, view_of
from dslc.runtime.session.backend import Change, Measured
from dslc.runtime.session.host_copies import copy_into
from dslc.runtime.session.step_block import StepBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cpu.native import Steps
    from dslc.runtime.cpu.objects import Objects


def _quiet() -> AbstractContextManager[Any]:
    """Inside, numpy does not warn of non-finite values."""
    return np.errstate(all="ignore")


class BoundPlan:
    """A plan bound to given blocks of memory. Not thread-safe: each context binds its own.

    ``regions`` maps region names to u8 blocks whose bases are 64-byte aligned; ``constants`` returns the bytes of a
    plan constant by its blob's name. ``writes_state``, ``prepares``: the entry may write the state, or what is prepared
    from it; contexts share both.
    Raises, before anything runs, EnvironmentFault R202 for an instruction or dtype that the CPU does not support, R203
    for an op without a meaning, and ArtifactError R301 for a plan that must not be bound.
    """

    def __init__(
        self,
        plan: Plan,
        regions: Mapping[str, NDArray[np.uint8]],
        meanings: Meanings | None,
        constants: Callable[[str], bytes | memoryview] | None = None,
        *,
        name: str = "plan",
        writes_state: bool = False,
        prepares: bool = False,
        objects: Objects | None = None,
    ) -> None:
        self.name = name
        if not only_kernels(plan):
            plan = unrolled(plan)
        self._given = regions, meanings, constants
        self._objects = objects
        self._plan = plan
        self._may_write = {"state": writes_state, "prepared": prepares}
        self._views = [view_of(buffer, regions) for buffer in plan.buffers]
        self.inputs: dict[str, Array] = {port.name: self._views[port.buffer] for port in plan.inputs}
        self.outputs: tuple[tuple[str, str, Array], ...] = tuple(
            (port.name, port.kind, read_only(self._views[port.buffer])) for port in plan.outputs
        )
        # The step block is the first 256 bytes of io.
        self._step_block, self._io = StepBlock(plan.scalars, name), regions["io"]
        self.scalars: dict[str, Array] = {
            scalar.name: view_of(Buffer("io", scalar.offset, scalar.dtype, ()), regions) for scalar in plan.scalars
        }
        self._constants: list[tuple[Array, Array]] = []
        for constant in plan.constants:
            target = self._views[constant.buffer]
            if constants is None:
                raise ArtifactError("R301", f"a plan with constants, but no blob {constant.blob!r}", place=name)
            if target.nbytes:
                raw = np.frombuffer(constants(constant.blob), np.uint8, target.nbytes, constant.offset)
                self._constants.append((target, raw.view(target.dtype).reshape(target.shape)))
        self._binder = Binder(plan, name, self._views, meanings, objects, self._may_write)
        # only reference instructions compute with numpy, which would warn of non-finite values
        self._quiet = any(isinstance(i, Reference) for i in plan.instructions)
        self._reading: list[Step] = []  # all steps before the first one that writes the state
        self._writing: list[Step] = []
        self._bind(self._binder)

    def _bind(self, binder: Binder) -> None:
        """Make the steps of all instructions."""
        plan, at = self._plan, 0
        while at < len(plan.instructions):
            instruction = plan.instructions[at]
            after = at + 1 if not isinstance(instruction, Loop) else ends_of(plan.instructions)[at] + 1
            written = (b for i in plan.instructions[at:after] for b in accesses(i)[1])
            changes = any(plan.buffers[b].region == "state" for b in written)
            if (changes and not self._writing) or not isinstance(instruction, Kernel | Loop | BulkBegin | BulkEnd):
                binder.end_list()
            step = binder.bind_loop(at, after) if isinstance(instruction, Loop) else binder.bind(instruction)
            at = after
            if step is not None:
                (self._writing if self._writing or changes else self._reading).append(step)

    def put(self, name: str, array: Array, *, once: bool = False) -> None:
        """Write an input; ``array`` has its dtype and shape."""
        copy_into(self.inputs[name], array)

    def load_constants(self) -> None:
        """Copy the constants to their buffers; call this if another plan may have used the same blocks."""
        for target, source in self._constants:
            np.copyto(target, source)

    steps = 1

    def begin(self, step: int = 0) -> None:
        """Does nothing: inputs are written directly to the buffers that the plan reads."""

    def set_scalars(self, values: Mapping[str, int | float]) -> None:
        """Write the step block: a value for each scalar that the plan reads. ``seed`` is u64, stored bit for bit."""
        self._step_block.write(self._io, 0, values)

    def run(self, change: Change | None = None) -> tuple[tuple[str, str, Array], ...]:
        """Run all instructions in order; returns the outputs. Non-finite values are valid data; numpy does not warn of
        them.

        An error or an interrupt before the first instruction that writes the state leaves the state unchanged. After
        that, an interrupt is delayed to the end of the run, unless reference instructions follow.
        """
        reading, writing = self._ready
        if not self._quiet:
            reading.run()
            writing.run(change)
            return self.outputs
        with _quiet():
            reading.run()
            writing.run(change)
        return self.outputs

    @cached_property
    def _ready(self) -> tuple[Steps, Steps]:
        from dslc.runtime.cpu.native import Steps

        return Steps(self._reading), Steps(self._writing)

    def _run(self, step: Step) -> None:
        from dslc.runtime.cpu.native import Steps

        Steps([step]).run()

    def watch(self, see: Callable[[str, str, Sequence[Array]], None]) -> None:
        """Run the instructions one at a time; after each, ``see`` gets its name, its node and the arrays that it wrote.

        The results have the same bits as those of ``run``. An exception from ``see`` ends the run midway.
        """
        if any(isinstance(i, Loop) for i in self._plan.instructions):
            self._written_out().watch(see)
            return
        with _quiet():
            for instruction in self._plan.instructions:
                self._binder.end_list()  # no instruction is merged with the one before
                step = self._binder.bind(instruction)
                if step is None:
                    continue
                self._run(step)
                name = instruction.op if isinstance(instruction, Reference) else type(instruction).__name__.lower()
                where = self._binder.where(instruction.where) if hasattr(instruction, "where") else self.name
                see(name, where, [self._shown(index) for index in accesses(instruction)[1]])

    def _shown(self, index: int) -> Array:
        """The array of a buffer; bf16 as f32."""
        view = self._views[index]
        if self._plan.buffers[index].dtype != "bf16":
            return view
        return np.asarray((view.astype(np.uint32) << np.uint32(16)).view(np.float32))

    def measure(self, rounds: int) -> Measured:
        """Times each instruction of the plan without loops alone: kernels that ``run`` would run concurrently run one
        after the other here."""
        if any(isinstance(i, Loop) for i in self._plan.instructions):
            return self._written_out().measure(rounds)
        alone: list[tuple[int, Step]] = []
        for index, instruction in enumerate(self._plan.instructions):
            self._binder.end_list()
            step = self._binder.bind(instruction)
            if step is not None:
                alone.append((index, step))
        times: dict[int, list[float]] = {index: [] for index, _ in alone}
        with _quiet():
            for _ in range(rounds):
                for index, step in alone:
                    begun = time.perf_counter()
                    self._run(step)
                    times[index].append(time.perf_counter() - begun)
        return Measured(times, machine_roof())

    def repeat(self, count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            self.run()
        return (time.perf_counter() - begun) / count

    def _written_out(self) -> BoundPlan:
        """The same plan without loops, bound to the same memory."""
        regions, meanings, constants = self._given
        return BoundPlan(
            unrolled(self._plan), regions, meanings, constants, name=self.name, objects=self._objects,
            writes_state=self._may_write["state"], prepares=self._may_write["prepared"],
        )  # fmt: skip
