"""A kernel as the text of a Python function, with the names that the text may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dslc.compiler.ir.types import DType

Parameter: TypeAlias = "int | str | DType"


@dataclass(frozen=True, slots=True)
class Call:
    """A function that a text calls: ``head`` says which, ``parameters`` its variant. They make its name."""

    head: str
    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        """``store_f32_4`` for the head ``store`` and (f32, 4); a trailing ``_`` where Python reserves the word."""
        if not self.parameters:
            return self.head + "_" if self.head in ("and", "or", "not") else self.head
        return "_".join([self.head, *(str(p).replace("-", "minus") for p in self.parameters)])


@dataclass(frozen=True, slots=True)
class Source:
    """``text`` defines constants and the function ``name`` of ``arguments`` pointers and then ``numbers``, whose dtypes
    these are, for blocks of ``threads``.

    ``resident``: how many blocks a multiprocessor shall have room for, which bounds the registers of a thread.
    """

    name: str
    text: str
    arguments: int
    threads: int
    calls: tuple[Call, ...]
    resident: int = 1
    numbers: tuple[DType, ...] = ()
