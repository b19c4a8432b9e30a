"""Runs one node through its kernels: compiled for this machine's level, called task by task."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode, tasks_of
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.llvm.writer import Code, lane_type
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.compile import object_of
from dslc.compiler.codegen.cpu.region.kernel import RegionKernel
from dslc.compiler.codegen.cpu.region.schedule import cut
from dslc.compiler.codegen.cpu.region.size_generic import RegionLaunch
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.object_check import check_object

LEVEL = machine_level(tuple(LEVELS))
_FORMATS = {"i32": "i", "i64": "q", "f32": "f", "f64": "d"}
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Known(KernelCode):
    """The code of one launch, with its arguments by value as constants; of a region, the code of its own numbers."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.first = launch, len(launch.reads) + len(launch.writes)

    def emit(self, code: Code) -> None:
        def scalar(number: int, dtype: DType) -> Any:
            kind, value = self.launch.scalar_args[number - self.first]
            assert kind == dtype.value
            return lane_type(dtype)(value)

        spec = self.launch.spec
        if isinstance(spec, RegionLaunch):
            RegionKernel(spec.region, cut(spec.region)).emit(code)
            return
        code.scalar = scalar  # type: ignore[method-assign]
        self.launch.code.emit(code)


class Native:
    """The launches of a node as functions. ``splits``: the number of calls per kernel, each for some of its tasks.
    ``known``: each launch has code of its own, with its arguments by value as constants."""

    def __init__(self, node: Node, level: str = LEVEL, *, known: bool = False) -> None:
        launches = lower(node)
        assert launches is not None, f"no kernel for {node}"
        self.node, self.launches = node, launches
        self.symbols = [f"known_{number}" if known else x.symbol for number, x in enumerate(launches)]
        codes = {symbol: Known(x) if known else x.code for symbol, x in zip(self.symbols, launches)}
        self.data = object_of(codes, level)
        check_object(self.data, str(node.op))  # which holds for every kernel that is tested
        self.tracker = llvm.JITLibraryBuilder().add_object_img(self.data)
        for symbol in codes:
            self.tracker = self.tracker.export_symbol(symbol)
        self.jit = llvm.create_lljit_compiler()
        self.library = self.tracker.link(self.jit, "kernels")

    def run(self, inputs: Sequence[np.ndarray], splits: int = 1) -> list[np.ndarray]:
        known: dict[Any, np.ndarray] = {
            v: np.ascontiguousarray(x).reshape(x.shape) for v, x in zip(self.node.inputs, inputs)
        }
        for v in self.node.outputs:
            known[v] = poisoned(v.type.ints, numpy_dtype(v.type.dtype.value))
        for block in (b for launch in self.launches for b in launch.scratch):
            known.setdefault(block, poisoned((block.bytes,), np.dtype(np.uint8)))
        for symbol, launch in zip(self.symbols, self.launches):
            self._call(symbol, launch, known, splits)
        return [known[v] for v in self.node.outputs]

    def _call(self, symbol: str, launch: Launch, known: Mapping[Any, np.ndarray], splits: int) -> None:
        arrays = [known[v] for v in (*launch.reads, *launch.writes)]
        arguments = slots([a.ctypes.data for a in arrays], launch.scalar_args)
        kernel = KERNEL(self.library[symbol])
        count = tasks_of(launch.spec)
        for part in reversed(range(splits)):
            kernel(arguments, count * part // splits, count * (part + 1) // splits)


def slots(pointers: Sequence[int], values: Sequence[tuple[str, int | float]]) -> bytes:
    """The arguments of a kernel: addresses, then values, 8 bytes each."""
    given = [struct.pack(_FORMATS[kind], value).ljust(8, b"\0") for kind, value in values]
    return struct.pack(f"{len(pointers)}Q", *pointers) + b"".join(given)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Memory that reveals unwritten elements: filled with nan, or with its bit pattern."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF
    return array
