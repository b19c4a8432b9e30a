"""A finished program, run through its plan on the planned bytes."""

from __future__ import annotations

import numpy as np

from dslc.compiler.artifact.plan import constants_of, plan_of
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.registry import meanings
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cpu.executor import BoundPlan


def executed(program: Program, build: Build, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The program through its plan: written, read back, and run by the runtime on bytes full of garbage."""
    assert program.memory is not None
    plan = Plan.decode(plan_of(program).encode())
    sizes = {"state": build.state_bytes, "io": program.memory.io_bytes, "work": program.memory.work_bytes, "context": 0}
    regions = {name: _aligned_block(size) for name, size in sizes.items()}
    bound = BoundPlan(plan, regions, meanings(), constants_of(program).__getitem__, writes_state=True)
    bound.load_constants()
    states = [i for i in program.graph.inputs if i.kind not in (Kind.DATA, Kind.SCALAR, Kind.CONSTANT)]
    for source in states:
        regions["state"][build.state[source.name] :][: source.value.type.bytes] = np.frombuffer(
            feeds[source.name].tobytes(), np.uint8
        )
    for name, view in bound.inputs.items():
        view[...] = feeds[name]
    bound.set_scalars({name: feeds[name].item() for name in bound.scalars})
    with np.errstate(all="ignore"):
        bound.run()
    found = {f"result.{name}": view.copy() for name, kind, view in bound.outputs if kind == "result"}
    updated = {i for i, _ in program.graph.updates}
    for source in states:
        raw = regions["state"][build.state[source.name] :][: source.value.type.bytes]
        value = np.frombuffer(raw.tobytes(), feeds[source.name].dtype).reshape(source.value.type.ints)
        if source in updated:
            found[f"update {source.name}"] = value
        else:
            assert value.tobytes() == feeds[source.name].tobytes(), f"{source.name} changed"
    return found


def _aligned_block(size: int) -> np.ndarray:
    raw = np.full(size + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
