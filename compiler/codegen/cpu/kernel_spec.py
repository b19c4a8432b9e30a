"""Descriptions of CPU kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dslc.compiler.codegen.cpu.llvm.writer import Code


class KernelSpec(ABC):
    """A kernel's description: a frozen dataclass with a complete ``canonical`` text: equal text, equal code."""

    __slots__ = ()

    @property
    @abstractmethod
    def tasks(self) -> int:
        """The number of tasks, which depends only on shapes; 0 if there is nothing to do. Each task writes elements
        that no other task touches."""

    @abstractmethod
    def emit(self, code: Code) -> None:
        """Emits the code for tasks ``code.first`` to ``code.last``."""
