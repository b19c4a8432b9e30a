"""Lists the memory needs of a session by name, for the message if it does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Kernel, Reference, accesses

if TYPE_CHECKING:
    from dslc.runtime.session.context import Loaded


def named_buffers(state: Mapping[str, Any], programs: Sequence[Loaded]) -> list[tuple[str, int]]:
    """The size of each buffer once, named for the user by its tensor, its port, or the node that writes it."""
    sizes: dict[str, int] = {}
    for tensor in state["tensors"]:
        sizes[f"`{tensor['name']}`"] = prod(tensor["shape"]) * ITEMSIZE[tensor["dtype"]]
    for program in programs:
        names = {port.buffer: f"`{port.name}`" for port in (*program.plan.inputs, *program.plan.outputs)}
        for instruction in program.plan.instructions:
            if isinstance(instruction, Reference | Kernel | Gemm | GraphOp):
                if isinstance(instruction, Gemm | GraphOp) and instruction.workspace is not None:
                    names[instruction.workspace] = "the workspace of libraries"
                for output in accesses(instruction)[1]:
                    names.setdefault(output, program.plan.names[instruction.where])
        for index, name in names.items():
            buffer = program.plan.buffers[index]
            if buffer.region != "state":
                key = f"{name} of {program}"
                sizes[key] = max(sizes.get(key, 0), prod(buffer.shape) * ITEMSIZE[buffer.dtype])
    return list(sizes.items())
