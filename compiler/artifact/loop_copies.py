"""The copies of a loop's carries between two steps, as few kernels as they can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import TensorType

_MOST_COPIES: Final = 8  # by one kernel


def grouped(copies: Sequence[tuple[int, int, TensorType]]) -> list[list[tuple[int, int, TensorType]]]:
    """Divides copies (source, target, type) into groups that one kernel can do: neighbours of one shape, none of which
    touches what another writes."""
    groups: list[list[tuple[int, int, TensorType]]] = []
    for source, target, type in copies:
        last = groups[-1] if groups else []
        touched = {each for a, b, _ in last for each in (a, b)}
        fits = bool(last) and last[0][2].shape == type.shape and len(last) < _MOST_COPIES
        if fits and target not in touched and source not in {b for _, b, _ in last}:
            last.append((source, target, type))
        else:
            groups.append([(source, target, type)])
    return groups


def copying(types: Sequence[TensorType], node: Node) -> Node:
    """The node that copies tensors of these types, all of one shape, at the place of a loop's node."""
    inputs = [Input(f"x{i}", Kind.DATA, type).value for i, type in enumerate(types)]
    if len(inputs) == 1:
        return Builder().at(node).node(OPS["stop_gradient"], *inputs)
    body = tuple(("stop_gradient", (i,), ()) for i in range(len(types)))
    results = tuple(range(len(types), 2 * len(types)))
    return Builder().at(node).node(OPS["fused"], *inputs, body=body, results=results)
