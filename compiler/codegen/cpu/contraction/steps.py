"""A node as a sequence of kernels with scratch memory between them."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode, KernelSpec, tasks_of
from dslc.compiler.codegen.launch import SizeGeneric


@dataclass(frozen=True, slots=True)
class Step:
    """``args`` in the kernel's order: ``in0``, ``in1``, ``out0``, ... of the node; ``tmp0``, ... are scratch."""

    kernel: KernelSpec | SizeGeneric
    args: tuple[str, ...]

    @property
    def code(self) -> KernelCode:
        """The description of the kernel's code."""
        code = self.kernel.code if isinstance(self.kernel, SizeGeneric) else self.kernel
        assert isinstance(code, KernelCode)
        return code

    @property
    def numbers(self) -> tuple[int | float, ...]:
        """The kernel's arguments by value, after those of ``args``."""
        given = self.kernel.scalar_args if isinstance(self.kernel, SizeGeneric) else ()
        return tuple(number for _, number in given)

    @property
    def tasks(self) -> int:
        return tasks_of(self.kernel)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order; all tasks of a step precede those of the next. ``scratch``: the bytes of tmp0, tmp1, ...

    Scratch is not preserved between calls, needs 64-byte alignment, and its initial content is undefined.
    """

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()
