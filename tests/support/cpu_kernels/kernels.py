"""Runs kernels without an artifact: compiled for this machine's level, called through ctypes."""

from __future__ import annotations

import ctypes
import time
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dslc.compiler.codegen.cpu.contraction.steps import Steps
from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.object.compile import compiled, texts_of

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_NUMBERS = count()
#: What objects may ask for; the offset table is the linker's own.
ALLOWED = {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}


def machine_level() -> str:
    """The highest level that this machine runs."""
    return runnable_levels()[-1]


def runnable_levels() -> list[str]:
    """All levels that this machine runs."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return ["armv8_2"]
    return ["x86_64_v3", "x86_64_v4"] if llvm.get_host_cpu_features().get("avx512vl") else ["x86_64_v3"]


def compile_kernel(kernel: KernelCode, level: str, symbol: str = "k_test") -> tuple[bytes, float, set[str]]:
    """The object, the processor's seconds it took, and the symbols that it asks for."""
    begin = time.process_time()
    data = compiled(texts_of(symbol, kernel, [level]), [level])[level]
    return data, time.process_time() - begin, _undefined(data)


def _undefined(data: bytes) -> set[str]:
    """Names of an ELF object's undefined symbols (ELF-64, little endian)."""
    sections = int.from_bytes(data[40:48], "little")
    number = int.from_bytes(data[60:62], "little")
    heads = [data[sections + 64 * i : sections + 64 * (i + 1)] for i in range(number)]
    found = set()
    for head in heads:
        if int.from_bytes(head[4:8], "little") != 2:  # SHT_SYMTAB
            continue
        start, size = (int.from_bytes(head[i : i + 8], "little") for i in (24, 32))
        names = int.from_bytes(heads[int.from_bytes(head[40:44], "little")][24:32], "little")
        for at in range(start, start + size, 24):
            name = names + int.from_bytes(data[at : at + 4], "little")
            if data[at + 6 : at + 8] == b"\0\0" and data[name]:
                found.add(data[name : data.index(b"\0", name)].decode())
    return found


class Loaded:
    """Steps compiled and loaded; ``run`` calls them, ``slices`` calls for each."""

    def __init__(self, steps: Steps, level: str | None = None) -> None:
        level = level or machine_level()
        self.steps = steps
        self.scratch = [_aligned(n) for n in steps.scratch]
        self.seconds: list[float] = []
        self.foreign: set[str] = set()
        self.kept: list[Any] = []
        self.calls: list[tuple[Any, int]] = []
        for number, step in enumerate(steps.steps):
            data, seconds, foreign = compile_kernel(step.code, level, f"k_{number}")
            self.seconds.append(seconds)
            self.foreign |= foreign
            library = (
                llvm.JITLibraryBuilder().add_object_img(data).export_symbol(f"k_{number}").add_current_process()
            ).link(_jit(), f"kernels{next(_NUMBERS)}")
            self.kept.append(library)
            self.calls.append((_CALL(library[f"k_{number}"]), step.tasks))

    def bind(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> list[tuple[Any, Any, int]]:
        """Calls with their argument blocks."""
        arrays = {f"in{i}": x for i, x in enumerate(inputs)} | {f"out{i}": x for i, x in enumerate(outputs)}
        arrays |= {f"tmp{i}": x for i, x in enumerate(self.scratch)}
        bound = []
        for step, (call, tasks) in zip(self.steps.steps, self.calls):
            values = [*(arrays[n].ctypes.data for n in step.args), *step.numbers]
            bound.append((call, (ctypes.c_void_p * len(values))(*values), tasks))
        return bound

    def run(self, inputs: list[np.ndarray], outputs: list[np.ndarray], slices: int = 1) -> None:
        """Slices run last to first, so that an order among tasks would show."""
        for call, args, tasks in self.bind(inputs, outputs):
            cuts = [tasks * i // slices for i in range(slices + 1)]
            for start, stop in reversed(list(pairwise(cuts))):
                call(ctypes.addressof(args), start, stop)


@lru_cache(1)
def _jit() -> Any:
    return llvm.create_lljit_compiler()


def _aligned(size: int) -> np.ndarray:
    """Bytes at a multiple of 64, all set: as floats they are nan."""
    raw = np.full(size + 64, 255, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def guarded(shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """An array of nan, and the larger one around it whose ends nobody may write."""
    size = int(np.prod(shape))
    around = np.full(size + 64, np.nan, dtype)
    return around[32 : 32 + size].reshape(shape), around
