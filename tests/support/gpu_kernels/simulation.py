"""The printed kernels of a node, run by the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of

from dslc.compiler.codegen.cuda.compile import geometry
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.copies.concat import Concat
from dslc.compiler.codegen.cuda.ops.copies.pick import Pick
from dslc.compiler.codegen.cuda.ops.grad_norm import Squares
from dslc.compiler.codegen.cuda.ops.multi_tensor import Foreach
from dslc.compiler.codegen.cuda.region.kernel import SizeGenericRegion
from dslc.compiler.codegen.cuda.region.reduction.sweep import Sweep
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType


def simulated(node: Node, xs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The node's outputs; None where a launch is of CUDA C++."""
    launches = lower(node)
    if launches is None or not all(
        isinstance(x.spec, (Region, SizeGenericRegion, Sweep, Foreach, Squares, Pick, Concat)) for x in launches
    ):
        return None
    return run_launches(launches, node.inputs, xs, node.outputs)


def run_launches(
    launches: list[Launch], inputs: Sequence[Value], xs: list[np.ndarray], outputs: Sequence[Value]
) -> list[np.ndarray]:
    """The outputs of launches, which are 0xFF first, as scratch is."""
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(np.array(x).reshape(-1), v.type.dtype) for v, x in zip(inputs, xs)
    }
    for v in outputs:
        dtype = simulator.numpy_type(v.type.dtype)
        known[v] = np.full(int(np.prod(v.type.ints)) * dtype.itemsize, 0xFF, np.uint8).view(dtype)
    for block in (b for launch in launches for b in launch.scratch):
        known.setdefault(block, np.full(block.bytes, 0xFF, np.uint8))
    for launch in launches:
        memory = [known[v] for v in (*launch.reads, *launch.writes)]
        memory = [m.view(simulator.numpy_type(d)) for m, d in zip(memory, dtypes_of(launch), strict=True)]
        source = source_of(launch.symbol, launch.code)
        assert "None" not in source.text
        simulator.run(source, geometry(launch.spec).grid[0], memory, launch.scalar_args)
    return [simulator.values(known[v], v.type.dtype).reshape(v.type.ints) for v in outputs]


def dtypes_of(launch: Launch) -> list[DType]:
    """Of the arguments."""
    if isinstance(launch.spec, Foreach | Pick | Concat):
        return [v.type.dtype for v in (*launch.reads, *launch.writes) if isinstance(v, Value)]
    if isinstance(launch.spec, Squares):
        return [*(v.type.dtype for v in launch.reads if isinstance(v, Value)), launch.spec.result]
    region = launch.spec.region if isinstance(launch.spec, Sweep | SizeGenericRegion) else launch.spec
    partial = launch.spec.partial if isinstance(launch.spec, Sweep) else ()
    return [*(a.dtype for a in (*region.inputs, *region.outputs)), *partial]


def drawn(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in shapes]
