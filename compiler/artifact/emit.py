"""Turns Programs into the bytes of an artifact: a plan per program, one state layout, the header."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dslc.base.canonical import dumps
from dslc.base.errors import BuildError, DslcError
from dslc.compiler.artifact.plan import constants_of, plan_of
from dslc.compiler.check.rows import Rows
from dslc.compiler.codegen.targets import EVERY_LEVEL, target_of
from dslc.compiler.ir.program import Program
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.file import write_artifact
from dslc.runtime.artifact.header_schema import AS_PARAM, FORMAT, PREPARE, TOGETHER
from dslc.runtime.artifact.instructions import Gemm, GraphOp, Instruction, Kernel, Loop, Reference
from dslc.runtime.artifact.plan import Plan, plans_too_large
from dslc.runtime.artifact.reserved import LOSS_SCALE, OF_EPOCH
from dslc.runtime.extents import rows_of

if TYPE_CHECKING:
    from dslc.compiler.artifact.state_layout import StateLayout
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler


def emit_artifact(
    programs: Sequence[Program],
    *,
    name: str,
    model: str,
    interface: Mapping[str, Any],
    layout: StateLayout,
    options: Mapping[str, Any],
    toolchain: Mapping[str, str],
    source_sha256: str,
    rows: Rows,
    provider: str,
    compiler: KernelCompiler,
    level: str = EVERY_LEVEL,
    lock: Mapping[str, Any] | None = None,
    packages: Sequence[Mapping[str, str]] = (),
) -> tuple[bytes, dict[str, Any]]:
    """The artifact and its header. The same arguments give the same bytes.

    ``programs`` must be scheduled and have memory plans; their order is kept. ``interface`` and ``options`` are JSON
    data; ``rows``: whether predict may pad the rows of its batch, or cut them into pieces. ``compiler`` compiles the
    kernels, for one level of code of the processor, or all.
    ``lock``: for each target whose programs obey measurements, where these come from. ``packages``: those whose ops the
    model uses.
    """
    blobs: list[Blob] = []
    plans: list[Plan] = []
    entries: list[dict[str, Any]] = []
    kernels: dict[str, dict[str, Any]] = {}
    stored: dict[str, bytes] = {}
    features: set[str] = set()
    for number, program in enumerate(programs):
        memory = program.memory
        assert memory is not None, f"{program.entry} has no memory plan"
        plan = f"plan.{number}"
        made = plan_of(program, kernels.setdefault(program.target, {}), level)
        stored |= constants_of(program)
        native = target_of(program.target).feature
        features |= {_feature(i, native) for i in made.instructions if _computes(i)}
        plans.append(made)
        blobs.append(Blob(plan, "plan", made.encode()))
        entries.append(
            {
                "entry": program.entry,
                "target": program.target,
                "provider": provider,
                "sizes": dict(program.sizes),
                "io_bytes": memory.io_bytes,
                "work_bytes": memory.work_bytes,
                "context_bytes": memory.context_bytes,
                "plan": plan,
                "lower_bound": memory.lower_bound,
                "planned": memory.work_bytes,
            }
            | ({"turn": program.turn} if program.turn else {})
            | ({"context": {name: offset for name, _, offset in memory.carried}} if memory.carried else {})
            | ({"prepared_bytes": memory.prepared_bytes} if memory.prepared_bytes else {})
        )
    too_large = plans_too_large([bytes(blob.data) for blob in blobs])
    if too_large is not None:
        raise BuildError("E0606", f"a reader would refuse this artifact: {too_large}", help="build for fewer sizes")
    blobs += [Blob(name, "constant", data) for name, data in sorted(stored.items())]
    for target, described in kernels.items():
        if described:
            with _at_its_node(programs):
                blobs += target_of(target, level=level).blobs(described, compiler)
    features |= {"loop"} if any(isinstance(i, Loop) for plan in plans for i in plan.instructions) else set()
    features |= {"accumulate"} if any(p.entry == "accumulate_step" for p in programs) else set()
    features |= {"shards"} if any(p.entry == "update_step" for p in programs) else set()
    features |= {"turns"} if any(p.turn for p in programs) else set()
    features |= {"average"} if any(t.init == AS_PARAM for t in layout.tensors) else set()
    features |= {"loss_scale"} if any(t.name == LOSS_SCALE for t in layout.tensors) else set()
    features |= {"epoch_metrics"} if any(t.name.startswith(OF_EPOCH) for t in layout.tensors) else set()
    features |= {"prepared"} if any(p.entry == PREPARE for p in programs) else set()
    features |= {TOGETHER} if rows is Rows.TOGETHER else set()
    features |= {"state"} if interface.get("states") else set()
    header: dict[str, Any] = {
        "format": list(FORMAT),
        "required_features": sorted(features),
        "name": name,
        "model": model,
        "toolchain": dict(toolchain),
        "source_sha256": source_sha256,
        "options": dict(options),
        "interface": dict(interface),
        "interface_sha256": hashlib.sha256(dumps(interface)).hexdigest(),
        "row_independent": rows is Rows.APART,
        "state": state_table(layout),
        "programs": entries,
        "kernels": rows_of(plans),
    }
    if lock:
        header["lock"] = dict(lock)
    if packages:
        header["packages"] = [dict(each) for each in packages]
    return write_artifact(header, blobs), header


@contextmanager
def _at_its_node(programs: Sequence[Program]) -> Iterator[None]:
    """Adds the place in the model to an error of the kernel of a package's op, whose place is the op's name."""
    try:
        yield
    except DslcError as error:
        spans = (n.span for p in programs for n in p.graph.nodes if n.op.name == error.place and n.span is not None)
        if error.code == "E0115":
            error.place = str(next(spans, error.place))
        raise


def state_table(layout: StateLayout) -> dict[str, Any]:
    """The header's ``state``."""
    tensors = [
        {
            "name": t.name,
            "kind": t.kind.value,
            "dtype": t.type.dtype.value,
            "shape": list(t.type.ints),
            "offset": t.offset,
            "init": t.init,
            "of": t.of,
            "trained": t.trained,
        }
        for t in layout.tensors
    ]
    slices = {} if layout.slices is None else {"slices": layout.slices}
    return {"bytes": layout.bytes, "tensors": tensors, "forward_order": list(layout.forward_order), **slices}


def _computes(instruction: Instruction) -> bool:
    return isinstance(instruction, Kernel | Reference | Gemm | GraphOp)


def _feature(instruction: Instruction, native: str) -> str:
    """The feature that a runtime must support to run an instruction that computes."""
    match instruction:
        case Kernel():
            return native
        case Gemm(provider=library) | GraphOp(provider=library):
            return library
    return "reference"
