"""Binds the instructions of a plan to memory: each becomes a step that can be called.

A reference instruction calls numpy. Consecutive kernels are one list of commands, which one native call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.runtime.artifact.attributes import attribute
from dslc.runtime.artifact.instructions import BulkBegin, BulkEnd, Copy, Fill, Kernel, Reference
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cpu.reference_step import Meanings, ReferenceStep
from dslc.runtime.cpu.views import Array, described

if TYPE_CHECKING:
    from dslc.runtime.artifact.instructions import Instruction
    from dslc.runtime.cpu.native import CommandList
    from dslc.runtime.cpu.objects import Objects

Step: TypeAlias = "Callable[[], object] | CommandList"


class Binder:
    """Makes the steps of a plan whose buffers are ``views``.

    ``may_write``: whether the plan may write a region, by its name; a region that is not named may be written. Raises
    the errors of BoundPlan.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        views: Sequence[Array],
        meanings: Meanings | None,
        objects: Objects | None,
        may_write: Mapping[str, bool],
    ) -> None:
        self._name = name
        self._views = views
        self._plan, self._meanings, self._objects, self._may_write = plan, meanings, objects, may_write
        self._open: CommandList | None = None  # collects consecutive kernels

    def end_list(self) -> None:
        """The next kernel begins a new list of commands."""
        self._open = None

    def bind_loop(self, start: int, stop: int) -> Step | None:
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

    def bind(self, instruction: Instruction) -> Step | None:
        """A step for an instruction; None for a kernel that is added to the step of the kernels before it."""
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
                    place=self._name,
                    help="build with --target cpu",
                )

    def where(self, index: int) -> str:
        return self._plan.names[index]

    def _output(self, index: int, where: str) -> Array:
        region = self._plan.buffers[index].region
        if not self._may_write.get(region, True):
            what = "the state" if region == "state" else "what is prepared from the weights"
            raise ArtifactError("R301", f"{self._name} may not write {what}", place=where)
        return self._views[index]

    def _bind_reference(self, instruction: Reference) -> Step:
        where = self.where(instruction.where)
        if any(self._plan.buffers[i].dtype == "bf16" for i in (*instruction.inputs, *instruction.outputs)):
            raise EnvironmentFault(
                "R202", f"numpy has no bf16, a dtype of `{instruction.op}`", place=where,
                help="build with --providers auto or own: their kernels compute it",
            )  # fmt: skip
        if self._meanings is None:
            raise EnvironmentFault(
                "R203",
                f"{self._name} runs numpy reference implementations, which the runtime alone does not contain",
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
        return ReferenceStep(
            instruction.op,
            where,
            meaning,
            {name: attribute(value, where) for name, value in instruction.attrs.items()},
            [self._views[i] for i in instruction.inputs],
            [self._output(o, where) for o in instruction.outputs],
        )

    def _checked(self, kernel: Kernel) -> Objects:
        """The code of a kernel whose arguments this CPU supports, and which may write what it writes. R202, R301."""
        where = self.where(kernel.where)
        if self._objects is None:
            raise EnvironmentFault(
                "R202",
                f"{self._name} holds kernels, and no code for this CPU was loaded",
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
        where = self.where(instruction.where)
        source, target = self._views[instruction.src], self._output(instruction.dst, where)
        if source.dtype != target.dtype or source.size != target.size:
            raise ArtifactError(
                "R301",
                f"a copy from {described(source)} to {described(target)}",
                place=where,
            )
        source = source.reshape(target.shape)
        return partial(setitem, target, ..., source)

    def _bind_fill(self, instruction: Fill) -> Step:
        where = self.where(instruction.where)
        target = self._output(instruction.dst, where).reshape(-1).view(np.uint8)
        pattern = np.frombuffer(instruction.pattern, np.uint8)
        if pattern.size == 0 or target.size % pattern.size:
            raise ArtifactError("R301", f"a fill of {target.size} bytes with a pattern of {pattern.size}", place=where)
        rows = target.reshape(-1, pattern.size)
        return partial(setitem, rows, ..., pattern)
