"""Reads and scatters whole rows where an index was repeated for each element. Rules of ``simplify``.

Before::

    %1 = reshape %ids {shape=(100, 1)} : i32[100, 1]  # spread forward
    %2 = expand %1 {shape=(100, 64)} : i32[100, 64]  # spread forward
    %3 = scatter_add %x, %2 {axis=0, count=9} : f32[9, 64]  # spread forward

After::

    %1 = scatter_rows_add %x, %ids {count=9} : f32[9, 64]  # spread forward

An index that is the same along all axes but that of the gather or scatter becomes a vector; one that is the same along
the axes after it loses them. Kernels of both combine what has one index in its order, so results keep their bits.
"""

from __future__ import annotations

from math import prod

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_attr


def gathered_rows(node: Node) -> Node | None:
    """A gather of parts or rows."""
    (x, index), axis, b = node.inputs, int_attr(node.attrs, "axis"), _at(node)
    vector = _vector(b, index, axis) if index.type.rank > 1 else index
    if vector is not None:
        return b.node(OPS["take"], x, vector, axis=axis) if axis else b.node(OPS["gather_rows"], x, vector)
    rows = _rows(b, index, axis)
    return None if rows is None else b.node(node.op, x, rows, **node.attrs)


def added_rows(node: Node) -> Node | Value | None:
    """A scatter_add of parts or rows."""
    (src, index), axis, b = node.inputs, int_attr(node.attrs, "axis"), _at(node)
    vector = _vector(b, index, axis) if index.type.rank > 1 else index
    if vector is None:
        rows = _rows(b, index, axis)
        return None if rows is None else b.node(node.op, src, rows, **node.attrs)
    count = int_attr(node.attrs, "count")
    if not axis:
        return b.node(OPS["scatter_rows_add"], src, vector, count=count)
    rest = tuple(range(src.type.rank))
    front = b(OPS["transpose"], src, perm=(axis, *rest[:axis], *rest[axis + 1 :]))
    table = b(OPS["scatter_rows_add"], front, vector, count=count)
    return b.node(OPS["transpose"], table, perm=(*rest[1 : axis + 1], 0, *rest[axis + 1 :]))


def reduced_rows(node: Node) -> Node | None:
    """A scatter_reduce of rows."""
    x, src, index = node.inputs
    b = _at(node)
    rows = _rows(b, index, int_attr(node.attrs, "axis"))
    return None if rows is None else b.node(node.op, x, src, rows, **node.attrs)


def _source(index: Value) -> tuple[Value, tuple[int, ...]] | None:
    """The value that was expanded to the index, and its sizes along the axes of the index."""
    made = index.producer
    if not isinstance(made, Node) or made.op.name != "expand":
        return None
    source = made.inputs[0]
    return source, (*(1 for _ in range(index.type.rank - source.type.rank)), *source.type.ints)


def _vector(b: Builder, index: Value, axis: int) -> Value | None:
    """The index along the axis, if it is the same along all others."""
    found = _source(index)
    if found is None or prod(found[1]) != found[1][axis]:
        return None
    vector = b(OPS["reshape"], found[0], shape=(found[1][axis],))
    count = index.type.ints[axis]
    return vector if found[1][axis] == count else b(OPS["expand"], vector, shape=(count,))


def _rows(b: Builder, index: Value, axis: int) -> Value | None:
    """The index of rows, if it has axes after the axis and is the same along them."""
    found = _source(index)
    if found is None or axis + 1 == index.type.rank or prod(found[1][axis + 1 :]) != 1:
        return None
    rows = b(OPS["reshape"], found[0], shape=found[1][: axis + 1])
    shape = index.type.ints[: axis + 1]
    return rows if found[1][: axis + 1] == shape else b(OPS["expand"], rows, shape=shape)


def _at(node: Node) -> Builder:
    return Builder().at(node, node.phase)
