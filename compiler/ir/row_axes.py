"""Axes of a batch's rows that ``Op.rows`` does not know: those of indices of a row's own elements, as in
``x[arange(B), ids]``, and of rows that alternate, as in the products ``[T*B, D]`` of a loop's sequence."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Pointwise

#: Ops that keep the values of indices.
_KEEP: Final = frozenset({"reshape", "expand", "transpose"})
#: Ops that compute each element of an axis of rows alone, besides pointwise ones: a product's left side.
_ALONE: Final = frozenset({"matmul"})


class Own(int):
    """The axis of rows of a tensor of indices: those of row i are i*block to (i + 1)*block - 1, or -1."""

    block: int

    def __new__(cls, axis: int, block: int) -> Own:
        own = super().__new__(cls, axis)
        own.block = block
        return own


class Alternating(int):
    """An axis whose element k belongs to row ``k // block % count``."""

    block: int

    def __new__(cls, axis: int, block: int) -> Alternating:
        found = super().__new__(cls, axis)
        found.block = block
        return found


Axes = tuple[int | None, ...]


def plain(axis: int | None) -> bool:
    """True if each row is a contiguous block along the axis, or there are no rows."""
    return not isinstance(axis, Own | Alternating)


def row_axes(node: Node, axes: Sequence[int | None], count: int) -> Axes | None:
    """``Op.rows_of`` with these axes, too."""
    if all(map(plain, axes)):
        found = node.op.rows_of(node, axes, count)
        if found is None and node.op.name == "reshape" and axes[0] is not None:
            return _reshaped(node, axes[0], node.input_types[0].ints[axes[0]] // count, count)
        return found
    if node.op.name == "scan":
        return node.op.rows_of(node, axes, count)
    if any(isinstance(axis, Own) for axis in axes):
        return _own(node, axes, count)
    return _alternating(node, axes, count)


def _own(node: Node, axes: Sequence[int | None], count: int) -> Axes | None:
    """None if a node uses own indices for anything but to read the elements of rows."""
    match node.op.name:
        case name if name in _KEEP:
            [own] = axes
            assert isinstance(own, Own)
            found = node.op.rows_of(node, [int(own)], count)
            return None if found is None or found[0] is None else (Own(found[0], own.block),)
        case "joint_index":  # of element [i, j] of a matrix whose row i belongs to the batch's row i // block
            first, second = axes
            if not isinstance(first, Own) or not plain(second) or node.attrs["rows"] != count * first.block:
                return None
            found, columns = node.op.rows_of(node, [int(first), second], count), node.attrs["columns"]
            if found is None or found[0] is None or not isinstance(columns, int):
                return None
            return (Own(found[0], first.block * columns),)
        case "gather_rows" | "take":
            (table, own), axis = axes, node.attrs.get("axis", 0)
            if not isinstance(own, Own) or not plain(table) or table is None or table != axis:
                return None
            return (table + int(own),) if node.input_types[0].shape[table] == count * own.block else None
    return None


def _alternating(node: Node, axes: Sequence[int | None], count: int) -> Axes | None:
    first = next(axis for axis in axes if isinstance(axis, Alternating))
    blocks = {axis.block for axis in axes if isinstance(axis, Alternating)}
    if len(blocks) > 1 or any(axis is not None and plain(axis) for axis in axes):
        return None
    if isinstance(node.op, Pointwise) or (node.op.name in _ALONE and axes[1] is None):
        found = node.op.rows_of(node, [axis if axis is None else int(axis) for axis in axes], count)
        return None if found is None or found[0] is None else (Alternating(found[0], first.block),)
    return _reshaped(node, int(first), first.block, count) if node.op.name == "reshape" else None


def _reshaped(node: Node, axis: int, block: int, count: int) -> Axes | None:
    """Of a ``reshape`` of an axis whose element k belongs to row ``k // block % count``."""
    run = block * prod(node.input_types[0].ints[axis + 1 :])  # elements of a row that follow one another
    sizes = node.types[0].ints
    inner = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    likely = [(at, run // inner[at]) for at in range(len(sizes)) if inner[at] and run % inner[at] == 0]
    for at, size in likely:
        if sizes[at] == count * size:
            return (at,)
    return next(((Alternating(at, size),) for at, size in likely if size and sizes[at] % (count * size) == 0), None)
