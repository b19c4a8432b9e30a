"""What the compiler asks of a target: kernels for nodes, their launch geometry, and their code as blobs.

A target's name is that of ``--target``: ``cpu``, or an NVIDIA architecture as ``sm_90``. Code is made from descriptions
alone, so any machine builds for any target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.runtime.container import Blob

if TYPE_CHECKING:
    from dslc.compiler.toolchain.kernels import KernelCompiler

#: The NVIDIA architectures that code is made for, oldest first: Ampere, Hopper, Blackwell.
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100")
TARGETS: Final = ("cpu", *ARCHITECTURES)


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched. On the CPU ``grid[0]`` is its number of tasks and the rest is 1."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0


class Target(Protocol):
    """A target's code generation. ``feature`` is what a runtime must know to run it."""

    feature: str

    def lower(self, node: Node) -> list[Launch] | None:
        """The launches that compute a node whose sizes are ints, in order; None where there is no kernel for it."""

    def geometry(self, spec: Any) -> Geometry:
        """How the kernel that ``spec`` describes is launched: a matter of the description alone."""

    def blob_of(self, symbol: str) -> str:
        """The name of the blob that holds a kernel."""

    def blobs(self, kernels: Mapping[str, Any], compiler: KernelCompiler) -> list[Blob]:
        """The code of all kernels (symbol -> description); the same descriptions give the same bytes."""


def target_of(name: str, vendor: bool = False) -> Target:
    """The target of that name, one of ``TARGETS``; with ``vendor``, contractions of a GPU may be libraries' calls."""
    if name == "cpu":
        from dslc.compiler.codegen.cpu.target import Cpu

        return Cpu()
    assert name in ARCHITECTURES, f"no target {name}"
    from dslc.compiler.codegen.cuda.target import Cuda

    return Cuda(name, vendor)
