"""``fused_sums``: several sums over the same axes of what pointwise steps compute, and what becomes of them. Passes
make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dslc.compiler.ir.graph import Attrs, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Cost, NoGradient, Op, broadcast, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr
from dslc.compiler.ops.fused import expanded, packed_inputs, steps
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_T = TypeVar("_T")
MAX_LATE: Final = 16
MAX_RESULTS: Final = 16
_MAX_INPUTS: Final = 64


class FusedSums(Op):
    """fused_sums(x0, x1, ...): sums of steps' results over the axes ``over``, one output for each of ``summed``.

    Attributes: ``body``, the steps as in ``fused``; ``summed``, numbers of values, counted as in ``body``; ``over``.
    The inputs broadcast to one shape, which what is summed has; the axes ``over`` fall away. A sum has the dtype of
    what is summed, so whoever sums 16-bit floats casts them first. With the attribute ``kept``, numbers of results of
    steps, these are outputs too, behind the sums.

    With the attribute ``finish``, pointwise steps, what becomes of the sums stands in their place: the steps count the
    sums, then the last ``late`` inputs, which have the shape of a sum or none and are not summed, then themselves;
    ``results``: the numbers of the outputs.
    """

    name = "fused_sums"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        wide, late = parted(types, attrs)
        known = list(wide)
        for name, inputs, step_attrs in steps(attrs):
            known.extend(OPS[name].infer([known[i] for i in inputs], step_attrs))
        shape, over = broadcast([t.shape for t in _plain(wide, attrs)]), ints_attr(attrs, "over")
        each = tuple(size for axis, size in enumerate(shape) if axis not in over)
        found = [TensorType(known[i].dtype, each) for i in ints_attr(attrs, "summed")]
        if "finish" in attrs:
            found += late
            for name, inputs, step_attrs in steps({"body": attrs["finish"]}):
                found.extend(OPS[name].infer([found[i] for i in inputs], step_attrs))
            found = [found[i] for i in ints_attr(attrs, "results")]
        return (*found, *(TensorType(known[i].dtype, shape) for i in _kept(attrs)))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("fusion comes after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        wide, late = parted(xs, attrs)
        known = list(wide)
        for name, inputs, step_attrs in steps(attrs):
            known.extend(OPS[name].meaning([known[i] for i in inputs], step_attrs))
        shape = np.broadcast_shapes(*(x.shape for x in _plain(wide, attrs)))
        summed = (np.broadcast_to(known[i], shape) for i in attrs["summed"])
        found = [np.sum(x, axis=tuple(attrs["over"]), dtype=x.dtype) for x in summed]
        if "finish" in attrs:
            found += late
            for name, inputs, step_attrs in steps({"body": attrs["finish"]}):
                found.extend(OPS[name].meaning([found[i] for i in inputs], step_attrs))
            found = [found[i] for i in attrs["results"]]
        return [*found, *(known[i] for i in _kept(attrs))]

    def cost(self, node: Node) -> Cost:
        wide, _ = parted(node.inputs, node.attrs)
        flops = sum(step.op.cost(step).flops for step in expanded(wide, node.attrs))
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(flops + prod(full_shape(node)) * len(ints_attr(node.attrs, "summed")), moved)


class FinishedSums(FusedSums):
    """finished_sums(x0, ..., v0, ...): ``fused_sums`` with ``finish`` and without ``kept``, whose results may be
    written over the late inputs that they replace: the running statistics of a batch."""

    name = "finished_sums"
    # a sum's inputs have been read when what becomes of it is written
    inplace = tuple((i, o) for i in range(_MAX_INPUTS) for o in range(MAX_RESULTS))


fused_sums = register(FusedSums())
finished_sums = register(FinishedSums())


def parted(inputs: Sequence[_T], attrs: Mapping[str, Any]) -> tuple[Sequence[_T], Sequence[_T]]:
    """What is summed, and what comes to the sums."""
    count = len(inputs) - attrs.get("late", 0)
    return inputs[:count], inputs[count:]


def finish_of(node: Node) -> list[Node]:
    """The steps behind the sums as nodes; the first values that they read are the sums."""
    wide, late = parted(node.inputs, node.attrs)
    plain = {name: value for name, value in node.attrs.items() if name in ("body", "summed", "over")}
    types = fused_sums.infer([v.type for v in wide], plain)
    sums = [Input(f"sum{i}", Kind.DATA, t).value for i, t in enumerate(types)]
    return expanded([*sums, *late], {"body": node.attrs["finish"]})


def _kept(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    return int_tuple(attrs, "kept") if "kept" in attrs else ()


def _plain(inputs: Sequence[_T], attrs: Mapping[str, Any]) -> list[_T]:
    """Those inputs that are not bits."""
    packed = packed_inputs(attrs)
    return [x for i, x in enumerate(inputs) if i not in packed]


def full_shape(node: Node) -> tuple[int, ...]:
    """What the inputs broadcast to, but those that are bits."""
    types = _plain(parted(node.input_types, node.attrs)[0], node.attrs)
    return TensorType(node.types[0].dtype, broadcast([t.shape for t in types])).ints
