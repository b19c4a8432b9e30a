"""Runs all launches of a node as compiled, over memory that is as long as its tensors and not a byte longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpu_kernels import ptx_machine, simulator

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.variants import lower_variant
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.choice import OWN, Choice
from dslc.compiler.ir.graph import Node


def threads_of(node: Node) -> int:
    """How many threads the node's launches have together; 0 if the GPU has no kernels for it."""
    found = [cuda_compile.geometry(launch.spec) for launch in lower(node) or []]
    return sum(int(np.prod(g.grid)) * g.block[0] for g in found)


def on_machine(
    node: Node, xs: list[np.ndarray], architecture: str = "sm_90", variant: str = "", backwards: bool = False
) -> list[np.ndarray]:
    """The node's outputs. ``xs``: 16-bit floats as f32. Memory that nobody has written yet is all ones.

    ``variant``: of the node's kernels. ``backwards``: the last block of each launch runs first.

    AssertionError for an access outside of a tensor, two threads that meet without a barrier between them, and a
    barrier that some threads of a block do not come to.
    """
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs, strict=True)
    }
    for v in node.outputs:
        kind = simulator.numpy_type(v.type.dtype)
        known[v] = np.full(int(np.prod(v.type.ints)) * kind.itemsize, 0xFF, np.uint8).view(kind)
    launches = lower_variant(node, Choice(OWN, variant))
    assert launches is not None
    run_launches(launches, known, architecture, backwards)
    return [simulator.values(known[v], v.type.dtype).reshape(v.type.ints) for v in node.outputs]


def run_launches(
    launches: Sequence[Launch], known: dict[Any, np.ndarray], architecture: str = "sm_90", backwards: bool = False
) -> None:
    """Runs launches on the memory of their values and scratch blocks; of the latter, ``known`` gets those it lacks."""
    for launch in launches:
        for block in launch.scratch:
            known.setdefault(block, np.full(block.bytes, 0xFF, np.uint8))
        geometry = cuda_compile.geometry(launch.spec)
        assert geometry.block[1:] == (1, 1)
        ptx = cuda_compile.compiled(launch.code, launch.symbol, architecture).ptx.decode("ascii")
        arguments = [known[v] for v in (*launch.reads, *launch.writes)]
        ptx_machine.run(
            ptx, geometry.grid, geometry.block[0], arguments, launch.scalar_args, geometry.shared_bytes,
            backwards=backwards, together="ld.relaxed.gpu" in ptx or "ld.acquire.gpu" in ptx,
        )  # fmt: skip
