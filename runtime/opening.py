"""What is settled before a session takes memory: options, the programs for this machine, meanings, the need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, EnvironmentFault, InputError
from dslc.runtime.context import Loaded
from dslc.runtime.cpu.executor import Meanings
from dslc.runtime.dtypes import ITEMSIZE
from dslc.runtime.memory import available_bytes, ensure_free, out_of_memory
from dslc.runtime.plan import Kernel, Reference, accesses

if TYPE_CHECKING:
    from dslc.runtime.artifact import Artifact
    from dslc.runtime.cpu.objects import Objects
    from dslc.runtime.session import MeaningsSource

_DEVICES: Final = ("auto", "cpu", "gpu")
_VERIFY: Final = ("all", "code")
_LIMITS: Final = {"seed": 1 << 64, "step": 1 << 63, "row": 1 << 63, "contexts": 257}
_LEAST: Final = {"contexts": 1}


def check_options(**options: object) -> None:
    """Raise InputError R105 for an option of ``load`` or of a call that is out of range."""
    for name, value in options.items():
        if name in _LIMITS:
            low, high = _LEAST.get(name, 0), _LIMITS[name]
            good = isinstance(value, Integral) and not isinstance(value, bool) and low <= int(value) < high
            expected = f"an int from {low} to {high - 1}"
        else:
            allowed = _DEVICES if name == "device" else _VERIFY
            good = isinstance(value, str) and value in allowed
            expected = "one of " + ", ".join(repr(a) for a in allowed)
        if not good:
            raise InputError("R105", f"`{name}` is {repr(value)[:60]}", place=f"{name}=...", help=f"it is {expected}")


def loaded_programs(artifact: Artifact, device: str) -> dict[str, list[Loaded]]:
    """The programs that this machine's device runs, by entry. R201 for a GPU, R202 for an artifact without any."""
    if device == "gpu":
        raise EnvironmentFault(
            "R201",
            "this runtime runs on the CPU alone",
            place='device="gpu"',
            help='load with device="cpu"',
        )
    found: dict[str, list[Loaded]] = {}
    for program in (p for p in artifact.all_programs() if p.target == "cpu"):
        if program.context_bytes:
            raise EnvironmentFault(
                "R202",
                f"`{program.entry}` keeps state from call to call, which this runtime does not know",
                place=artifact.header["name"],
                help="load it with a newer dslc",
            )
        found.setdefault(program.entry, []).append(
            Loaded(program.entry, program.sizes, program.io_bytes, program.work_bytes, artifact.plan(program))
        )
    if not found:
        targets = ", ".join(sorted({p.target for p in artifact.all_programs()}))
        raise EnvironmentFault(
            "R202",
            f"the artifact is built for {targets or 'no target'}, this is a CPU",
            place=artifact.header["name"],
            help="build it with --target cpu",
        )
    if len(found.get("init", [])) != 1:
        raise ArtifactError(
            "R301", "an artifact holds one program `init` per target", place="programs", help="build it again"
        )
    return found


def table_of(programs: Mapping[str, list[Loaded]], source: MeaningsSource) -> Meanings | None:
    """The ops' meanings, asked for only when a plan holds a reference instruction. R203 when there are none."""
    needed = any(
        isinstance(i, Reference)
        for listed in programs.values()
        for program in listed
        for i in program.plan.instructions
    )
    if not needed:
        return None
    if source is None:
        raise EnvironmentFault(
            "R203",
            "the artifact is built with the reference provider, whose ops are not part of the runtime",
            help="load it through `dslc.load` with the compiler installed, or build it with another provider",
        )
    return source if isinstance(source, Mapping) else source()


def code_of(artifact: Artifact, programs: Mapping[str, list[Loaded]]) -> Objects | None:
    """The kernels of all programs for this machine's level of CPU; None where no plan holds one. R202 for a CPU that
    has none of the artifact's levels."""
    symbols = {
        i.symbol for listed in programs.values() for p in listed for i in p.plan.instructions if isinstance(i, Kernel)
    }
    if not symbols:
        return None
    from dslc.runtime.cpu.objects import load_objects

    return load_objects({name: artifact.blob(name) for name in artifact.blobs("object")}, symbols)


@contextmanager
def reserve(state: Mapping[str, Any], programs: list[Loaded], contexts: int) -> Iterator[None]:
    """Raise OutOfMemory R401 before anything is taken when the session does not fit, and for a refusal inside.

    The need is state + contexts x (largest io + largest work).
    """
    need = state["bytes"] + contexts * (max(p.io_bytes for p in programs) + max(p.work_bytes for p in programs))
    buffers = _named_buffers(state, programs)
    ensure_free(need, buffers)
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(need, available_bytes(), buffers) from error


def _named_buffers(state: Mapping[str, Any], programs: list[Loaded]) -> list[tuple[str, int]]:
    """Each buffer once, with a name that means something to the user: a tensor, a port, or the node that writes it."""
    sizes: dict[str, int] = {}
    for tensor in state["tensors"]:
        sizes[f"`{tensor['name']}`"] = prod(tensor["shape"]) * ITEMSIZE[tensor["dtype"]]
    for program in programs:
        names = {port.buffer: f"`{port.name}`" for port in (*program.plan.inputs, *program.plan.outputs)}
        for instruction in program.plan.instructions:
            if isinstance(instruction, Reference | Kernel):
                for output in accesses(instruction)[1]:
                    names.setdefault(output, program.plan.names[instruction.where])
        for index, name in names.items():
            buffer = program.plan.buffers[index]
            if buffer.region != "state":
                key = f"{name} of {program}"
                sizes[key] = max(sizes.get(key, 0), prod(buffer.shape) * ITEMSIZE[buffer.dtype])
    return list(sizes.items())
