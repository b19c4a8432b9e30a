"""GPU kernels by their descriptions: launch geometry, and code as PTX and cubin.

Each kind of description registers both. Equal descriptions give equal bytes, on any machine and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.codegen.launch import Shared
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.toolchain.bundle import bundle


@dataclass(frozen=True, slots=True)
class Compiled:
    """The code of one kernel: ``ptx``, ASCII text without a final NUL, and ``cubin``, an ELF file."""

    ptx: bytes
    cubin: bytes


@singledispatch
def geometry(spec: Any) -> Geometry:
    """The launch geometry of the kernel that ``spec`` describes."""
    raise TypeError(f"no geometry for {type(spec).__name__}")


@geometry.register
def _(spec: Shared) -> Geometry:
    return spec.geometry


@singledispatch
def compiled(spec: Any, symbol: str, architecture: str) -> Compiled:
    """The kernel's code, under the name ``symbol``, for an architecture such as ``sm_90``."""
    raise TypeError(f"no code for {type(spec).__name__}")


def printed(source: Source, architecture: str) -> Compiled:
    """The code of a source that Numba compiles."""
    from dslc.compiler.toolchain.numba_cuda import ptx_of
    from dslc.compiler.toolchain.nvjitlink import cubin_of

    ptx = ptx_of(source, architecture)
    return Compiled(ptx, cubin_of(ptx, architecture))


def kernel_code(symbol: str, spec: Any, architecture: str) -> bytes:
    """The kernel's code as one bundle of ``ptx`` and ``cubin``, as stored in the cache."""
    code = compiled(spec, symbol, architecture)
    return bundle({"ptx": code.ptx, "cubin": code.cubin})
