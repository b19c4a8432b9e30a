"""A scatter of elements with an index each, as it is given to the kernels that may compute it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dslc.compiler.codegen.cuda.ops.scatter.row_order import as_signed
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.types import DType


@dataclass(frozen=True)
class ScatterProblem:
    """Each element of ``source`` goes to the place of ``out`` whose index along ``axis`` is in ``ids``, and is combined
    there. ``source`` and ``ids`` are [outer, length, inner], ``out`` is [outer, count, inner], with the axis in the
    middle.

    ``how``: a combination, or ``LAST`` or ``PLACES`` of ``scatter_atomic.py``; for places ``source`` is None.
    ``dtype``: as which kernels read the elements. ``x``: a tensor of ``out``'s shape that is combined, too, or nothing.
    ``lost``: in integers, the result of a line that has an index outside of the axis; None if it is ignored.
    """

    how: str
    dtype: DType
    axis: int
    source: Value | None
    ids: Value
    x: tuple[Value, ...]
    out: Value
    lost: int | None

    @property
    def dtypes(self) -> tuple[DType, DType]:
        """Those of the elements and of the indices."""
        return self.dtype, as_signed(self.ids.type.dtype)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """outer, length, inner and count."""
        shape = self.out.type.ints
        return prod(shape[: self.axis]), self.ids.type.ints[self.axis], prod(shape[self.axis + 1 :]), shape[self.axis]
