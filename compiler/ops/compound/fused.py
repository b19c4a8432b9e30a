"""``fused``: several pointwise ops as one node. The fuse pass makes it; the language has no function for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from dslc.compiler.ir.graph import Attr, Attrs, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Cost, KernelKind, NoGradient, Op, Pointwise, register
from dslc.compiler.ir.types import TensorType

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

#: (op name, indices of its inputs, ((attribute, value), ...)). Indices count the region's inputs, then the steps.
Step: TypeAlias = "tuple[str, tuple[int, ...], tuple[tuple[str, Attr], ...]]"

#: Steps that only select or reshape an input and compute nothing.
PLACES = ("slice", "reshape")
#: Steps that pack bits into bytes, or unpack them: element i of the result is not made of element i of the input.
BITS = ("pack_bits", "unpack_bits")
MAX_STEPS = 64  # per region, to limit its code and types
_MAX_INPUTS = 3 * MAX_STEPS


class FusedOp(Op):
    """Base of the ops that passes make of several others: the attribute ``body`` holds the steps, as in ``fused``."""

    #: Whether no step reads neighbours: element i of a step's result depends only on element i of what the step reads.
    elementwise: ClassVar[bool] = False

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("fusion comes after differentiation")


class Fused(FusedOp):
    """fused(x0, x1, ...): the result of the last step of the attribute ``body``.

    A step is (op name, indices of its inputs, ((attribute, value), ...)); indices count the inputs of the node, then
    the steps. Each step is a pointwise op or a dropout whose result has the shape of the node's, a constant of rank 0,
    or one of ``PLACES``: a slice of an input, or a reshape of an input or of a slice that drops or adds axes of size
    1. Every step rounds its result to its dtype, so a region gives the same bits as separate nodes. With the attribute
    ``results``, also indices, each of these is an output.
    """

    name = "fused"
    kernel_kind: ClassVar[KernelKind] = "elements"
    elementwise = True
    inplace = (*((i, 0) for i in range(_MAX_INPUTS)), *((i, o) for i in range(8) for o in range(1, 16)))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        known = list(types)
        for name, inputs, step_attrs in steps(attrs):
            (type_,) = OPS[name].infer([known[i] for i in inputs], step_attrs)
            known.append(type_)
        return tuple(known[i] for i in results_of(attrs, len(known)))

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        known = list(xs)
        for name, inputs, step_attrs in steps(attrs):
            known.extend(OPS[name].meaning([known[i] for i in inputs], step_attrs))
        return [known[i] for i in results_of(attrs, len(known))]

    def cost(self, node: Node) -> Cost:
        flops = _flops(node.attrs["body"], node.input_types)
        return Cost(flops, read_bytes(node) + sum(t.bytes for t in node.types))

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        where: list[int | None] = list(axes)
        place = {v: i for i, v in enumerate(node.inputs)}
        for step in expanded(node.inputs, node.attrs):
            found = step.op.rows(step, [where[place[v]] for v in step.inputs])
            if found is None:
                return None
            place[step.out] = len(where)
            where.append(found[0])
        return tuple(where[i] for i in results_of(node.attrs, len(where)))


fused = register(Fused())


def steps(attrs: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[int], dict[str, Any]]]:
    """The steps of a body; accepts the compiler's form and the JSON form."""
    for name, inputs, step_attrs in attrs["body"]:
        yield name, inputs, {key: value for key, value in step_attrs}


def results_of(attrs: Mapping[str, Any], count: int) -> Sequence[int]:
    """Indices of the outputs among ``count`` values: the last one, or the attribute ``results``."""
    results: Sequence[int] = attrs.get("results", (count - 1,))
    return results


def packed_inputs(attrs: Mapping[str, Any]) -> set[int]:
    """The indices of the inputs that are packed bits, eight elements per byte."""
    return {read[0] for name, read, _ in steps(attrs) if name == "unpack_bits"}


def cut_inputs(attrs: Mapping[str, Any]) -> set[int]:
    """The indices of the inputs that are read in parts."""
    return {read[0] for name, read, _ in attrs["body"] if name == "slice"}


def read_bytes(node: Node) -> int:
    """The bytes of a node's inputs, each once; for an input read in parts, those parts. Sizes are ints."""
    parts = [(read[0], step_attrs) for name, read, step_attrs in steps(node.attrs) if name == "slice"]
    cut = {i for i, _ in parts}
    found = sum(v.type.bytes for v in {v: None for i, v in enumerate(node.inputs) if i not in cut})
    for i, part in parts:
        ends = zip(part["starts"], part["stops"], part["steps"])
        sizes = (len(range(start, stop, step)) for start, stop, step in ends)
        found += prod(sizes) * node.inputs[i].type.dtype.itemsize
    return found


def has_bits(attrs: Mapping[str, Any]) -> bool:
    """Whether steps read or make packed bits, which only GPU kernels support."""
    return any(name in BITS for name, _, _ in steps(attrs))


@lru_cache(4096)  # called many times per node, and for equal steps of many layers
def _flops(body: Attr, types: tuple[TensorType, ...]) -> int:
    inputs = [Input("", Kind.DATA, type).value for type in types]
    return sum(step.op.cost(step).flops for step in expanded(inputs, {"body": body}))


def expanded(inputs: Sequence[Value], attrs: Attrs) -> list[Node]:
    """The body as nodes that read ``inputs``."""
    b = Builder()
    known = list(inputs)
    nodes: list[Node] = []
    for name, read, step_attrs in steps(attrs):
        node = b.node(OPS[name], *(known[i] for i in read), **step_attrs)
        nodes.append(node)
        known.append(node.out)
    return nodes


def steps_of(node: Node) -> list[Node]:
    """The steps of a fused node as nodes that read its inputs; any other node is its own only step."""
    return expanded(node.inputs, node.attrs) if isinstance(node.op, FusedOp) else [node]


def is_elementwise(op: Op) -> bool:
    """Whether an op is pointwise, or made of pointwise steps and dropouts alone."""
    return op.elementwise if isinstance(op, FusedOp) else isinstance(op, Pointwise)
