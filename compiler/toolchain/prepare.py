"""What a worker does once, before the first kernel for a GPU; it then compiles each in a child of its own.

A child begins with the state that the worker has here, so that a kernel's code depends neither on the kernels before
it nor on the process: NVIDIA's libraries are loaded, their memory has its fixed addresses, and Numba has compiled one
kernel, which spares every child the half second of a first one.
"""

from __future__ import annotations

import gc
from typing import Final

_LIBRARIES: Final = ("nvrtc", "nvvm", "nvJitLink")  # their numbers are those of their memory: append only
_ARCHITECTURE: Final = "sm_80"  # of the kernel for Numba: one for all builds, whatever they compile


def prepare() -> str | None:
    """Why the same kernel may come out with other bytes another time; None where it cannot.

    Raises EnvironmentFault R205 without the compilers.
    """
    from dslc.compiler.toolchain.nvrtc import nvrtc_version

    nvrtc_version()  # loads it, or says how to install it
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
    gc.freeze()  # a child that looks for garbage would copy every page
    return why


def _compile_one() -> None:
    from dslc.compiler.codegen.cuda.source import Call, Source
    from dslc.compiler.ir.types import DType
    from dslc.compiler.toolchain.numba_cuda import ptx_of
    from dslc.compiler.toolchain.nvjitlink import cubin_of

    text = "def k(p0):\n    t1 = thread()\n    store_i32_1(p0, t1, t1)\n"
    calls = (Call("thread"), Call("store", (DType.I32, 1)))
    cubin_of(ptx_of(Source("k", text, 1, 32, calls), _ARCHITECTURE), _ARCHITECTURE)
