"""Removes zeros after the elements of a transform, and results that nothing reads; part of the pass ``transforms``.

Before, a sequence of 1024 elements as long as its convolution by a kernel::

    %1 = pad %0 {high=(0, 1024), ...} : f32[64, 2048]
    %2 = fourier %1, %1 {count=2048, outputs=2048, parts=1, ...} : f32[64, 2048]
    %3 = slice %2 {starts=(0, 0), stops=(64, 1024), ...} : f32[64, 1024]

After::

    %2 = fourier %0, %0 {count=2048, outputs=1024, parts=1, ...} : f32[64, 1024]

A product with a matrix then has a quarter of the multiplications. Gradients have the same shape: that of a slice is a
pad, and that of a pad a slice. A sum of fewer terms may be added in another order, so last bits may change.
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Graph, Node, Value, made_by
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.products.fourier import fourier
from dslc.compiler.ops.shape.slicing import slice_


def narrowed(graph: Graph) -> Graph:
    """The graph with such transforms; the same object if there are none. Linear in nodes and reads."""
    readers, roots = graph.readers(), set(graph.roots)

    def wanted(node: Node) -> int:
        """How many results are read."""
        outputs = int_attr(node.attrs, "outputs")
        if any(value in roots for value in node.outputs):
            return outputs
        reading = [reader for value in node.outputs for reader in readers.get(value, ())]
        axis = int_attr(node.attrs, "axis")
        return max((_last_read(reader, outputs, axis) for reader in reading), default=outputs)

    asked = {node.outputs: wanted(node) for node in graph.nodes if node.op is fourier}
    if not asked:
        return graph
    old = iter(graph.nodes)

    def rule(node: Node) -> Sequence[Value] | None:
        before = next(old)
        if node.op is not fourier:
            return None
        b, outputs = Builder().at(node, node.phase), asked[before.outputs]
        given = _given(b, node)
        if given is None and outputs == int_attr(node.attrs, "outputs"):
            return None
        return b.node(fourier, *(given or node.inputs), **{**node.attrs, "outputs": outputs}).outputs

    return graph.rewrite(rule)


def _last_read(reader: Node, outputs: int, axis: int) -> int:
    """The number of the last result that a node reads, plus one."""
    if reader.op is not slice_:
        return outputs
    stop, step = int_tuple(reader.attrs, "stops")[axis], int_tuple(reader.attrs, "steps")[axis]
    return stop if step > 0 and reader.types[0].ints[axis] else outputs


def _given(b: Builder, node: Node) -> list[Value] | None:
    """The inputs of a transform without zeros at their end, all of one length; None if no zeros can be removed."""
    axis = int_attr(node.attrs, "axis")
    found = [_without_zeros(b, value, axis) for value in node.inputs]
    values = [value for value in found if value is not None]
    same = len(values) == len(found) and len({value.type.shape for value in values}) == 1
    return values if same else None


def _without_zeros(b: Builder, value: Value, axis: int) -> Value | None:
    """The value without the zeros that a pad adds after the elements of the axis; None if no pad adds any. Between
    the pad and this value, ops may change signs or dtypes, or weight the elements."""
    made = value.producer
    if not isinstance(made, Node):
        return None
    if made.op.name == "pad":
        return made.inputs[0] if _pads_the_end(made, axis) else None
    if made.op.name in ("cast", "neg"):
        found = _without_zeros(b, made.inputs[0], axis)
        return None if found is None else b(made.op, found, **made.attrs)
    if made.op.name != "mul" or made.input_types[0] != value.type:
        return None
    weights, after = made_by(made.inputs[1], "literal"), (1,) * (value.type.rank - 1 - axis)
    if weights is None or weights.types[0].shape != (value.type.shape[axis], *after) or not _is_finite(weights):
        return None
    found = _without_zeros(b, made.inputs[0], axis)
    if found is None:
        return None
    sizes = (found.type.ints[axis], *after)
    return b(made.op, found, b(slice_, made.inputs[1], starts=(0,) * len(sizes), stops=sizes, steps=(1,) * len(sizes)))


def _pads_the_end(node: Node, axis: int) -> bool:
    """Whether a pad adds zeros after this axis alone."""
    low, high, interior = (int_tuple(node.attrs, name) for name in ("low", "high", "interior"))
    others = (*low, *high[:axis], *high[axis + 1 :], *interior)
    return node.attrs["value"] == 0 and not any(others) and node.input_types[0].ints[axis] > 0


def _is_finite(literal: Node) -> bool:
    values = literal.attrs["values"]
    assert isinstance(values, tuple)
    return all(isinstance(value, float) for value in values)  # others are written as text
