"""Turns Programs into the bytes of an artifact: a plan per program, one state layout, the header."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.artifact.plan import Plan, plans_too_large
from dslc.runtime.artifact.reserved import LOSS_SCALE, OF_EPOCH
from dslc.runtime.extents import rows_of

if TYPE_CHECKING:
    from dslc.compiler.artifact.state_layout import StateLayout
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a header says of a build apart from its programs and its state; JSON data.

    ``rows``: whether predict may pad the rows of its batch, or cut them into pieces. ``lock``: for each target whose
    programs obey measurements, where these come from. ``packages``: those whose ops the model uses.
    """

    name: str
    model: str
    interface: Mapping[str, Any]
    options: Mapping[str, Any]
    toolchain: Mapping[str, str]
    source_sha256: str
    rows: Rows
    provider: str
    lock: Mapping[str, Any] | None = None
    packages: Sequence[Mapping[str, str]] = ()


def emit_artifact(
    programs: Sequence[Program], about: About, layout: StateLayout, compiler: KernelCompiler, level: str = EVERY_LEVEL
) -> tuple[bytes, dict[str, Any]]:
    """The artifact and its header. The same arguments give the same bytes.

    ``programs`` must be scheduled and have memory plans; their order is kept. ``compiler`` compiles the kernels, for
    one level of code of the processor, or all.
    """
    plans: list[Plan] = []
    kernels: dict[str, dict[str, Any]] = {}  # by targets: symbol -> description
    constants: dict[str, bytes] = {}
    for program in programs:
        plans.append(plan_of(program, kernels.setdefault(program.target, {}), level))
        constants |= constants_of(program)
    blobs = [Blob(f"plan.{number}", "plan", plan.encode()) for number, plan in enumerate(plans)]
    too_large = plans_too_large([bytes(blob.data) for blob in blobs])
    if too_large is not None:
        raise BuildError("E0606", f"a reader would refuse this artifact: {too_large}", help=_smaller(programs))
    entries = [_program_entry(program, blob.name, about.provider) for program, blob in zip(programs, blobs)]
    blobs += [Blob(name, "constant", data) for name, data in sorted(constants.items())]
    checked = Interface.of_header(about.interface).checked_dtypes
    for target, described in kernels.items():
        code = target_of(target, level=level)
        described |= code.input_checks(checked)
        if described:
            with _at_its_node(programs):
                blobs += code.blobs(described, compiler)
    header: dict[str, Any] = {
        "format": list(FORMAT),
        "required_features": sorted(_features(programs, plans, about, layout)),
        "name": about.name,
        "model": about.model,
        "toolchain": dict(about.toolchain),
        "source_sha256": about.source_sha256,
        "options": dict(about.options),
        "interface": dict(about.interface),
        "interface_sha256": hashlib.sha256(dumps(about.interface)).hexdigest(),
        "row_independent": about.rows is Rows.APART,
        "state": state_table(layout),
        "programs": entries,
        "kernels": rows_of(plans),
    }
    if about.lock:
        header["lock"] = dict(about.lock)
    if about.packages:
        header["packages"] = [dict(each) for each in about.packages]
    return write_artifact(header, blobs), header


def _smaller(programs: Sequence[Program]) -> str:
    """How a build has smaller plans: with one size of each entry, or of a smaller model if no entry has several."""
    found: list[str] = []
    for entry, option in (("eval_step", "eval"), ("predict", "predict")):
        built = [program.sizes for program in programs if program.entry == entry]
        for dim in built[0] if built else ():
            sizes = {each[dim] for each in built}
            found += [f"--size {option}:{dim}={min(sizes)}"] if len(sizes) > 1 else []
    if found:
        return f"build for fewer sizes: `{' '.join(found)}`"
    return "fewer layers, or a `scan` over equal ones, whose parameters have an axis for the layer; fewer targets"


def _program_entry(program: Program, plan: str, provider: str) -> dict[str, Any]:
    """A program's entry in the header's ``programs``. ``plan``: the name of its blob."""
    memory = program.memory
    assert memory is not None, f"{program.entry} has no memory plan"
    return (
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


def _features(programs: Sequence[Program], plans: Sequence[Plan], about: About, layout: StateLayout) -> set[str]:
    """What a runtime must support to run the artifact."""
    entries, tensors = {program.entry for program in programs}, layout.tensors
    more = {
        "loop": any(isinstance(i, Loop) for plan in plans for i in plan.instructions),
        "accumulate": "accumulate_step" in entries,
        "shards": "update_step" in entries,
        "turns": any(program.turn for program in programs),
        "average": any(t.init == AS_PARAM for t in tensors),
        "loss_scale": any(t.name == LOSS_SCALE for t in tensors),
        "epoch_metrics": any(t.name.startswith(OF_EPOCH) for t in tensors),
        "prepared": PREPARE in entries,
        TOGETHER: about.rows is Rows.TOGETHER,
        "state": bool(about.interface.get("states")),
    }
    computing = {
        _feature(instruction, target_of(program.target).feature)
        for program, plan in zip(programs, plans)
        for instruction in plan.instructions
        if _computes(instruction)
    }
    return computing | {name for name, is_needed in more.items() if is_needed}


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
