"""GPU kernels by their descriptions: launch geometry, and code as PTX and cubin."""

from __future__ import annotations

from typing import Any

from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelCode, KernelSpec
from dslc.compiler.codegen.cuda.region.kernel import RegionKernel
from dslc.compiler.codegen.launch import SizeGeneric
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.toolchain.bundle import bundle


def kernel_of(spec: Any) -> Any:
    """The kernel, or its code, that a description stands for. Regions, which all targets share, do not describe GPU
    kernels themselves."""
    return RegionKernel(spec) if isinstance(spec, Region) else spec


def geometry(spec: Any) -> Geometry:
    """The launch geometry of the kernel that a launch's ``spec`` describes."""
    kernel = kernel_of(spec)
    assert isinstance(kernel, KernelSpec | SizeGeneric), f"{type(spec).__name__} describes no GPU kernel"
    return kernel.geometry


def compiled(spec: Any, symbol: str, architecture: str) -> Compiled:
    """The code that a launch's ``code`` describes, under the name ``symbol``, for an architecture such as ``sm_90``."""
    code = kernel_of(spec)
    assert isinstance(code, KernelCode), f"{type(spec).__name__} describes no GPU code"
    return code.compile(symbol, architecture)


def kernel_code(symbol: str, spec: Any, architecture: str) -> bytes:
    """The kernel's code as one bundle of ``ptx`` and ``cubin``, as stored in the cache."""
    code = compiled(spec, symbol, architecture)
    return bundle({"ptx": code.ptx, "cubin": code.cubin})
