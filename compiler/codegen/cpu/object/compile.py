"""Compiles kernels to object code: one object per level of the instruction set, the same bytes on any machine.

The build machine has no influence: triple, CPU and features are those of the level, symbols are digests, and an object
may only call memcpy and memset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.codegen.cpu.object.elf_merge import merge
from dslc.compiler.codegen.cpu.object.thread_driver import DRIVER, driver_text
from dslc.compiler.toolchain.bundle import bundle


@dataclass(frozen=True, slots=True)
class Text:
    """The IR of a kernel. ``level``: for which it is optimised, the first of those that share it. ``tiled``: see
    ``KernelCode``."""

    ir: str
    level: str
    tiled: bool = False


def text_of(symbol: str, spec: KernelCode, registers: int) -> tuple[str, bool]:
    """The IR of one kernel, and whether it serves every number of registers."""
    code = Code(symbol, registers)
    spec.emit(code)
    return code.finish(), not code.asked_registers


def texts_of(symbol: str, spec: KernelCode, levels: Iterable[str] = LEVELS) -> dict[str, Text]:
    """The IR of one kernel for each of ``levels``. Most kernels do not ask for the registers: all levels share a text.
    Otherwise levels with as many registers do."""
    found: dict[str, Text] = {}
    for level in levels:
        registers = LEVELS[level].registers
        home = next(name for name, other in LEVELS.items() if other.registers == registers)
        text = next((text for text in found.values() if text.level == home), None)
        if text is None:
            ir, common = text_of(symbol, spec, registers)
            if common:
                return dict.fromkeys(levels, Text(ir, next(iter(LEVELS)), spec.tiled))
            text = Text(ir, home, spec.tiled)
        found[level] = text
    return found


def driver_texts() -> dict[str, Text]:
    """The IR of the driver for each level; levels of an architecture share it."""
    found: dict[str, Text] = {}
    for level, made in LEVELS.items():
        ir = driver_text(made.triple.split("-")[0])
        found[level] = next((text for text in found.values() if text.ir == ir), Text(ir, level))
    return found


def compiled(texts: Mapping[str, Text], levels: Iterable[str] = LEVELS) -> dict[str, bytes]:
    """An ELF object for each of ``levels``, from the IR of a kernel for these levels.

    Levels that share a text share the optimiser's result: the text already contains vectors and tiles, and the
    remaining optimisation before instruction selection does not depend on a level's instructions. It runs for the
    text's level, so a level's object has the same bytes whichever other levels are compiled.
    """
    optimised: dict[Text, Any] = {}
    objects: dict[str, bytes] = {}
    for level in levels:
        text = texts[level]
        if text not in optimised:
            optimised[text] = _optimised(text)
        module = optimised[text].clone()  # instruction selection changes it
        _aim(module, level)
        objects[level] = bytes(_machine(level).emit_object(module))
    return objects


def kernel_code(symbol: str, spec: Any, *levels: str) -> bytes:
    """The objects of one kernel, or of the driver, for these levels, or without any for all, as a bundle."""
    wanted = levels or tuple(LEVELS)
    return bundle(compiled(driver_texts() if symbol == DRIVER else texts_of(symbol, spec, wanted), wanted))


def object_of(specs: Mapping[str, KernelCode], level: str) -> bytes:
    """An ELF object that exports each symbol, and the driver. Equal descriptions give equal bytes."""
    texts = [driver_texts(), *(texts_of(symbol, specs[symbol], [level]) for symbol in sorted(specs))]
    return merge([compiled(each, [level])[level] for each in texts])


def _optimised(text: Text) -> Any:
    module = llvm.parse_assembly(text.ir)
    _aim(module, text.level)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=1 if text.tiled else 2)
    tuning.loop_unrolling = not text.tiled
    tuning.loop_vectorization = tuning.slp_vectorization = False  # the IR already contains vectors
    builder = llvm.create_pass_builder(_machine(text.level), tuning)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    return module


def _aim(module: Any, level: str) -> None:
    module.name = "dslc"
    module.triple, module.data_layout = LEVELS[level].triple, str(_machine(level).target_data)


@cache
def _machine(level: str) -> Any:
    _start()
    chosen = LEVELS[level]
    target = llvm.Target.from_triple(chosen.triple)
    return target.create_target_machine(cpu=chosen.cpu, features=chosen.features, opt=2, reloc="pic", codemodel="small")


@cache
def _start() -> None:
    """Prepares LLVM, once in a process. Instructions keep the order in which kernels emit them, for which their tiles
    fill the registers: LLVM's scheduler would load operands of many products first, and then spill sums."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.set_option("", "-enable-misched=false")
