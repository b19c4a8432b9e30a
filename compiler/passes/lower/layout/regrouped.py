"""Transposes of the parts of axes, such as a channel shuffle or `pixel_shuffle`, of images with channels last.

Before, with ``%x`` of bf16[8, 64, 14, 14] computed with channels last as ``%l`` of bf16[8, 14, 14, 64]::

    %1 = reshape %x : bf16[8, 2, 32, 14, 14]
    %2 = transpose %1 {perm=(0, 2, 1, 3, 4)} : bf16[8, 32, 2, 14, 14]
    %3 = reshape %2 : bf16[8, 64, 14, 14]

After, ``%3`` with channels last::

    %1 = reshape %l : bf16[8, 14, 14, 2, 32]
    %2 = transpose %1 {perm=(0, 1, 2, 4, 3)} : bf16[8, 14, 14, 32, 2]
    %3 = reshape %2 : bf16[8, 14, 14, 64]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.spatial.channels_last import to_last
from dslc.compiler.passes.lower.layout.axis_order import Perm

Runs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Parts:
    """A transpose of the parts of axes. ``source``: the value whose axes are split; ``sizes``: those of the parts;
    ``runs``: for each axis of the source the numbers of its parts; ``perm``: the transpose of the parts."""

    source: Value
    sizes: tuple[int, ...]
    runs: Runs
    perm: Perm

    def of_last(self, b: Builder, last: Value, perm: Sequence[int]) -> Value:
        """The parts in the order of ``perm``, from the source with channels last."""
        order = [part for axis in to_last(len(self.runs)) for part in self.runs[axis]]
        split = b(OPS["reshape"], last, shape=tuple(self.sizes[part] for part in order))
        return b(OPS["transpose"], split, perm=tuple(order.index(part) for part in perm))


def split_parts(node: Node) -> Parts | None:
    """What a transpose of a reshape does if the reshape only splits axes; None for another node."""
    split = node.inputs[0].producer if node.op.name == "transpose" else None
    if not isinstance(split, Node) or split.op.name != "reshape":
        return None
    source, sizes = split.inputs[0], split.types[0].ints
    runs = _runs(sizes, source.type.ints)
    return None if runs is None else Parts(source, sizes, runs, int_tuple(node.attrs, "perm"))


def merged_last(b: Builder, node: Node, parts: Parts, last: Value) -> Value | None:
    """The result, with channels last, of a reshape of the transposed ``parts``, from their source with channels last.
    None if the reshape does more than to merge parts, or its result has another rank than the source."""
    sizes = [parts.sizes[part] for part in parts.perm]
    shape = node.types[0].ints
    runs = _runs(sizes, shape) if len(shape) == len(parts.runs) else None
    if runs is None:
        return None
    turned = to_last(len(shape))
    perm = [parts.perm[place] for axis in turned for place in runs[axis]]
    return b(OPS["reshape"], parts.of_last(b, last, perm), shape=tuple(shape[axis] for axis in turned))


def _runs(parts: Sequence[int], axes: Sequence[int]) -> Runs | None:
    """For each axis the numbers of its parts, if the axes are products of parts that follow one another."""
    found: list[tuple[int, ...]] = []
    begin = 0
    for number, size in enumerate(axes):
        end = begin + 1
        while end < len(parts) and prod(parts[begin:end]) < size:
            end += 1
        if number == len(axes) - 1:
            end = len(parts)
        if begin >= len(parts) or prod(parts[begin:end]) != size:
            return None
        found.append(tuple(range(begin, end)))
        begin = end
    return tuple(found)
