"""Runs a plan on the CPU: blocks of memory, views made once, then a loop over instructions.

A plan's buffers are dense row-major ranges of regions. ``BoundPlan`` turns them into numpy views of the given
blocks, and each instruction into a callable: a reference instruction calls numpy, and consecutive kernels are one
native call. After that, a run allocates only what an op's numpy meaning allocates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from operator import setitem
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.runtime.artifact.attributes import attribute
from dslc.runtime.artifact.dtypes import name_of, numpy_dtype
from dslc.runtime.artifact.instructions import BulkBegin, BulkEnd, Copy, Fill, Kernel, Loop, Reference, accesses
from dslc.runtime.artifact.loops import ends_of, only_kernels, unrolled
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.cpu.timing import machine_roof
from dslc.runtime.session.backend import Change, Measured
from dslc.runtime.session.step_block import StepBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.instructions import Instruction
    from dslc.runtime.cpu.native import CommandList, Steps
    from dslc.runtime.cpu.objects import Objects

Array: TypeAlias = "NDArray[Any]"
Meaning: TypeAlias = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]
Meanings: TypeAlias = Mapping[str, Meaning]
Step: TypeAlias = "Callable[[], object] | CommandList"


def _view(buffer: Buffer, regions: Mapping[str, NDArray[np.uint8]]) -> Array:
    dtype = numpy_dtype(buffer.dtype)
    count = dtype.itemsize
    for size in buffer.shape:
        count *= size
    return regions[buffer.region][buffer.offset : buffer.offset + count].view(dtype).reshape(buffer.shape)


def _read_only(view: Array) -> Array:
    copy = view[...]
    copy.flags.writeable = False
    return copy


def _quiet() -> AbstractContextManager[Any]:
    """Inside, numpy does not warn of non-finite values."""
    return np.errstate(all="ignore")


def _described(view: Array) -> str:
    return f"{name_of(view.dtype) or view.dtype}[{', '.join(map(str, view.shape))}]"


class _ReferenceStep:
    """One op run by its numpy meaning: its results are checked against the plan and copied into the plan's buffers."""

    __slots__ = ("_attrs", "_inputs", "_meaning", "_op", "_outputs", "_own_results", "_where")

    def __init__(
        self, op: str, where: str, meaning: Meaning, attrs: Mapping[str, Any], inputs: Sequence[Array],
        outputs: Sequence[Array],
    ) -> None:  # fmt: skip
        self._op, self._where, self._meaning, self._attrs = op, where, meaning, attrs
        self._inputs = tuple(_read_only(view) for view in inputs)
        self._outputs = tuple(outputs)
        # A result may be a view of an input, and writing an earlier output over that input would change it. So if an op
        # with several results works in place, its results are copied before the first one is written.
        self._own_results = len(outputs) > 1 and any(np.may_share_memory(i, o) for i in self._inputs for o in outputs)

    def __call__(self) -> None:
        try:
            results = [np.asarray(r) for r in self._meaning(self._inputs, self._attrs)]
        except Exception as error:
            error.add_note(f"while running {self._op} of {self._where}")
            raise
        self._check(results)
        if self._own_results:
            results = [r.copy() for r in results]
        for output, result in zip(self._outputs, results, strict=True):
            np.copyto(output, result, casting="no")

    def _check(self, results: Sequence[Array]) -> None:
        gave = [(r.dtype, r.shape) for r in results]
        if gave != [(o.dtype, o.shape) for o in self._outputs]:
            planned = ", ".join(_described(o) for o in self._outputs)
            got = ", ".join(_described(r) for r in results)
            raise EnvironmentFault(
                "R203",
                f"{self._op} returned {got or 'nothing'}; the plan says {planned or 'nothing'}",
                place=self._where,
                help="build the artifact again with the dslc that runs it",
            )


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
        self._open: CommandList | None = None  # collects consecutive kernels
        self._plan = plan
        self._meanings = meanings
        self._may_write = {"state": writes_state, "prepared": prepares}
        self._views = [_view(buffer, regions) for buffer in plan.buffers]
        self.inputs: dict[str, Array] = {port.name: self._views[port.buffer] for port in plan.inputs}
        self.outputs: tuple[tuple[str, str, Array], ...] = tuple(
            (port.name, port.kind, _read_only(self._views[port.buffer])) for port in plan.outputs
        )
        # The step block is the first 256 bytes of io.
        self._step_block, self._io = StepBlock(plan.scalars, name), regions["io"]
        self.scalars: dict[str, Array] = {
            scalar.name: _view(Buffer("io", scalar.offset, scalar.dtype, ()), regions) for scalar in plan.scalars
        }
        self._constants: list[tuple[Array, Array]] = []
        for constant in plan.constants:
            target = self._views[constant.buffer]
            if constants is None:
                raise ArtifactError("R301", f"a plan with constants, but no blob {constant.blob!r}", place=name)
            if target.nbytes:
                raw = np.frombuffer(constants(constant.blob), np.uint8, target.nbytes, constant.offset)
                self._constants.append((target, raw.view(target.dtype).reshape(target.shape)))
        self._reading: list[Step] = []  # all steps before the first one that writes the state
        self._writing: list[Step] = []
        # only reference instructions compute with numpy, which would warn of non-finite values
        self._quiet = any(isinstance(i, Reference) for i in plan.instructions)
        at = 0
        while at < len(plan.instructions):
            instruction = plan.instructions[at]
            after = at + 1 if not isinstance(instruction, Loop) else ends_of(plan.instructions)[at] + 1
            written = (b for i in plan.instructions[at:after] for b in accesses(i)[1])
            changes = any(plan.buffers[b].region == "state" for b in written)
            if (changes and not self._writing) or not isinstance(instruction, Kernel | Loop | BulkBegin | BulkEnd):
                self._open = None
            step = self._bind(instruction) if not isinstance(instruction, Loop) else self._bind_loop(at, after)
            at = after
            if step is not None:
                (self._writing if self._writing or changes else self._reading).append(step)

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
                self._open = None  # no instruction is merged with the one before
                step = self._bind(instruction)
                if step is None:
                    continue
                self._run(step)
                name = instruction.op if isinstance(instruction, Reference) else type(instruction).__name__.lower()
                where = self._where(instruction.where) if hasattr(instruction, "where") else self.name
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
            self._open = None
            step = self._bind(instruction)
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

    def _written_out(self) -> BoundPlan:
        """The same plan without loops, bound to the same memory."""
        regions, meanings, constants = self._given
        return BoundPlan(
            unrolled(self._plan), regions, meanings, constants, name=self.name, objects=self._objects,
            writes_state=self._may_write["state"], prepares=self._may_write["prepared"],
        )  # fmt: skip

    def _bind_loop(self, start: int, stop: int) -> Step | None:
        """A step for a loop of kernels; None if it is added to that of the kernels before it."""
        from dslc.runtime.cpu.loop_commands import LoopCommands
        from dslc.runtime.cpu.native import CommandList, bytes_of

        kernels = [i for i in self._plan.instructions[start:stop] if isinstance(i, Kernel)]
        if not kernels:
            return None
        for kernel in kernels:
            objects = self._checked(kernel)
        fresh = self._open is None
        if self._open is None:
            self._open = CommandList(objects)
        rows, args = LoopCommands(self._plan, lambda index: bytes_of(self._views[index]), objects).of(start)
        self._open.add_table(rows, args)
        return self._open if fresh else None

    def _bind(self, instruction: Instruction) -> Step | None:
        match instruction:
            case Reference():
                return self._bind_reference(instruction)
            case Copy():
                return self._bind_copy(instruction)
            case Fill():
                return self._bind_fill(instruction)
            case Kernel():
                return self._bind_kernel(instruction)
            case BulkBegin() | BulkEnd():
                return None
            case _:
                raise EnvironmentFault(
                    "R202",
                    f"the plan holds a {type(instruction).__name__}, which the CPU cannot run",
                    place=self.name,
                    help="build with --target cpu",
                )

    def _where(self, index: int) -> str:
        return self._plan.names[index]

    def _output(self, index: int, where: str) -> Array:
        region = self._plan.buffers[index].region
        if not self._may_write.get(region, True):
            what = "the state" if region == "state" else "what is prepared from the weights"
            raise ArtifactError("R301", f"{self.name} may not write {what}", place=where)
        return self._views[index]

    def _bind_reference(self, instruction: Reference) -> Step:
        where = self._where(instruction.where)
        if any(self._plan.buffers[i].dtype == "bf16" for i in (*instruction.inputs, *instruction.outputs)):
            raise EnvironmentFault(
                "R202", f"numpy has no bf16, a dtype of `{instruction.op}`", place=where,
                help="build with --providers auto or own: their kernels compute it",
            )  # fmt: skip
        if self._meanings is None:
            raise EnvironmentFault(
                "R203",
                f"{self.name} runs numpy reference implementations, which the runtime alone does not contain",
                place=where,
                help="load it through `dslc.load` with the compiler installed",
            )
        meaning = self._meanings.get(instruction.op)
        if meaning is None:
            raise EnvironmentFault(
                "R203",
                f"no op {instruction.op!r} in the reference provider",
                place=where,
                help="build the artifact again with the dslc that runs it",
            )
        return _ReferenceStep(
            instruction.op,
            where,
            meaning,
            {name: attribute(value, where) for name, value in instruction.attrs.items()},
            [self._views[i] for i in instruction.inputs],
            [self._output(o, where) for o in instruction.outputs],
        )

    def _checked(self, kernel: Kernel) -> Objects:
        """The code of a kernel whose arguments this CPU supports, and which may write what it writes. R202, R301."""
        where = self._where(kernel.where)
        if self._objects is None:
            raise EnvironmentFault(
                "R202",
                f"{self.name} holds kernels, and no code for this CPU was loaded",
                place=where,
                help="build with --target cpu",
            )
        from dslc.runtime.cpu.native import VALUES

        by_value = [kind in VALUES for kind, _ in kernel.args]
        for (kind, value), is_value, follows in zip(kernel.args, by_value, [False, *by_value]):
            if not is_value and (kind not in ("in", "out", "inout") or follows):
                raise EnvironmentFault(
                    "R202", f"a kernel with an argument {kind}", place=where, help="build with --target cpu"
                )
            if not is_value and kind != "in":
                self._output(int(value), where)
        return self._objects

    def _bind_kernel(self, kernel: Kernel) -> Step | None:
        """A step for the first of several consecutive kernels; the others are added to it."""
        objects = self._checked(kernel)
        from dslc.runtime.cpu.native import VALUES, CommandList, values_of

        values = [each for each in kernel.args if each[0] in VALUES]
        pointers = kernel.args[: len(kernel.args) - len(values)]
        arguments = [(self._views[int(index)], kind != "in") for kind, index in pointers]
        fresh = self._open is None
        if self._open is None:
            self._open = CommandList(objects)
        self._open.add(kernel.symbol, arguments, kernel.grid[0], values_of(values))
        return self._open if fresh else None

    def _bind_copy(self, instruction: Copy) -> Step:
        where = self._where(instruction.where)
        source, target = self._views[instruction.src], self._output(instruction.dst, where)
        if source.dtype != target.dtype or source.size != target.size:
            raise ArtifactError(
                "R301",
                f"a copy from {_described(source)} to {_described(target)}",
                place=where,
            )
        source = source.reshape(target.shape)
        return partial(setitem, target, ..., source)

    def _bind_fill(self, instruction: Fill) -> Step:
        where = self._where(instruction.where)
        target = self._output(instruction.dst, where).reshape(-1).view(np.uint8)
        pattern = np.frombuffer(instruction.pattern, np.uint8)
        if pattern.size == 0 or target.size % pattern.size:
            raise ArtifactError("R301", f"a fill of {target.size} bytes with a pattern of {pattern.size}", place=where)
        rows = target.reshape(-1, pattern.size)
        return partial(setitem, rows, ..., pattern)
