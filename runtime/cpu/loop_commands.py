"""The commands of a plan's loop of kernels: a row for each kernel and step, made by arithmetic on whole arrays.

The kernels of a step have the arguments of the first step, with each address moved on by its buffer's stride. So the
time to make the rows hardly depends on the number of steps, and one native call runs all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.runtime.artifact.instructions import Instruction, Kernel, Loop
from dslc.runtime.artifact.loops import ends_of
from dslc.runtime.cpu.native import VALUES, Wave, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.cpu.objects import Objects

_VALUE = -1  # instead of a buffer's number, for an argument by value


class LoopCommands:
    """Makes the commands of the loops of a plan. ``spans``: the addresses of each buffer; ``objects``: the code."""

    def __init__(self, plan: Plan, spans: Callable[[int], range], objects: Objects) -> None:
        self._instructions: Sequence[Instruction] = plan.instructions
        self._ends = ends_of(plan.instructions)
        self._spans, self._objects = spans, objects
        self._moves: list[Mapping[int, tuple[int, int]]] = []
        self._wave = Wave()
        self._waits = False

    def of(self, start: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The rows {kernel, arguments, tasks, waits} of the loop that begins at an instruction, and the memory of their
        arguments, whose addresses the rows hold."""
        rows, args, _ = self._loop(start)
        held = args.view(np.uint64)
        rows[:, 1] = held.ctypes.data + 8 * rows[:, 1]
        rows[0, 3] = 1
        return rows, held

    def _loop(self, start: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        loop = self._instructions[start]
        assert isinstance(loop, Loop)
        last = loop.count - 1
        self._moves.append({b: (min(0, last * by), max(0, last * by)) for b, by in loop.strides})
        self._wave, self._waits = Wave(), True
        rows, args, owners = self._span(start + 1, self._ends[start])
        self._moves.pop()
        self._wave, self._waits = Wave(), True
        by = np.zeros(len(args), np.int64)
        for buffer, stride in loop.strides:
            by[owners == buffer] = stride
        steps = np.arange(loop.count, dtype=np.int64)
        every = np.tile(rows, (loop.count, 1))
        every[:, 1] += np.repeat(steps * len(args), len(rows))
        return every, (args[None] + steps[:, None] * by[None]).reshape(-1), np.tile(owners, loop.count)

    def _span(self, at: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The rows of some instructions with the places of their arguments; these; the buffers that they address."""
        rows: list[NDArray[np.int64]] = []
        args: list[NDArray[np.int64]] = []
        owners: list[NDArray[np.int64]] = []
        place = 0
        while at < stop:
            instruction = self._instructions[at]
            if isinstance(instruction, Loop):
                some = self._loop(at)
                at = self._ends[at] + 1
            else:
                assert isinstance(instruction, Kernel)
                some = self._kernel(instruction)
                at += 1
            some[0][:, 1] += place
            place += len(some[1])
            for whole, part in zip((rows, args, owners), some):
                whole.append(part)
        return np.concatenate(rows), np.concatenate(args), np.concatenate(owners)

    def _kernel(self, kernel: Kernel) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        buffers = [(int(value), kind != "in") for kind, value in kernel.args if kind not in VALUES]
        values = values_of([each for each in kernel.args if each[0] in VALUES])
        args = np.array([self._spans(b).start for b, _ in buffers] + [0] * len(values), np.int64)
        for place, value in enumerate(values, len(buffers)):
            args[place : place + 1].view(np.uint8)[: value.nbytes] = value.view(np.uint8)
        owners = np.array([b for b, _ in buffers] + [_VALUE] * len(values), np.int64)
        taken = self._wave.takes(*([self._reach(b) for b, w in buffers if w is written] for written in (False, True)))
        waits = self._waits or not taken
        self._waits = False
        rows: NDArray[Any] = np.array([[self._objects.address(kernel.symbol), 0, kernel.grid[0], waits]], np.int64)
        return rows, args, owners

    def _reach(self, buffer: int) -> range:
        """All addresses that a buffer covers over the steps of the loops around."""
        span = self._spans(buffer)
        moves = [moves[buffer] for moves in self._moves if buffer in moves]
        return range(span.start + sum(back for back, _ in moves), span.stop + sum(on for _, on in moves))
