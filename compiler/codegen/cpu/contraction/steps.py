"""A node as a sequence of kernels with scratch memory between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dslc.compiler.codegen.cpu.llvm.writer import Code


class Kernel(Protocol):
    """A frozen description with a complete ``canonical`` text: equal text, equal code."""

    @property
    def tasks(self) -> int:
        """The number of tasks, which depends only on shapes; each writes elements that no other touches."""

    def emit(self, code: Code) -> None:
        """Emits the code for tasks ``code.first`` to ``code.last``."""


@dataclass(frozen=True, slots=True)
class Step:
    """``args`` in the kernel's order: ``in0``, ``in1``, ``out0``, ... of the node; ``tmp0``, ... are scratch."""

    kernel: Kernel
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order; all tasks of a step precede those of the next. ``scratch``: the bytes of tmp0, tmp1, ...

    Scratch is not preserved between calls, needs 64-byte alignment, and its initial content is undefined.
    """

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()
