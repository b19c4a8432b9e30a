"""What the ops and functions of linear systems share: which tensors are square matrices, and small compositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslc.compiler.ir.function import Call
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.constants.masks import tri
from dslc.compiler.ops.elementwise.arithmetic import require_kind
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.products.linear import matmul
from dslc.compiler.ops.shape.views import transpose

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


def require_square(name: str, x: TensorType) -> None:
    """Raises Mismatch unless ``x`` is a float matrix with as many rows as columns, or a batch of them."""
    require_kind(name, x.dtype, "float")
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        help = f"`{name}` takes [n, n], or [..., n, n] for a batch of matrices"
        raise Mismatch(f"`{name}` of {x}, which is no square matrix", help, "E0306" if x.rank < 2 else "E0302")


def computed(call: Call, x: Value) -> Value:
    """``x`` as the ops take it: f32 in place of 16 bits that the source asks for."""
    return call.emit(cast, x, dtype=DType.F32) if x.type.dtype.is_half else x


def as_given(call: Call, y: Value, x: Value) -> Value:
    """``y`` in the dtype of the argument ``x``."""
    return y if y.type.dtype is x.type.dtype else call.emit(cast, y, dtype=x.type.dtype)


def turned(b: Builder, x: Value) -> Value:
    """The transpose of each matrix."""
    last = x.type.rank - 1
    return b(transpose, x, perm=(*range(last - 1), last, last - 1))


def product(b: Builder, x: Value, y: Value, *, turn_x: bool = False, turn_y: bool = False) -> Value:
    """The product of each matrix with each of the other batch."""
    return b(matmul, x, y, transpose_a=turn_x, transpose_b=turn_y)


def triangle(b: Builder, x: Value, diagonal: int) -> Value:
    """b1, true where ``column - row <= diagonal``, of the size of the matrices ``x``."""
    return b(tri, shape=x.type.shape[-2:], diagonal=diagonal)


def batched(axes: Sequence[int | None], rank: int) -> int | None:
    """The batch axis that all inputs share, if it does not lie in the matrices of ``rank``; else None."""
    found = set(axes)
    axis = found.pop() if len(found) == 1 else None
    return axis if axis is not None and axis < rank - 2 else None


def lower_part(x: Array) -> Array:
    """The matrices with zeros above the diagonal."""
    return np.where(np.tri(x.shape[-1], dtype=bool), x, x.dtype.type(0))
