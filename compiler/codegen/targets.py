"""The registry of targets, by the names of ``--target``: the one place that knows these names.

A new target is a folder next to ``cpu`` and ``cuda``, a folder in ``runtime``, and a row here. A further NVIDIA
architecture is a row here, and a device in ``device_model.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from dslc.compiler.codegen.cpu.levels import ALL
from dslc.compiler.codegen.device_model import (
    A100,
    ALL_OF_PEAK,
    B200,
    GPU_KERNELS,
    GPU_LIBRARIES,
    H200,
    ZEN4,
    DeviceModel,
    Fractions,
)
from dslc.compiler.codegen.target import Target, Traits

#: Code for all processors of a target.
EVERY_LEVEL: Final = ALL


def _cpu(name: str, vendor: bool, level: str) -> Target:
    from dslc.compiler.codegen.cpu.target import Cpu

    return Cpu(level)


def _cuda(name: str, vendor: bool, level: str) -> Target:
    from dslc.compiler.codegen.cuda.target import Cuda

    return Cuda(name, vendor)


@dataclass(frozen=True, slots=True)
class Row:
    """What the compiler knows about a target. ``libraries``, ``kernels``: the fractions of the device's rates that the
    vendor's libraries and the compiler's own kernels reach. ``make``: from the target's name, whether contractions may
    be library calls, and the levels of CPU code, to its code generation (imported only then). ``packages``: the
    installed packages that compile for it, whose versions can change the code."""

    traits: Traits
    device: DeviceModel
    libraries: Fractions
    kernels: Fractions
    make: Callable[[str, bool, str], Target]
    packages: tuple[str, ...]


_CPU: Final = Traits(
    compute_dtypes=("f32", "f64", "bf16", "f16"),
    param_dtypes=("f32", "f64", "bf16"),
    has_reference=True,
    reads_slices=True,
    reads_any_layout=True,
)
_GPU: Final = Traits(
    compute_dtypes=("f32", "f64", "bf16", "tf32", "f16"),
    param_dtypes=("f32", "f64", "bf16"),
    has_device_memory=True,
    has_half_kernels=True,
    has_libraries=True,
    has_streams=True,
    has_tensor_cores=True,
    fuses_reductions=True,
    reads_slices=True,
    reads_images_last=True,
    launches_are_costly=True,
    has_transforms=True,
)
#: Of code that runs on large GPUs alone. That for sm_80 also runs on compute capabilities 8.6 and 8.9, with 16 to 142
#: multiprocessors.
_LARGE_GPU: Final = replace(_GPU, blocks_may_wait=True)
#: LLVM, Numba, the compilers of CUDA C++ and PTX, and the linker.
_CUDA_PACKAGES: Final = ("llvmlite", "numba", "numba-cuda", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink")

#: In the order in which an artifact holds their programs; the NVIDIA architectures oldest first.
TARGETS: Final[Mapping[str, Row]] = MappingProxyType({
    "cpu": Row(_CPU, ZEN4, ALL_OF_PEAK, ALL_OF_PEAK, _cpu, ("llvmlite",)),
    "sm_80": Row(_GPU, A100, GPU_LIBRARIES, GPU_KERNELS, _cuda, _CUDA_PACKAGES),
    "sm_90": Row(_LARGE_GPU, H200, GPU_LIBRARIES, GPU_KERNELS, _cuda, _CUDA_PACKAGES),
    "sm_100": Row(_LARGE_GPU, B200, GPU_LIBRARIES, GPU_KERNELS, _cuda, _CUDA_PACKAGES),
})  # fmt: skip
#: The target of a build that asks for none (``auto``).
DEFAULT: Final = "cpu"
#: The targets that are GPUs.
ARCHITECTURES: Final = tuple(name for name, row in TARGETS.items() if row.traits.has_device_memory)


def target_of(name: str, vendor: bool = False, level: str = EVERY_LEVEL) -> Target:
    """The code generation of a target; with ``vendor``, its contractions may be library calls if it has libraries.
    ``level``: the only level of a CPU's code, or ``EVERY_LEVEL``."""
    return TARGETS[name].make(name, vendor, level)


def traits_of(name: str) -> Traits:
    """The properties of a target."""
    return TARGETS[name].traits
