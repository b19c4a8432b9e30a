"""``casts`` and ``pick``: work on many small tensors as one node, to save launches. Passes make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import dtype_attr, int_tuple
from dslc.compiler.ops.elementwise.convert import cast
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

MAX_CASTS: Final = 128  # per node


class Casts(Op):
    """casts(x0, x1, ...): ``cast`` of each of up to 128 tensors of one dtype to the attribute ``dtype``."""

    name = "casts"
    kernel_kind = "copies"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        if not 1 <= len(types) <= MAX_CASTS or any(t.dtype is not types[0].dtype for t in types):
            raise Mismatch(f"casts of {', '.join(map(str, types))}", f"1 to {MAX_CASTS} tensors of one dtype")
        return tuple(TensorType(dtype_attr(attrs), t.shape) for t in types)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("casts are joined after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        return [cast.meaning([x], attrs)[0] for x in xs]

    def cost(self, node: Node) -> Cost:
        return Cost(0, sum(t.bytes for t in (*node.input_types, *node.types)))


class Pick(Op):
    """pick(x0, x1, ...): a vector whose element i is element ``place[i]`` of vector ``source[i]``; all of one dtype."""

    name = "pick"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        sources, places = int_tuple(attrs, "source"), int_tuple(attrs, "place")
        if any(t.rank != 1 or t.dtype is not types[0].dtype for t in types) or len(sources) != len(places):
            raise Mismatch(f"pick of {', '.join(map(str, types))}", "vectors of one dtype")
        assert all(0 <= place < types[source].ints[0] for source, place in zip(sources, places))
        return (TensorType(types[0].dtype, (len(sources),)),)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("picks are made after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        pairs = zip(attrs["source"], attrs["place"])
        return [np.array([xs[source][place] for source, place in pairs], xs[0].dtype)]

    def cost(self, node: Node) -> Cost:
        return Cost(0, 2 * node.types[0].bytes)


casts = register(Casts())
pick = register(Pick())
