"""The targets that the compiler makes code for, by the names of ``--target``: the one place that knows them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dslc.compiler.codegen.target import Target

#: The supported NVIDIA architectures, oldest first: Ampere, Hopper, Blackwell.
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100")
TARGETS: Final = ("cpu", *ARCHITECTURES)


def target_of(name: str, vendor: bool = False) -> Target:
    """The target of that name, one of ``TARGETS``; with ``vendor``, a GPU's contractions may be library calls."""
    if name == "cpu":
        from dslc.compiler.codegen.cpu.target import Cpu

        return Cpu()
    assert name in ARCHITECTURES, f"no target {name}"
    from dslc.compiler.codegen.cuda.target import Cuda

    return Cuda(name, vendor)
