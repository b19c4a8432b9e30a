"""A kernel as the source text of a Python function, with the functions that it may call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelCode, KernelSpec
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType
from dslc.runtime.cuda.code import cubin_code

_MOST_SPILLED: Final = 64  # bytes of a thread's local memory, 16 registers, next to which occupancy counts more

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

    ``resident``: how many blocks a multiprocessor should have room for, which limits the registers per thread. A kernel
    that would keep more than ``_MOST_SPILLED`` bytes of a thread in local memory gets the registers of half as many
    blocks, and so on: with 64 registers, sums of silu's gradient in f32 (360 bytes) reach 0.15 of an H200's bandwidth.
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
        from dslc.compiler.toolchain.numba_cuda import for_blocks, ptx_of
        from dslc.compiler.toolchain.nvjitlink import cubin_of

        ptx, blocks = ptx_of(self.named(symbol), architecture), self.resident
        cubin = cubin_of(ptx, architecture)
        while blocks > 1 and cubin_code(cubin, symbol)[1] > _MOST_SPILLED:
            ptx, blocks = for_blocks(ptx, blocks, blocks // 2), blocks // 2
            cubin = cubin_of(ptx, architecture)
        return Compiled(ptx, cubin)


class SourceKernel(KernelSpec):
    """A kernel with a ``Source``."""

    __slots__ = ()

    @abstractmethod
    def source(self, name: str) -> Source:
        """The source of the kernel, as a function of that name."""

    def compile(self, symbol: str, architecture: str) -> Compiled:
        return self.source(symbol).compile(symbol, architecture)
