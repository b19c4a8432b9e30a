"""The PTX of a node's kernels, run by an interpreter, against their texts in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.simulation import dtypes_of

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node


def compared(node: Node, xs: list[np.ndarray], threads: int | None = 16) -> None:
    """Every launch of the node by both, over the same memory, with ``threads`` of a block, of which the others have
    nothing to do; None: with all."""
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs)
    }
    for v in node.outputs:
        known[v] = np.zeros(int(np.prod(v.type.ints)), simulator.numpy_type(v.type.dtype))
    for launch in lower(node) or []:
        _compared(launch, known, threads)


def _compared(launch: Launch, known: dict[Any, np.ndarray], threads: int | None) -> None:
    values = (*launch.reads, *launch.writes)
    memory = [known[v].view(simulator.numpy_type(d)) for v, d in zip(values, dtypes_of(launch), strict=True)]
    copies = [m.copy() for m in memory]
    source, geometry = source_of(launch.symbol, launch.code), cuda_compile.geometry(launch.spec)
    simulator.run(source, geometry.grid[0], memory, launch.scalar_args)
    ptx = cuda_compile.compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")
    threads = geometry.block[0] if threads is None else threads
    with np.errstate(all="ignore"):
        ptx_machine.run(ptx, geometry.grid[0], threads, copies, launch.scalar_args)
    for one, other in zip(memory, copies, strict=True):
        assert one.tobytes() == other.tobytes()
