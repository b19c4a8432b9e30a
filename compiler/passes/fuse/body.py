"""Bodies of fused nodes: their steps, and their numbers when nodes are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ir.op import Pointwise

_NEIGHBOURS: Final = 4  # elements of an f32 vector
_BODIES: Final = ("fused", "fused_sums")  # nodes with steps
#: Most bytes of a tensor that takes next to no time to read again, and less to compute than a kernel to launch.
SMALL_BYTES: Final = 1 << 16


def is_small(value: Value) -> bool:
    """Whether moving the value takes next to no time."""
    return value.type.bytes <= SMALL_BYTES


def is_pointwise(node: Node) -> bool:
    """Whether a node is a pointwise op, or a fused one, without random draws."""
    return not draws(node) if node.op.name == "fused" else isinstance(node.op, Pointwise) and not node.op.random


def is_chain(node: Node) -> bool:
    """Whether a node is pointwise with one result, possibly with random draws."""
    return len(node.outputs) == 1 and node.op.name != "fused_sums" and (is_pointwise(node) or draws(node))


def draws(node: Node) -> bool:
    """Whether a node is a dropout, or has one among its steps."""
    return node.op.name == "dropout" or (node.op.name in _BODIES and "dropout" in names_of(node))


def has_neighbours(value: Value) -> bool:
    """Whether a reduction kernel may draw random numbers for this value: one draw serves several elements, so a thread
    needs consecutive elements of a row."""
    return value.type.rank > 0 and value.type.ints[-1] % _NEIGHBOURS == 0


def names_of(node: Node) -> list[str]:
    """The ops of a node's steps."""
    return [step[0] for step in body_of(node)]  # type: ignore[index,misc]


def body_of(node: Node) -> tuple[Attr, ...]:
    """The steps of a node: its body, or the node itself as one step."""
    if node.op.name in _BODIES:
        body = node.attrs["body"]
        assert isinstance(body, tuple)
        return body
    return ((node.op.name, tuple(range(len(node.inputs))), tuple(sorted(node.attrs.items()))),)


def renumbered(body: tuple[Attr, ...], inputs: Sequence[int], offset: int) -> list[Attr]:
    """Steps with renumbered inputs, whose own results count from ``offset``."""
    found: list[Attr] = []
    for step in body:
        assert isinstance(step, tuple) and isinstance(step[1], tuple)
        name, read, attrs = step
        found.append((name, tuple(placed(i, inputs, offset) for i in read), attrs))  # type: ignore[union-attr]
    return found


def placed(number: Attr, inputs: Sequence[int], offset: int) -> int:
    assert isinstance(number, int)
    return inputs[number] if number < len(inputs) else offset + number - len(inputs)
