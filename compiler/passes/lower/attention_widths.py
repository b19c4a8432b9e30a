"""Attention whose values have another number of features than its keys, with features of zero added for kernels in
tiles.

A score is a sum over features, so zeros change none; a feature of zero of all values is zero in the result. All have
the greater number of features then, rounded up to a multiple of 8, of which rows are copied fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ops.compound.strided_attention import fits_tiles
from dslc.compiler.ops.products.attention import sdpa

_MULTIPLE: Final = 8  # of the number of features
_SCORES: Final = 8  # elements of 16 bits that are moved for each score that lies in memory
#: Of an attention, and of its gradient: the inputs and the outputs that have features; the others have none.
_INPUTS: Final = {"sdpa": (0, 1, 2), "sdpa_grad": (0, 1, 2, 3, 5)}
_OUTPUTS: Final = {"sdpa": (0,), "sdpa_grad": (0, 1, 2)}


def in_tiles(node: Node) -> Sequence[Value] | None:
    """The results of an ``sdpa`` or its gradient, computed in tiles with features of zero; None if keys and values
    have the same number, if it is not in tiles then, and if that moves more than the scores, as for a single query."""
    q, _, v = node.input_types[:3]
    width = -(-max(q.ints[-1], v.ints[-1]) // _MULTIPLE) * _MULTIPLE
    if q.ints[-1] == v.ints[-1] or not _pays(node, width):
        return None
    b = Builder().at(node, node.phase)
    inputs = [_wide(b, x, width) if n in _INPUTS[node.op.name] else x for n, x in enumerate(node.inputs)]
    found = b.node(node.op, *inputs, **node.attrs)
    if not fits_tiles(found):
        return None
    narrow = _OUTPUTS[node.op.name]
    return [_cut(b, x, old.ints) if n in narrow else x for n, (x, old) in enumerate(zip(found.outputs, node.types))]


def _pays(node: Node, width: int) -> bool:
    """Whether the tensors with added features are fewer bytes than the scores."""
    q, k = node.input_types[:2]
    places = _INPUTS[node.op.name]
    types = [*(node.input_types[n] for n in places), *(node.types[n] for n in _OUTPUTS[node.op.name])]
    moved = sum(prod(t.ints[:-1]) * (t.ints[-1] + width) for t in types if t.ints[-1] != width)
    return moved < _SCORES * prod(q.ints[:-1]) * k.ints[-2]


def _wide(b: Builder, x: Value, width: int) -> Value:
    """The value with features of zero; the result of an attention as that with zeros gave it."""
    made, rank, more = x.producer, x.type.rank, width - x.type.ints[-1]
    if not more:
        return x
    if isinstance(made, Node) and made.op.name == "slice" and made.inputs[0].type.ints == (*x.type.ints[:-1], width):
        source = made.inputs[0].producer
        if isinstance(source, Node) and source.op is sdpa:
            return made.inputs[0]
    zeros = (0,) * rank
    return b(OPS["pad"], x, low=zeros, high=(*zeros[1:], more), interior=zeros, value=0.0)


def _cut(b: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """The first features."""
    rank = len(shape)
    if x.type.ints == shape:
        return x
    return b(OPS["slice"], x, starts=(0,) * rank, stops=shape, steps=(1,) * rank)
