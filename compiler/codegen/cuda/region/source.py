"""A kernel as the source text of a Python function, with the functions that it may call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TypeAlias

from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelCode, KernelSpec
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

Parameter: TypeAlias = "int | str | DType"


@described("Call", "head parameters")
@dataclass(frozen=True, slots=True)
class Call:
    """A function that a kernel's source calls: ``head`` selects it, ``parameters`` its variant. They form its name."""

    head: str
    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        """``store_f32_4`` for the head ``store`` and (f32, 4); a trailing ``_`` if Python reserves the word."""
        if not self.parameters:
            return self.head + "_" if self.head in ("and", "or", "not") else self.head
        return "_".join([self.head, *(str(p).replace("-", "minus") for p in self.parameters)])


@described("Source", "name text arguments threads calls resident numbers")
@dataclass(frozen=True, slots=True)
class Source(KernelCode):
    """``text`` defines constants and the function ``name``. Its arguments are ``arguments`` pointers, then ``numbers``
    of these dtypes; its blocks have ``threads`` threads.

    ``resident``: how many blocks a multiprocessor must have room for, which limits the registers per thread.
    """

    name: str
    text: str
    arguments: int
    threads: int
    calls: tuple[Call, ...]
    resident: int = 1
    numbers: tuple[DType, ...] = ()

    def named(self, symbol: str) -> Source:
        """The source of a function with another name."""
        return replace(self, name=symbol, text=self.text.replace(f"def {self.name}(", f"def {symbol}(", 1))

    def compile(self, symbol: str, architecture: str) -> Compiled:
        from dslc.compiler.toolchain.numba_cuda import ptx_of
        from dslc.compiler.toolchain.nvjitlink import cubin_of

        ptx = ptx_of(self.named(symbol), architecture)
        return Compiled(ptx, cubin_of(ptx, architecture))


class SourceKernel(KernelSpec):
    """A kernel with a ``Source``."""

    __slots__ = ()

    @abstractmethod
    def source(self, name: str) -> Source:
        """The source of the kernel, as a function of that name."""

    def compile(self, symbol: str, architecture: str) -> Compiled:
        return self.source(symbol).compile(symbol, architecture)
