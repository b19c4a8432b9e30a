"""Turns slices whose elements follow one another in memory into views: no kernel copies them.

Before::

    %2 = slice %dy {starts=(0, 0), stops=(64, 512), ...} : bf16[64, 512]  # concat backward
    %3 = slice %dy {starts=(64, 0), stops=(96, 512), ...} : bf16[32, 512]  # concat backward

After::

    %2 = piece %dy {first=0, shape=(64, 512)} : bf16[64, 512]  # concat backward
    %3 = piece %dy {first=32768, shape=(32, 512)} : bf16[32, 512]  # concat backward

Such are parts along the first axis: of `split`, of a subscript, of the gradient of `concat` and `stack`. Kernels read
aligned addresses, so a piece that one reads begins at a multiple of ``ALIGNMENT`` bytes; a piece that is only a result
may begin anywhere. The tensor then lives as long as its pieces, so they must together be as large as it is, unless it
is small, or in memory in any case as an input. The new value of a state stays a copy. The pass follows those that let
readers read a slice in place. Results keep their bits. Linear in nodes and reads.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.build import SHARD
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value
from dslc.compiler.ir.program import ALIGNMENT
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.boxes import Box, lines
from dslc.compiler.ops.compound.piece import piece
from dslc.compiler.passes.fuse.pointwise.slice_reads import ORDER
from dslc.compiler.passes.rebuild import reading

_SMALL: Final = 1 << 18  # bytes of a tensor that may live longer for the sake of a piece


def pieces(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""

    def as_piece(node: Node, first: int) -> Value:
        return node.replaced(op=piece, attrs={"first": first, "shape": node.types[0].ints}).out

    return reading(graph, {node.out: as_piece(node, first) for node, first in _found(graph).items()})


def _found(graph: Graph) -> dict[Node, int]:
    """The slices that become pieces, and the first element of each."""
    uses = _Uses(graph)
    found: dict[Node, int] = {}
    places: dict[Value, tuple[Value, int]] = {}  # of a view: the value whose bytes it has, and the first of them
    of: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        first = _first(node)
        if first is None and not node.op.view:
            continue
        source, at = places.get(node.inputs[0], (node.inputs[0], 0))
        if first is None:
            places[node.out] = source, at + node.op.first_byte(node)
        elif uses.allow(node, source, at + first * node.types[0].dtype.itemsize):
            found[node] = first
            places[node.out] = source, at + first * node.types[0].dtype.itemsize
            of.setdefault(source, []).append(node)
    for source, nodes in of.items():
        if not uses.are_worth_it(source, nodes):
            for node in nodes:
                del found[node]
    return found


def _first(node: Node) -> int | None:
    """The number of the first element of a slice whose elements follow one another; None for all else."""
    if node.op.name != "slice" or set(int_tuple(node.attrs, "steps")) != {1} or not node.types[0].bytes:
        return None
    first, axes = lines(Box(int_tuple(node.attrs, "starts"), node.types[0].ints), node.input_types[0].ints)
    return first if len(axes) == 1 else None


class _Uses:
    """Who reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._readers = graph.readers()
        self._updates = {value for _, value in graph.updates}
        self._shards = {value for name, value in graph.outputs.items() if name.startswith(SHARD)}
        self._roots = set(graph.roots)

    def allow(self, node: Node, source: Value, first: int) -> bool:
        """Whether a slice may be a view of ``source`` from its byte ``first`` on."""
        ends = self._ends(node.out)
        if not self._shards.isdisjoint(ends) or not self._updates.isdisjoint(ends):
            return False
        kept = not self._roots.isdisjoint(ends)
        if kept and isinstance(source.producer, Input) and source.producer.kind is not Kind.DATA:
            return False  # a result of its own copies these
        return first % ALIGNMENT == 0 or not self._last_readers(ends)

    def are_worth_it(self, source: Value, nodes: list[Node]) -> bool:
        """Whether the tensor is in memory as long as its pieces in any case, or takes no more bytes than those that are
        needed in a later phase than it, or, if none is and nothing else reads it, than all."""
        made = source.producer
        if isinstance(made, Input) or source in self._roots or source.type.bytes <= _SMALL:
            return True
        others = [ORDER[reader.phase] for reader in self._last_readers(self._ends(source)) if reader not in nodes]
        last = max(others, default=ORDER[made.phase])
        longer = [node for node in nodes if self._until(node) > last]
        bytes_ = sum(node.types[0].bytes for node in longer or nodes)
        return (not longer and bool(others)) or bytes_ >= source.type.bytes

    def _until(self, node: Node) -> int:
        """The order of the last phase that needs a slice; of a result, after all phases."""
        ends = self._ends(node.out)
        if not self._roots.isdisjoint(ends):
            return len(ORDER)
        return max((ORDER[reader.phase] for reader in self._last_readers(ends)), default=0)

    def _ends(self, value: Value) -> list[Value]:
        """The value and what views of it are."""
        found = [value]
        for each in found:
            found += [reader.out for reader in self._readers.get(each, ()) if reader.op.view]
        return found

    def _last_readers(self, ends: list[Value]) -> list[Node]:
        return [reader for value in ends for reader in self._readers.get(value, ()) if not reader.op.view]
