"""Multi-tensor launch: runs one region for each of many groups of arguments with different sizes.

The updates of all small parameters are one kernel instead of a launch each; its tasks are chunks of all tensors (the
multi-tensor apply of PyTorch and Apex).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.writer import I64, POINTER, Code, memory_type
from dslc.compiler.codegen.cpu.region.kernel import Emitter
from dslc.compiler.codegen.cpu.region.row import Row
from dslc.compiler.codegen.cpu.region.schedule import cut
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import optimizer
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.optimizer.multi_update import member, parted

_TASK_ELEMENTS: Final = 8192  # most elements per task


@described("Foreach", "region sizes")
@dataclass(frozen=True)
class Foreach(KernelSpec):
    """Runs ``region``, of one outer axis and no inner one, for each of ``sizes`` as the length of that axis.

    The region's inputs along the axis come before those without a stride; the same holds for outputs. Arguments: the
    inputs of each size, then the shared inputs; the outputs of each size, then the shared outputs, which have one
    element per size.
    """

    region: Region
    sizes: tuple[int, ...]

    @property
    def _chunks(self) -> list[int]:
        return [-(-size // _TASK_ELEMENTS) for size in self.sizes]

    @property
    def tasks(self) -> int:
        return sum(self._chunks)

    def emit(self, code: Code) -> None:
        """Processes task by task; the rest of each size goes element by element."""
        schedule = cut(self.region)
        lanes = schedule.lanes
        with code.loop(code.last, code.first) as task:
            number, chunk, size = self._group(code, task)
            emitter = Emitter(code, self.region, schedule, self._pointers(code, number))
            start = code.mul(chunk, _TASK_ELEMENTS)
            stop = code.least(code.add(start, _TASK_ELEMENTS), size)
            whole = code.b.and_(stop, I64(-lanes))
            with code.loop(whole, start, lanes) as at:
                Row(emitter, [at], lanes, lanes).run()
            with code.loop(stop, whole) as at:
                Row(emitter, [at], 1, 1).run()

    def _group(self, code: Code, task: Any) -> tuple[Any, Any, Any]:
        """The index of a task's group, the task's chunk in it, and the group's size."""
        b = code.b
        number, chunk, size = code.int(0), task, code.int(self.sizes[0])
        for group, begin in enumerate(accumulate(self._chunks[:-1]), 1):
            reached = b.icmp_signed(">=", task, code.int(begin))
            number = b.select(reached, code.int(group), number)
            chunk = b.select(reached, b.sub(task, code.int(begin)), chunk)
            size = b.select(reached, code.int(self.sizes[group]), size)
        return number, chunk, size

    def _pointers(self, code: Code, number: Any) -> list[Any]:
        """Pointers to the region's inputs and outputs for a group."""
        pointers, place = [], 0
        for outputs, arguments in enumerate((self.region.inputs, self.region.outputs)):
            own = sum(map(_along, arguments))
            shared = place + own * len(self.sizes)
            for i, access in enumerate(arguments):
                at = code.add(code.mul(number, own), place + i) if i < own else shared + i - own
                pointer = code.b.gep(code.function.args[0], [code.int(at)], source_etype=POINTER)
                pointer = code.b.load(pointer, typ=POINTER)
                each = outputs and i >= own
                pointers.append(code.at(pointer, number, memory_type(access.dtype)) if each else pointer)
            place = shared + len(arguments) - own
        return pointers


def _along(access: Access) -> bool:
    return any(access.strides)


@lowers("multi_update", target="cpu")
def multi_update(node: Node) -> list[Launch]:
    """Lowers a ``multi_update``: clears the flags, then runs all updates in one launch."""
    clear, *steps = optimizer.multi_update(node)
    op, each = member(node.attrs)
    _, grads, scalars = parted(node.inputs, op)
    sizes = tuple(math.prod(grad.type.ints) for grad in grads)
    shape = (max(2, *sizes),)  # an axis of one element would be dropped
    template = optimizer.region(op.name, each, node.types[0].dtype, shape, op.slots)
    reads = [v for step in steps for v in step.reads[:-2]]
    writes = [v for step in steps for v in step.writes[:-1]]
    return [clear, Launch(Foreach(template, sizes), (*reads, *scalars), (*writes, node.outputs[-1]))]
