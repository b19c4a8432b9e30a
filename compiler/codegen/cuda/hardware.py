"""Facts of NVIDIA GPUs that kernels rely on, the same for all architectures from sm_80 on.

Source: CUDA C++ Programming Guide, chapter "Compute Capabilities". What differs between devices is in
``codegen/device_model.py``: rules that need a number of blocks or warps to keep a GPU busy take the multiprocessors of
``H200``, whatever the device, so that the bits do not depend on it.
"""

from __future__ import annotations

from typing import Final

WARP: Final = 32  # threads
LOAD_BYTES: Final = 16  # most bytes that a thread reads or writes with one instruction
BLOCK_SHARED_BYTES: Final = 99 << 10  # shared memory that a block may have on each architecture; sm_86 has the least
MAX_POINTERS: Final = 500  # arguments of a kernel, whose parameters may have 4 KiB
