"""Prepares a worker once, before its first GPU kernel; it then compiles each kernel in a child process.

A child starts with the state prepared here, so a kernel's code depends neither on earlier kernels nor on the process:
NVIDIA's libraries are loaded and have their memory at fixed addresses. Numba has compiled one kernel, which saves every
child the half second of a first compilation.
"""

from __future__ import annotations

import gc
from typing import Final

_LIBRARIES: Final = ("nvrtc", "nvvm", "nvJitLink")  # an index here is the number of a library's memory: append only
_ARCHITECTURE: Final = "sm_80"  # of Numba's first kernel: the same for all builds, whatever they compile


def prepare() -> str | None:
    """Why a kernel's bytes may not be reproducible; None if they are.

    Raises EnvironmentFault R205 without the compilers.
    """
    from dslc.compiler.toolchain.nvrtc import nvrtc_version

    nvrtc_version()  # loads it, or reports how to install it
    from cuda.pathfinder import load_nvidia_dynamic_lib

    from dslc.compiler.toolchain.fixed_memory import fix_memory

    why = None
    try:
        for number, name in enumerate(_LIBRARIES):
            fix_memory(load_nvidia_dynamic_lib(name).abs_path, number)
    except OSError as error:
        why = f"the compilers' memory has no fixed addresses: {error.strerror or error}"
    _compile_one()
    gc.collect()
    gc.freeze()  # a garbage collection in a child would copy every page
    return why


def _compile_one() -> None:
    from dslc.compiler.codegen.cuda.region.source import Call, Source
    from dslc.compiler.ir.types import DType
    from dslc.compiler.toolchain.numba_cuda import ptx_of
    from dslc.compiler.toolchain.nvjitlink import cubin_of

    text = "def k(p0):\n    t1 = thread()\n    store_i32_1(p0, t1, t1)\n"
    calls = (Call("thread"), Call("store", (DType.I32, 1)))
    cubin_of(ptx_of(Source("k", text, 1, 32, calls), _ARCHITECTURE), _ARCHITECTURE)
