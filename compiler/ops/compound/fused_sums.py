"""``fused_sums``: several reductions of pointwise results over the same axes, with an optional epilogue. Passes
make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dslc.compiler.ir.graph import Attrs, Input, Kind, Node
from dslc.compiler.ir.op import OPS, Cost, broadcast, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.attrs import int_tuple, ints_attr
from dslc.compiler.ops.compound.fused import FusedOp, expanded, packed_inputs, steps
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

_T = TypeVar("_T")
MAX_LATE: Final = 16
MAX_RESULTS: Final = 16
_MAX_INPUTS: Final = 64


class FusedSums(FusedOp):
    """fused_sums(x0, x1, ...): sums of step results over the axes ``over``, one output per entry of ``summed``.

    Attributes: ``body``, the steps as in ``fused``; ``summed``, indices of values as in ``body``; ``over``. The inputs
    broadcast to one shape, the shape of the summed values; the axes ``over`` are removed. A sum has the dtype of its
    operand, so 16-bit floats must be cast first. With the attribute ``kept``, indices of step results, these are
    outputs, too, after the sums.

    With the attribute ``finish``, pointwise steps, the outputs are those of an epilogue. Its steps count the
    sums, then the last ``late`` inputs, which are scalars or shaped like a sum and are not summed, then themselves;
    ``results``: the indices of the outputs.
    """

    name = "fused_sums"
    kernel_kind = "sums"

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
    """finished_sums(x0, ..., v0, ...): ``fused_sums`` with ``finish`` and without ``kept``, whose results may
    overwrite the late inputs that they replace, e.g. a batchnorm's running statistics."""

    name = "finished_sums"
    kernel_kind = "sums"
    # a sum's inputs have been read before its epilogue writes
    inplace = tuple((i, o) for i in range(_MAX_INPUTS) for o in range(MAX_RESULTS))


fused_sums = register(FusedSums())
finished_sums = register(FinishedSums())


def parted(inputs: Sequence[_T], attrs: Mapping[str, Any]) -> tuple[Sequence[_T], Sequence[_T]]:
    """The inputs of the sums, and the late inputs."""
    count = len(inputs) - attrs.get("late", 0)
    return inputs[:count], inputs[count:]


def finish_of(node: Node) -> list[Node]:
    """The epilogue's steps as nodes; the first values that they read are the sums."""
    wide, late = parted(node.inputs, node.attrs)
    plain = {name: value for name, value in node.attrs.items() if name in ("body", "summed", "over")}
    types = fused_sums.infer([v.type for v in wide], plain)
    sums = [Input(f"sum{i}", Kind.DATA, t).value for i, t in enumerate(types)]
    return expanded([*sums, *late], {"body": node.attrs["finish"]})


def _kept(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    return int_tuple(attrs, "kept") if "kept" in attrs else ()


def _plain(inputs: Sequence[_T], attrs: Mapping[str, Any]) -> list[_T]:
    """The inputs that are not packed bits."""
    packed = packed_inputs(attrs)
    return [x for i, x in enumerate(inputs) if i not in packed]


def full_shape(node: Node) -> tuple[int, ...]:
    """The broadcast shape of the inputs that are not packed bits."""
    types = _plain(parted(node.input_types, node.attrs)[0], node.attrs)
    return TensorType(node.types[0].dtype, broadcast([t.shape for t in types])).ints
