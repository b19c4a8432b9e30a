"""Scatters that replace elements, and their gradients, by the last places of indices. A pass makes these ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_attr
from dslc.compiler.ops.elementwise.arithmetic import Gradients, require_kind
from dslc.compiler.ops.index.embedding import existing, nothing
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class _ByPlaces(Op):
    """Base of these ops. ``last_places`` has made the places, i32 along ``axis``."""

    def grad(self, node: Node, dys: Gradients, b: Builder) -> Gradients:
        raise NoGradient("scatters are ordered after differentiation")

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class TakeLast(_ByPlaces):
    """take_last(src, places[, x]): ``src`` at its places along ``axis``; x, or 0, at places below 0.

    A place after the last of ``src`` gives nan, or 0 for dtypes without nan.
    """

    name = "take_last"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (src, places, *x), axis = types, int_attr(attrs, "axis")
        assert places.dtype is DType.I32 and 0 <= axis < src.rank == places.rank
        assert all(src.shape[i] == places.shape[i] for i in range(src.rank) if i != axis)
        result = TensorType(src.dtype, places.shape)
        assert all(each == result for each in x)
        return (result,)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (src, places, *x), axis = xs, int(attrs["axis"])
        safe, wrong = existing(np.maximum(places, 0), src.shape[axis])
        found = np.where(wrong, nothing(src.dtype), np.take_along_axis(src, safe, axis))
        return [np.where(places >= 0, found, x[0] if x else src.dtype.type(0))]


class GiveLast(_ByPlaces):
    """give_last(dy, index, places): the gradient of ``take_last`` for src, of which the places are those of ``index``:
    dy at its index for the last of equal indices, 0 for the others.

    nan for an index outside of dy, and on lines whose places are the length of ``index`` or more.
    """

    name = "give_last"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        (dy, index, places), axis = types, int_attr(attrs, "axis")
        require_kind("give_last", index.dtype, "int")
        assert dy.dtype.is_float and places == TensorType(DType.I32, dy.shape) and 0 <= axis < dy.rank == index.rank
        assert all(dy.shape[i] == index.shape[i] for i in range(dy.rank) if i != axis)
        return (TensorType(dy.dtype, index.shape),)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        (dy, index, places), axis = xs, int(attrs["axis"])
        safe, wrong = existing(index, dy.shape[axis])
        last, slope = (np.take_along_axis(x, safe, axis) for x in (places, dy))
        length = index.shape[axis]
        own = np.arange(length).reshape([length if i == axis else 1 for i in range(index.ndim)])
        rest = np.where(last >= length, dy.dtype.type(np.nan), dy.dtype.type(0))
        return [np.where(wrong, dy.dtype.type(np.nan), np.where(last == own, slope, rest))]


take_last = register(TakeLast())
give_last = register(GiveLast())
