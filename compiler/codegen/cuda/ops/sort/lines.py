"""Lines that are sorted: an axis of a tensor, and the order of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType

Places: TypeAlias = tuple[Value | Scratch, ...]  # of values and their indices


def key_of(dtype: DType) -> str:
    """The type KEY and the function ``key``: the number by which elements of a type T are compared."""
    key = dtype.computed if dtype.is_float or dtype is DType.U64 else DType.I64
    found = "wide(x)" if dtype.is_float else "x"
    return f"using KEY = {C_TYPES[key]};\n__device__ __forceinline__ KEY key(T x) {{ return {found}; }}\n"


@dataclass(frozen=True)
class Lines:
    """Lines of ``count`` elements of a dtype: the middle axis of ``[all / after, count, after]``."""

    dtype: DType
    count: int
    after: int
    all: int
    descending: bool = False

    @property
    def elements(self) -> int:
        return self.all * self.count

    @property
    def head(self) -> str:
        """Types, and the order."""
        return f"using T = {C_TYPES[self.dtype]};\n" + key_of(self.dtype) + constants(LARGEST=int(self.descending))

    def numbers(self, **more: int) -> Numbers:
        return Numbers(COUNT=self.count, AFTER=self.after, ALL=self.all, **more)

    def held(self, number: int) -> tuple[Scratch, Scratch]:
        """Scratch memory for values and their indices, blocks ``number`` and the next."""
        bytes = self.elements
        return Scratch(number, bytes * self.dtype.itemsize), Scratch(number + 1, bytes * DType.I32.itemsize)


def turned(dtype: DType, outer: int, sizes: Sequence[int], source: Value | Scratch, target: Value | Scratch) -> Launch:
    """Copies [outer, a, b] to [outer, b, a], of ``sizes`` a and b."""
    a, b = sizes
    region = copy((outer, b, a), Access(dtype, (a * b, 1, b)), Access(dtype, (a * b, a, 1)))
    return Launch(region, (source,), (target,))
