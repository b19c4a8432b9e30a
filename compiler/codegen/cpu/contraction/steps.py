"""A node as a sequence of kernels with scratch memory between them."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec


@dataclass(frozen=True, slots=True)
class Step:
    """``args`` in the kernel's order: ``in0``, ``in1``, ``out0``, ... of the node; ``tmp0``, ... are scratch."""

    kernel: KernelSpec
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order; all tasks of a step precede those of the next. ``scratch``: the bytes of tmp0, tmp1, ...

    Scratch is not preserved between calls, needs 64-byte alignment, and its initial content is undefined.
    """

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()
