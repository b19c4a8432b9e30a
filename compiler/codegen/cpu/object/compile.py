"""Compiles kernels to object code: one object per level of the instruction set, the same bytes on any machine.

The build machine has no influence: triple, CPU and features are those of the level, symbols are digests, and an object
may only call memcpy and memset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.codegen.cpu.object.elf_merge import merge
from dslc.compiler.codegen.cpu.object.thread_driver import DRIVER, driver_text
from dslc.compiler.toolchain.bundle import bundle


def text_of(symbol: str, spec: KernelCode, level: str) -> str:
    """The IR of one kernel."""
    code = Code(symbol, level)
    spec.emit(code)
    return code.finish()


def texts_of(symbol: str, spec: KernelCode, levels: Iterable[str] = LEVELS) -> dict[str, str]:
    """The IR of one kernel for ``levels`` and for those listed before them, as ``compiled`` takes it. Most kernels do
    not read the level while they are emitted: they share one text."""
    code = Code(symbol, next(iter(LEVELS)))
    spec.emit(code)
    first = code.finish()
    if not code.asked_level:
        return dict.fromkeys(LEVELS, first)
    names = [*LEVELS]
    wanted = names[: 1 + max(map(names.index, levels))]
    return {level: first if level == names[0] else text_of(symbol, spec, level) for level in wanted}


def driver_texts() -> dict[str, str]:
    """The IR of the driver for each level."""
    return {level: driver_text(made.triple.split("-")[0]) for level, made in LEVELS.items()}


def compiled(texts: Mapping[str, str], levels: Iterable[str] = LEVELS) -> dict[str, bytes]:
    """An ELF object for each of ``levels``, from the IR of a kernel for these levels and those listed before them.

    Levels with the same text share the optimiser's result: the text already contains vectors and tiles, and the
    remaining optimisation before instruction selection does not depend on a level's registers. It runs for the first
    level with that text, so a level's object has the same bytes whichever other levels are compiled.
    """
    optimised: dict[str, Any] = {}
    objects: dict[str, bytes] = {}
    for level in levels:
        text = texts[level]
        if text not in optimised:
            optimised[text] = _optimised(text, next(other for other in texts if texts[other] == text))
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
    texts = [driver_texts(), *(texts_of(symbol, specs[symbol]) for symbol in sorted(specs))]
    return merge([compiled(each, [level])[level] for each in texts])


def _optimised(text: str, level: str) -> Any:
    module = llvm.parse_assembly(text)
    _aim(module, level)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False  # the IR already contains vectors
    builder = llvm.create_pass_builder(_machine(level), tuning)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    return module


def _aim(module: Any, level: str) -> None:
    module.name = "dslc"
    module.triple, module.data_layout = LEVELS[level].triple, str(_machine(level).target_data)


@cache
def _machine(level: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    chosen = LEVELS[level]
    target = llvm.Target.from_triple(chosen.triple)
    return target.create_target_machine(cpu=chosen.cpu, features=chosen.features, opt=2, reloc="pic", codemodel="small")
