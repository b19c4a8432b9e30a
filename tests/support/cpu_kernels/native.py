"""Runs one node through its kernels: compiled for this machine's level, called task by task."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.compile import kernel_of, object_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.object_check import check_object

LEVEL = machine_level(tuple(LEVELS))
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Native:
    """The launches of a node as functions. ``splits``: the number of calls per kernel, each for some of its tasks."""

    def __init__(self, node: Node, level: str = LEVEL) -> None:
        launches = lower(node)
        assert launches is not None, f"no kernel for {node}"
        self.node, self.launches = node, launches
        self.data = object_of({x.symbol: x.spec for x in launches}, level)
        check_object(self.data, str(node.op))  # which holds for every kernel that is tested
        self.tracker = llvm.JITLibraryBuilder().add_object_img(self.data)
        for launch in launches:
            self.tracker = self.tracker.export_symbol(launch.symbol)
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
        for launch in self.launches:
            self._call(launch, known, splits)
        return [known[v] for v in self.node.outputs]

    def _call(self, launch: Launch, known: Mapping[Any, np.ndarray], splits: int) -> None:
        arrays = [known[v] for v in (*launch.reads, *launch.writes)]
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
        kernel = KERNEL(self.library[launch.symbol])
        count = kernel_of(launch.spec).tasks
        for part in reversed(range(splits)):
            kernel(pointers, count * part // splits, count * (part + 1) // splits)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Memory that reveals unwritten elements: filled with nan, or with its bit pattern."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF
    return array
