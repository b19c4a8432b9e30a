"""A node as several kernels, one after the other, with scratch memory between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dslc.compiler.codegen.cpu.code import Code


class Kernel(Protocol):
    """A frozen description whose ``repr`` says all: equal text, equal code."""

    @property
    def tasks(self) -> int:
        """The number of tasks, from shapes alone; each writes elements that no other touches."""

    def emit(self, code: Code) -> None:
        """Prints the body for tasks ``code.first`` to ``code.last``."""


@dataclass(frozen=True, slots=True)
class Step:
    """``args`` in the order of the kernel's: ``in0``, ``in1``, ``out0``, ... of the node, ``tmp0``, ... scratch."""

    kernel: Kernel
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in order, all of a step's tasks before the next one's. ``scratch``: the bytes of tmp0, tmp1, ...

    Scratch holds nothing between calls, wants 64-byte alignment and may be of any content before.
    """

    steps: tuple[Step, ...]
    scratch: tuple[int, ...] = ()
