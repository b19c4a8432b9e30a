"""Lets max pools whose last windows reach over the end of an image read the image itself, not a longer copy of it.

Before, from ``maxpool(x, 3, stride=2, ceil_mode=true)``, or from a border of minus infinity in the source::

    %1 = pad %0 {high=(0, 0, 1, 1), low=(0, 0, 0, 0), value=-inf, ...} : f32[8, 64, 110, 110]
    %2, %3 = maxpool %1 {k=(3, 3), pad=(0, 0), stride=(2, 2)} : f32[8, 64, 54, 54], u8[8, 64, 54, 54]
    %4 = maxpool_grad %dy, %3 {size=(110, 110), ...} : f32[8, 64, 110, 110]
    %5 = slice %4 {starts=(0, 0, 0, 0), stops=(8, 64, 109, 109), ...} : f32[8, 64, 109, 109]

After::

    %1, %2 = maxpool %0 {k=(3, 3), more=(1, 1), pad=(0, 0), stride=(2, 2)} : f32[8, 64, 54, 54], u8[8, 64, 54, 54]
    %3 = maxpool_grad %dy, %2 {more=(1, 1), size=(109, 109), ...} : f32[8, 64, 109, 109]

Every window must have an element of the image, and the border must be as long at the end as at the begin, or longer.
The pass is for GPUs, whose kernels check for each place of a window whether it is in the image. Results keep their
bits, with one exception: a window that has only minus infinity selects an element of the image. Linear in nodes and
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.shape.slicing import pad, slice_
from dslc.compiler.ops.spatial.pool import lacking, maxpool, maxpool_grad
from dslc.compiler.passes.rebuild import reading


def partial_windows(graph: Graph) -> Graph:
    """The graph with such pools; the same object if there are none."""
    readers, roots = graph.readers(), set(graph.roots)
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        made, found = node.inputs[0].producer if node.inputs else None, None
        if isinstance(made, Node) and node.op is maxpool and made.op is pad:
            found = _pooled(node, made)
        elif isinstance(made, Node) and node.op is slice_ and made.op is maxpool_grad:
            alone = readers[made.out] == [node] and made.out not in roots
            found = _spread(node, made) if alone else None
        if found is not None:
            instead.update(zip(node.outputs, found.outputs))
    return reading(graph, instead)


def _pooled(node: Node, border: Node) -> Node | None:
    """The pool of the image without its border; None if a window may have no element of it."""
    low, high, gaps = (int_tuple(border.attrs, name) for name in ("low", "high", "interior"))
    [x] = border.inputs
    if border.attrs["value"] != -inf or any((*gaps, *low[:2], *high[:2])):
        return None
    geometry = _without(node, low[2:], high[2:])
    if geometry is None:
        return None
    sizes = zip(x.type.ints[2:], node.types[0].ints[2:], int_tuple(node.attrs, "stride"), geometry[0])
    if any((count - 1) * step - before >= size for size, count, step, before in sizes):
        return None
    attrs = _attrs(node, geometry)
    return Builder().at(node, node.phase).node(maxpool, x, **attrs)


def _spread(node: Node, grad: Node) -> Node | None:
    """The gradient of the image without its border, which a slice has left out; None for another slice."""
    starts, stops, steps = (int_tuple(node.attrs, name) for name in ("starts", "stops", "steps"))
    whole = node.input_types[0].ints
    if {*steps} != {1} or starts[:2] != (0, 0) or stops[:2] != whole[:2]:
        return None
    high = tuple(size - stop for size, stop in zip(whole, stops))
    geometry = _without(grad, starts[2:], high[2:])
    if geometry is None:
        return None
    attrs = {**_attrs(grad, geometry), "size": node.types[0].shape[2:]}
    return Builder().at(grad, grad.phase).node(maxpool_grad, *grad.inputs, **attrs)


def _without(pool: Node, low: Sequence[int], high: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """``pad`` and ``more`` of a pool that has the border of its operand itself; None if it cannot have it."""
    before = tuple(a + b for a, b in zip(int_tuple(pool.attrs, "pad"), low))
    more = tuple(m + z - a for m, z, a in zip(lacking(pool.attrs), high, low))
    fits = all(2 * edge <= k for edge, k in zip(before, int_tuple(pool.attrs, "k")))
    return (before, more) if fits and min(more) >= 0 else None


def _attrs(pool: Node, geometry: tuple[tuple[int, ...], tuple[int, ...]]) -> dict[str, Attr]:
    before, more = geometry
    return {**pool.attrs, "pad": before, "more": more}
