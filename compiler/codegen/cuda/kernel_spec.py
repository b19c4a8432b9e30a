"""Descriptions of GPU kernels and of their code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from dslc.compiler.codegen.target import Geometry


@dataclass(frozen=True, slots=True)
class Compiled:
    """The code of one kernel: ``ptx``, ASCII text without a final NUL, and ``cubin``, an ELF file."""

    ptx: bytes
    cubin: bytes


class KernelCode(ABC):
    """The description of a kernel's code: a frozen dataclass with a complete ``canonical`` text. Equal text gives equal
    code, on any machine and in any order."""

    __slots__ = ()

    @abstractmethod
    def compile(self, symbol: str, architecture: str) -> Compiled:
        """The kernel's code, under the name ``symbol``, for an architecture such as ``sm_90``."""


class KernelSpec(KernelCode):
    """The description of a kernel whose code contains all sizes, and so of its launch, too."""

    __slots__ = ()

    @property
    @abstractmethod
    def geometry(self) -> Geometry:
        """The launch geometry."""


class Unfit(Exception):
    """A kind of kernel cannot compute a node, a loop or a chain; the text says why."""
