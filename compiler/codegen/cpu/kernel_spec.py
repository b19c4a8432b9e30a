"""Descriptions of CPU kernels: what ``Launch.spec`` is on this target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.codegen.launch import SizeGeneric

#: In the description of a kernel that gets its sizes as arguments, a size, an offset or a stride of ``ARGUMENT + n``
#: stands for scalar argument n. No tensor has such numbers.
ARGUMENT: Final = 1 << 62


class KernelCode(ABC):
    """The description of a kernel's code: a frozen dataclass with a complete ``canonical`` text: equal text, equal
    code.

    ``tiled``: its loops are already unrolled so far that a tile fills the registers. Then the optimiser only simplifies
    the code and moves it out of loops, in less time.
    """

    __slots__ = ()
    tiled: ClassVar[bool] = False

    @abstractmethod
    def emit(self, code: Code) -> None:
        """Emits the code for tasks ``code.first`` to ``code.last``."""


class KernelSpec(KernelCode):
    """The description of a launch whose code serves no other launch."""

    __slots__ = ()

    @property
    @abstractmethod
    def tasks(self) -> int:
        """The number of tasks, which depends only on shapes; 0 if there is nothing to do. Each task writes elements
        that no other task touches."""


def tasks_of(spec: Any) -> int:
    """The number of tasks of a launch."""
    if isinstance(spec, SizeGeneric):
        return spec.geometry.grid[0]
    assert isinstance(spec, KernelSpec), f"{type(spec).__name__} describes no launch on the CPU"
    return spec.tasks
