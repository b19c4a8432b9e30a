"""Kernels with one mistake each, of the kind that a tool of compute-sanitizer finds.

``python -m real_gpu.planted TOOL`` launches that tool's; ``make_kernels.py`` compiles them into ``.gpu/kernels``.
"""

from __future__ import annotations

import sys
from typing import Final

from real_gpu.kernel_store import STORE, Reader
from real_gpu.launcher import Gpu

#: Tool -> CUDA C++ of a kernel of one block of 64 threads over 64 ints that nobody has written.
TEXTS: Final = {
    "memcheck": "x[64 + threadIdx.x] = 1;",
    "racecheck": "__shared__ int all[64]; all[threadIdx.x] = threadIdx.x; x[threadIdx.x] = all[63 - threadIdx.x];",
    "initcheck": "x[threadIdx.x] += 1;",
    "synccheck": "if (threadIdx.x % 32 < 16) __syncthreads(); x[threadIdx.x] = 1;",
}


def text(tool: str) -> str:
    return f'extern "C" __global__ void planted_{tool}(int *x) {{ {TEXTS[tool]} }}\n'


def main(tool: str) -> None:
    gpu, store = Gpu(), Reader(STORE / "kernels")
    symbol = f"planted_{tool}"
    gpu.launch(gpu.kernel(symbol, store.cubin(symbol)), (1, 1, 1), (64, 1, 1), 0, [gpu.allocate(256)])
    gpu.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
