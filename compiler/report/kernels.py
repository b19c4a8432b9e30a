"""Kernels by what describes them: which class of descriptions each has, in which file, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.codegen.targets import target_of

_PACKAGE: Final = "dslc."


def kernel_text(launch: Launch, target: str) -> str:
    """A kernel of a node, such as ``k_4045...: Mma of compiler/codegen/cuda/contraction/kernel.py, 64 blocks of 128
    threads, 65,536 bytes of shared memory``. On a CPU the number of tasks stands in place of the blocks."""
    kind = type(launch.spec)
    file = kind.__module__.removeprefix(_PACKAGE).replace(".", "/")
    return f"{launch.symbol}: {kind.__name__} of {file}.py, {_geometry_text(target_of(target).geometry(launch.spec))}"


def kernel_texts(launches: Sequence[Launch], target: str) -> tuple[str, ...]:
    """``kernel_text`` of each launch, in order."""
    return tuple(kernel_text(launch, target) for launch in launches)


def _geometry_text(geometry: Geometry) -> str:
    x, y, z = geometry.grid
    count, threads = x * y * z, geometry.block[0] * geometry.block[1] * geometry.block[2]
    if geometry.block == (1, 1, 1):
        return f"{count:,} task{'s' * (count != 1)}"
    text = f"{count:,} block{'s' * (count != 1)} of {threads} threads"
    return text + (f", {geometry.shared_bytes:,} bytes of shared memory" if geometry.shared_bytes else "")
