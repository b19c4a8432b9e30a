"""The sources of kernels that Numba compiles, and which ops have kernels in CUDA C++."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dslc.compiler.codegen.cuda.compile import kernel_of
from dslc.compiler.codegen.cuda.lower import LOWERINGS
from dslc.compiler.codegen.cuda.region.source import Source


def source_of(symbol: str, code: Any) -> Source:
    """That of the kernel that a launch's code describes."""
    kernel = kernel_of(code)
    found = kernel.named(symbol) if isinstance(kernel, Source) else kernel.source(symbol)
    assert isinstance(found, Source)
    return found


def ops_of(*modules: ModuleType) -> list[str]:
    """The ops that functions of these modules lower."""
    names = {module.__name__ for module in modules}
    return sorted(op for op, function in LOWERINGS.items() if function.__module__ in names)
