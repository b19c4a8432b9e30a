"""The figures of the devices that time models and thresholds assume, and their sources: one device for each target.

H200 (sm_90): rates measured. A copy of 8.6 GB moves 4.3 TB/s; products of 8192 x 8192 bf16 matrices run at 790 TFLOP/s;
a kernel in a CUDA graph costs 1.1 us in addition to its work. The f32 and f64 rates are those of NVIDIA's data sheet.
A100 80 GB (sm_80) and B200 (sm_100): 0.9 of the bandwidth and 0.8 of the matrix rate of their data sheets, the
fractions that the H200 reaches. Multiprocessors, registers and shared memory: NVIDIA's architecture white papers, and
the table of compute capabilities in the CUDA C++ Programming Guide.
Zen 4 (cpu): two cores, measured. A copy moves 20 GB/s, sgemm does 175 GFLOP/s, pointwise code about 10 G operations a
second, a kernel costs 2 us to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dslc.compiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """Bytes per second; operations per second of matrix products in 16, 32 and 64 bits, and of everything else; seconds
    to launch a kernel. For GPUs also the number of multiprocessors, and what each of them has: 32-bit registers, and
    bytes of shared memory."""

    bandwidth: float
    matrix16: float
    matrix32: float
    matrix64: float
    scalar: float
    launch: float
    multiprocessors: int = 0
    registers: int = 0
    shared_bytes: int = 0

    def matrix(self, dtype: DType, tf32: bool = False) -> float:
        """The rate of matrix products of this dtype; for TF32, half the 16-bit rate."""
        return self.matrix16 / 2 if tf32 else {2: self.matrix16, 4: self.matrix32}.get(dtype.itemsize, self.matrix64)


#: Bytes of shared memory that a thread block of any GPU may declare statically; more needs an attribute of the kernel.
STATIC_SHARED_BYTES: Final = 48 << 10

ZEN4: Final = DeviceModel(20e9, 175e9, 175e9, 87e9, 10e9, 2e-6)
A100: Final = DeviceModel(1.8e12, 250e12, 19.5e12, 9.7e12, 19.5e12, 1.1e-6, 108, 1 << 16, 164 << 10)
H200: Final = DeviceModel(4.3e12, 790e12, 67e12, 34e12, 67e12, 1.1e-6, 132, 1 << 16, 228 << 10)
B200: Final = DeviceModel(7.2e12, 1800e12, 80e12, 40e12, 80e12, 1.1e-6, 148, 1 << 16, 228 << 10)


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """When the rows of a reduction are split into parts: if it has fewer than ``busy`` tasks (on a GPU, thread blocks)
    and at least ``min_elements``. About ``wanted`` tasks are made, of ``min_part`` elements or more each."""

    busy: int
    wanted: int
    min_elements: int
    min_part: int


#: For reductions of rows, of columns, and of columns that fit a cache, whose blocks run no longer than a launch takes.
#: Reductions of fewer elements are not split: the additional launches would cost more than they save.
GPU_ROW_SPLITS: Final = SplitLimits(2 * H200.multiprocessors, 4 * H200.multiprocessors, 1 << 17, 2048)
GPU_COLUMN_SPLITS: Final = SplitLimits(2 * H200.multiprocessors, 4 * H200.multiprocessors, 1 << 17, 16)
GPU_CACHED_SPLITS: Final = SplitLimits(64, 4 * H200.multiprocessors, 1 << 17, 16)
#: Fewer than 16 tasks leave threads of a CPU idle. ``min_elements`` is that of each task.
CPU_SPLITS: Final = SplitLimits(16, 64, 1 << 16, 4096)


@dataclass(frozen=True, slots=True)
class Reached:
    """Achieved fractions of peak bandwidth and of the peak arithmetic rate for a kind of kernel, and its fixed overhead
    in seconds in addition to its work and launch."""

    bandwidth: float = 1.0
    arithmetic: float = 1.0
    start: float = 0.0


#: Kind of kernel (``ir.op.KernelKind``) -> the fractions that it reaches; a kind that is not listed reaches the peak.
Fractions = Mapping[str, Reached]

ALL_OF_PEAK: Final[Fractions] = MappingProxyType({})
#: With NVIDIA's libraries for contractions. Fitted to the times of each kernel of training steps, least sum of absolute
#: differences by kind: ResNet-50 with 256 and 32 images and ResNet-152 with 152, bf16, on one H200 on 2026-11-22
#: (``dslc bench ARTIFACT --entry train_step --json``, built with ``--providers vendor --mirror never``), minus the
#: overhead of measuring single kernels. Attention: of 64 to 128 features, "Attention alone, 31 shapes" in
#: ``benchmarks/results/ops.md``; for which sizes a library computes it, ``cuda/attention/pace.py`` says.
#: Transforms: ten in f32, "Transforms in one kernel" on the same page.
GPU_LIBRARIES: Final[Fractions] = MappingProxyType({
    "product": Reached(0.85, 0.9, 4e-6),
    "gradient": Reached(0.9, 0.9, 4e-6),
    "weight gradient": Reached(0.9, 0.85, 6e-6),
    "attention": Reached(0.9, 0.55, 4e-6),
    "attention gradient": Reached(0.9, 0.4, 12e-6),
    "elements": Reached(0.9, 0.2, 1.5e-6),
    "sums": Reached(0.9, 0.2, 5e-6),
    "windows": Reached(0.55, 1.0, 0.0),
    "copies": Reached(1.0, 1.0, 1e-6),
    "updates": Reached(0.75, 1.0, 4e-6),
    "transforms": Reached(0.6, 0.22, 2.5e-6),
})  # fmt: skip
#: The compiler's own product kernels: ResNet-50 with 256 and 32 images, the same day, built with ``--providers own``.
GPU_KERNELS: Final[Fractions] = MappingProxyType({
    **GPU_LIBRARIES,
    "attention": Reached(0.9, 0.3, 4e-6),
    "attention gradient": Reached(0.9, 0.3, 4e-6),
    "product": Reached(0.8, 0.45, 7e-6),
    "gradient": Reached(0.8, 0.45, 10e-6),
    "weight gradient": Reached(0.9, 0.4, 10e-6),
})  # fmt: skip
