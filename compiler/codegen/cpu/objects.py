"""Kernels to object code: one object a level of the instruction set, the same bytes on any machine.

Nothing of the machine that builds goes in: triple, CPU and features are those of the level, symbols are digests, and an
object may call nothing but memcpy and memset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, singledispatch
from typing import Any, Final

import llvmlite.binding as llvm

from dslc.compiler.codegen.cpu.code import Code
from dslc.compiler.codegen.cpu.driver import driver_text
from dslc.compiler.codegen.cpu.regions import emit_region, tasks_of
from dslc.compiler.codegen.region import Region


@dataclass(frozen=True, slots=True)
class Level:
    """An instruction set that objects are made for."""

    triple: str
    cpu: str
    features: str = ""


#: By the names that blobs carry. The runtime takes the last of its architecture whose features the machine has.
LEVELS: Final[Mapping[str, Level]] = {
    "x86_64_v3": Level("x86_64-unknown-linux-gnu", "x86-64-v3"),
    "x86_64_v4": Level("x86_64-unknown-linux-gnu", "x86-64-v4"),
    "armv8_2": Level("aarch64-unknown-linux-gnu", "generic", "+v8.2a,+neon,+lse,+rdm"),
}


@singledispatch
def emit(spec: Any, code: Code) -> None:
    """Writes the body of the kernel that ``spec`` describes."""
    raise TypeError(f"no code for {type(spec).__name__}")


@singledispatch
def tasks(spec: Any) -> int:
    """How many tasks the kernel has: a matter of shapes alone; 0 where there is nothing to do."""
    raise TypeError(f"no tasks for {type(spec).__name__}")


@emit.register
def _(spec: Region, code: Code) -> None:
    emit_region(code, spec)


@tasks.register
def _(spec: Region) -> int:
    return tasks_of(spec)


def text_of(symbol: str, spec: Any, level: str) -> str:
    """The IR of one kernel."""
    code = Code(symbol, level)
    emit(spec, code)
    return code.finish()


def object_of(specs: Mapping[str, Any], level: str) -> bytes:
    """An ELF object that exports each symbol, and the driver. The same descriptions give the same bytes."""
    texts = [driver_text(LEVELS[level].triple.split("-")[0])]
    texts += (text_of(symbol, specs[symbol], level) for symbol in sorted(specs))
    return compiled(texts, level)


def compiled(texts: Iterable[str], level: str) -> bytes:
    """Modules of IR, optimised for the level and put into one object."""
    machine = _machine(level)
    whole = llvm.parse_assembly("")
    whole.name = "dslc"
    whole.triple = LEVELS[level].triple
    whole.data_layout = str(machine.target_data)
    for text in texts:
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = whole.triple, whole.data_layout
        module.verify()
        whole.link_in(module)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False  # the vectors stand in the IR
    builder = llvm.create_pass_builder(machine, tuning)
    manager = builder.getModulePassManager()
    manager.run(whole, builder)
    return bytes(machine.emit_object(whole))


@cache
def _machine(level: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    chosen = LEVELS[level]
    target = llvm.Target.from_triple(chosen.triple)
    return target.create_target_machine(cpu=chosen.cpu, features=chosen.features, opt=3, reloc="pic", codemodel="small")
