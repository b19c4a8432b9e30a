"""The loops of a plan, and the plan in which each step is written out.

A file holds the body of a loop once. On a GPU the launches of each step are nodes of a CUDA graph, so the plan is
written out there. So it is on a CPU for a loop with ops that run through numpy; a loop of kernels becomes rows of
commands (``runtime/cpu/loop_commands.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dslc.runtime.artifact.instructions import (
    Copy,
    Fill,
    Gemm,
    GraphOp,
    Instruction,
    Kernel,
    Loop,
    LoopEnd,
    Reference,
)
from dslc.runtime.artifact.plan import Buffer, Plan, Work


def unrolled(plan: Plan) -> Plan:
    """The plan without loops, which must have been checked; the same object if it has none."""
    if not any(isinstance(i, Loop) for i in plan.instructions):
        return plan
    return _Unrolling(plan).run()


def only_kernels(plan: Plan) -> bool:
    """Whether all loops of a plan hold nothing but kernels and loops."""
    depth = 0
    for instruction in plan.instructions:
        depth += isinstance(instruction, Loop) - isinstance(instruction, LoopEnd)
        if depth and not isinstance(instruction, Kernel | Loop | LoopEnd):
            return False
    return True


class _Unrolling:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ends = ends_of(plan.instructions)
        self.work = {work.first: work for work in plan.work}
        self.buffers: dict[tuple[int, int], int] = {(i, 0): i for i in range(len(plan.buffers))}
        self.instructions: list[Instruction] = []
        self.new_work: list[Work] = []

    def run(self) -> Plan:
        self._span(0, len(self.plan.instructions), {})
        buffers = [self._moved(self.plan.buffers[index], shift) for index, shift in self.buffers]
        return replace(
            self.plan,
            buffers=tuple(buffers),
            instructions=tuple(self.instructions),
            work=tuple(self.new_work),
        )

    @staticmethod
    def _moved(buffer: Buffer, shift: int) -> Buffer:
        return replace(buffer, offset=buffer.offset + shift) if shift else buffer

    def _span(self, start: int, stop: int, shifts: Mapping[int, int]) -> None:
        """Writes out the instructions from ``start`` to before ``stop``. ``shifts``: buffer -> the bytes by which the
        loops around have moved it."""
        at = start
        while at < stop:
            instruction = self.plan.instructions[at]
            if isinstance(instruction, Loop):
                end = self.ends[at]
                for step in range(instruction.count):
                    moved = {index: shifts.get(index, 0) + step * by for index, by in instruction.strides}
                    self._span(at + 1, end, {**shifts, **moved})
                at = end + 1
                continue
            if at in self.work:
                self.new_work.append(replace(self.work[at], first=len(self.instructions)))
            self.instructions.append(self._on(instruction, shifts))
            at += 1

    def _buffer(self, index: int, shifts: Mapping[int, int]) -> int:
        return self.buffers.setdefault((index, shifts.get(index, 0)), len(self.buffers))

    def _on(self, instruction: Instruction, shifts: Mapping[int, int]) -> Instruction:
        """The instruction on the buffers of a step."""
        if not shifts:
            return instruction
        match instruction:
            case Kernel(args=args):
                moved = [(k, self._buffer(int(v), shifts) if k in ("in", "out", "inout") else v) for k, v in args]
                return replace(instruction, args=tuple(moved))
            case Reference(inputs=inputs, outputs=outputs) | GraphOp(inputs=inputs, outputs=outputs):
                read, written = (tuple([self._buffer(b, shifts) for b in side]) for side in (inputs, outputs))
                if isinstance(instruction, Reference):
                    return replace(instruction, inputs=read, outputs=written)
                room = instruction.workspace
                return replace(instruction, inputs=read, outputs=written,
                               workspace=None if room is None else self._buffer(room, shifts))  # fmt: skip
            case Gemm():
                given = {name: getattr(instruction, name) for name in ("a", "b", "c", "bias", "out", "workspace")}
                found = {name: None if b is None else self._buffer(b, shifts) for name, b in given.items()}
                return replace(instruction, **found)  # type: ignore[arg-type]
            case Copy(src=src, dst=dst):
                return replace(instruction, src=self._buffer(src, shifts), dst=self._buffer(dst, shifts))
            case Fill(dst=dst):
                return replace(instruction, dst=self._buffer(dst, shifts))
        raise AssertionError(f"a loop holds a {type(instruction).__name__}, which the check refuses")


def ends_of(instructions: Sequence[Instruction]) -> dict[int, int]:
    """The index of each loop -> that of its end."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for at, instruction in enumerate(instructions):
        if isinstance(instruction, Loop):
            stack.append(at)
        elif isinstance(instruction, LoopEnd):
            found[stack.pop()] = at
    return found
