"""Kernels in CUDA C++: a file of ``kernels/`` behind a few lines that say its sizes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Protocol, runtime_checkable

from dslc.compiler.codegen.cuda.units import Compiled, compiled, geometry
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType

C_TYPES: Final = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.I64: "long long",
    DType.I32: "int",
    DType.I16: "short",
    DType.I8: "signed char",
    DType.U8: "unsigned char",
    DType.B1: "bool",
}


@runtime_checkable
class CppKernel(Protocol):
    """A description that has a file's text in front of it; frozen, its ``repr`` says all."""

    @property
    def file(self) -> str:
        """The name of its file in ``kernels/``."""

    @property
    def geometry(self) -> Geometry: ...

    def head(self) -> str:
        """The text in front of the file: sizes and small functions."""


@cache
def kernel_text(name: str) -> str:
    """A file of ``kernels/``."""
    return (files("dslc.compiler.codegen.cuda") / "kernels" / name).read_text(encoding="utf-8")


def source_of(spec: CppKernel, symbol: str) -> str:
    """The whole text that is compiled."""
    return "\n".join([f"#define KERNEL {symbol}", kernel_text("numbers.cuh"), spec.head(), kernel_text(spec.file)])


def constants(**values: int) -> str:
    """``constexpr int NAME = VALUE;`` each."""
    return "".join(f"constexpr int {name} = {value};\n" for name, value in values.items())


def register(kind: type[CppKernel]) -> None:
    """Makes a class of descriptions known to the target."""

    def _compiled(spec: CppKernel, symbol: str, architecture: str) -> Compiled:
        from dslc.compiler.toolchain.nvrtc import compile_cuda

        return Compiled(*compile_cuda(source_of(spec, symbol), architecture))

    geometry.register(kind)(lambda spec: spec.geometry)
    compiled.register(kind)(_compiled)
