"""Where the sums of a contraction go: into its result, through an epilogue, or first into scratch as parts of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dslc.compiler.codegen.cuda.contraction.epilogue import Epilogue
from dslc.compiler.codegen.cuda.contraction.kernel import AddParts
from dslc.compiler.codegen.launch import Argument, Launch, Scratch
from dslc.compiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class Output:
    """``result`` gets the sums, or what ``epilogue`` computes of them and ``others``. ``block``: the first scratch
    block that the kernels may use."""

    result: Argument
    block: int = 0
    epilogue: Epilogue | None = None
    others: Sequence[Argument] = ()

    def in_parts(self, dtype: DType, elements: int, count: int) -> tuple[Scratch, Launch]:
        """Scratch for ``count`` parts of the sum of each element, and the launch that adds them. ``dtype``: that of the
        result, or of the sums that the epilogue gets."""
        parts = Scratch(self.block, count * elements * dtype.computed.itemsize)
        return parts, Launch(AddParts(dtype, elements, count, self.epilogue), (parts, *self.others), (self.result,))
