"""Triangles: tri, tril, triu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.function import Call, Function, function
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op, register
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr, int_tuple, shape_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients
from dslc.compiler.ops.elementwise.logic import logical_not
from dslc.compiler.ops.elementwise.selection import where
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Tri(Op):
    """tri(): a b1 matrix of the attribute ``shape`` [n, m], true where ``column - row <= diagonal``."""

    name = "tri"
    mirror = True

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        assert not types, "tri takes no inputs"
        int_attr(attrs, "diagonal")
        shape = shape_attr(attrs)
        assert len(shape) == 2
        return (TensorType(DType.B1, shape),)

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        return ()

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        rows, columns = int_tuple(attrs, "shape")
        return [np.arange(columns) - np.arange(rows)[:, None] <= int(attrs["diagonal"])]

    def cost(self, node: Node) -> Cost:
        return Cost(node.types[0].bytes, node.types[0].bytes)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        return (None,)


tri = register(Tri())


class TriFunction(Function):
    """tri(n, m=none, diagonal=0): a b1 matrix [n, m], true on the diagonal and below it; ``m`` is ``n`` by default.

    ``diagonal`` moves the border: true where ``column - row <= diagonal``.

    given: x: [B, 8, 8]
    >>> where(tri(8), x, -1e9)
    """

    name = "tri"

    def build(self, call: Call, n: Size, m: Size | None = None, diagonal: int = 0) -> Value:
        for size in (n, m):
            if isinstance(size, int) and size < 0:
                raise Mismatch(f"`tri` of size {size}", "sizes from 0", "E0209")
        return call.emit(tri, shape=(n, n if m is None else m), diagonal=diagonal)


def _masked(call: Call, name: str, x: Value, diagonal: int, lower: bool) -> Value:
    if x.type.rank < 2:
        raise Mismatch(f"`{name}` of {x.type}", "it takes a matrix, or a batch of them", "E0306")
    mask = call.emit(tri, shape=x.type.shape[-2:], diagonal=diagonal if lower else diagonal - 1)
    dtype = x.type.dtype
    zero = call.full(False if dtype is DType.B1 else 0, dtype)
    return call.emit(where, mask if lower else call.emit(logical_not, mask), x, zero)


class Tril(Function):
    """tril(x, diagonal=0): the lower triangle of the last two axes, 0 where ``column - row > diagonal``.

    given: x: [B, 8, 8]
    >>> tril(x)
    """

    name = "tril"

    def build(self, call: Call, x: Value, diagonal: int = 0) -> Value:
        return _masked(call, self.name, x, diagonal, True)


class Triu(Function):
    """triu(x, diagonal=0): the upper triangle of the last two axes, 0 where ``column - row < diagonal``.

    given: x: [B, 8, 8]
    >>> triu(x, 1)
    """

    name = "triu"

    def build(self, call: Call, x: Value, diagonal: int = 0) -> Value:
        return _masked(call, self.name, x, diagonal, False)


for _function in (TriFunction, Tril, Triu):
    function(_function())
