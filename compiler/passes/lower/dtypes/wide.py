"""The nodes of a 16-bit model that compute and store f32 by default.

Some ops ask for f32 (``Op.wide``), in three groups:

- ``position``: an error of the input moves an index or a phase (floor, sin, topk, a cast to an index). Elementwise ops
  and ops that only move elements, from which the input is computed, compute in f32, too. So does a product before
  them if it has few columns (a router, the angles of a transformation) or reads a coordinate, that is, a value computed
  from constants or data alone.
- ``exponent``: the op enlarges relative errors (exp, log, pow, softmax). The ops before it, as above, compute in f32 as
  long as nothing else reads their results.
- ``reduction``: sums of many elements (sum, mean, cumsum).

An elementwise op whose inputs are all such values stores f32, too, and so does a quotient whose divisor is one, such as
a weighted mean: 16 bits of a sum would move all that it divides in one direction. Each kernel computes in f32, rounding
once, at its result: f32 matters only for a tensor between two nodes. So a node that is alone, such as the mean before a
classifier, stays in 16 bits, and its kernel is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Origin, Phase, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.queries import values_of_weights

#: The groups, the strongest last, and why they need f32.
WHY: Final[Mapping[str, str]] = {
    "constant": "a constant that f32 nodes read",
    "result": "computed from f32 values",
    "reduction": "a sum of many elements",
    "exponent": "an exponent or a logarithm enlarges relative errors",
    "position": "an index or a phase depends on it",
}
_STRENGTH: Final = {name: number for number, name in enumerate(("", *WHY))}
#: Up to so many columns, an f32 product of H200 is bound by memory even if its factor is converted from 16 bits first:
#: 2 operations per column for 10 bytes of the factor, and 67 TFLOP/s by 4.8 TB/s are 14 operations per byte.
_COLUMNS: Final = 64
#: Integers that bf16 and f16 represent without an error: those of 8 bits.
_EXACT: Final = (DType.B1, DType.U8, DType.I8)


def wide(graph: Graph, fixed: Mapping[Origin, DType]) -> dict[Origin, str]:
    """The origins of these nodes, each with its group, a key of ``WHY``. ``graph``: with abstract floats. ``fixed``:
    the dtypes that the source asks for, which hold in any case."""
    return _Search(graph, fixed).found()


def in_train_section(node: Node) -> bool:
    return node.name == "train" or node.name.startswith("train.")


def from_weights(graph: Graph) -> set[Node]:
    """The nodes that compute something from weights alone, and those that only give or move what such nodes read."""
    fixed, readers, roots = values_of_weights(graph), graph.readers(), {*graph.roots}
    weights = {source.value for source in graph.inputs if source.kind in (Kind.PARAM, Kind.BUFFER)}
    for node in graph.nodes:
        if fixed.issuperset(node.outputs) and not weights.isdisjoint(node.inputs):
            weights.update(node.outputs)
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if not fixed.issuperset(node.outputs) or not roots.isdisjoint(node.outputs):
            continue
        if node.op.moves or weights.isdisjoint(node.outputs):
            if all(reader in found for value in node.outputs for reader in readers.get(value, ())):
                found.add(node)
        else:
            found.add(node)
    return found


class _Search:
    def __init__(self, graph: Graph, fixed: Mapping[Origin, DType]) -> None:
        self.graph = graph
        self.fixed = fixed
        forward = [n for n in graph.nodes if n.phase is Phase.FORWARD]
        self.nodes = [n for n in forward if not in_train_section(n)]
        self.readers: dict[Value, list[Node]] = {}
        for node in forward:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
        self.constants = self._computed_from(frozenset({Kind.CONSTANT}))
        self.coordinates = self._computed_from(frozenset({Kind.CONSTANT, Kind.DATA}))
        self.groups: dict[Node, str] = {n: "result" for n in self.nodes if fixed.get(_origin(n)) is DType.F32}

    def found(self) -> dict[Origin, str]:
        if not any(n.op.wide for n in self.nodes):
            return {}
        self._before()
        self._after()
        self._drop_mixed()
        self._drop_single()
        self._constants()
        found: dict[Origin, str] = {}
        for node, group in self.groups.items():
            if (origin := _origin(node)) not in self.fixed:
                found[origin] = max(found.get(origin, ""), group, key=_STRENGTH.__getitem__)
        return found

    def _computed_from(self, kinds: frozenset[Kind]) -> set[Value]:
        """The values computed from constants and inputs of these kinds alone, by ops that `_follows` accepts."""
        known = {i.value for i in self.graph.inputs if i.kind in kinds and i.value.type.dtype.is_float}
        for node in self.nodes:
            if (not node.inputs or _follows(node) or node.op.wide) and known.issuperset(node.inputs):
                known.update(node.outputs)
        return known

    def _before(self) -> None:
        """The ops that ask for f32, and those before them."""
        wanted: dict[Value, str] = {}
        for node in reversed(self.nodes):
            if _origin(node) in self.fixed or not _is_float(node):
                continue
            group = max((wanted.get(v, "") for v in node.outputs), key=_STRENGTH.__getitem__, default="")
            if node.op.name == "matmul" and group == "position":
                coordinate = not self.coordinates.isdisjoint(node.inputs)
                if coordinate or _is_narrow(node):
                    self.groups[node] = group
                if coordinate:
                    wanted.update(dict.fromkeys(node.inputs, group))
                continue
            if not (_follows(node) or node.op.wide):
                continue
            group = max(group, _asked(node), key=_STRENGTH.__getitem__)
            if not group:
                continue
            self.groups[node] = group
            for value in node.inputs:
                if group == "position" or (group == "exponent" and len(self.readers[value]) == 1):
                    wanted[value] = max(wanted.get(value, ""), group, key=_STRENGTH.__getitem__)

    def _after(self) -> None:
        """The elementwise ops that read only f32 values, and the quotients by one."""
        for node in self.nodes:
            if node in self.groups or _origin(node) in self.fixed or not _follows(node) or not _is_float(node):
                continue
            floats = [v for v in node.inputs if v.type.dtype is DType.FLOAT and v not in self.constants]
            floats = floats[-1:] if node.op.name == "div" and node.inputs[1] in floats else floats
            if floats and all(v.producer in self.groups for v in floats):
                self.groups[node] = "result"

    def _drop_mixed(self) -> None:
        """Drops the nodes of a call that also makes a node which stays in 16 bits, such as the product of a linear
        layer: a call has one dtype."""
        others = [n for n in self.nodes if n not in self.groups and n.inputs and _is_float(n)]
        stays = {_origin(n) for n in others if not _follows(n)}
        self.groups = {n: g for n, g in self.groups.items() if _origin(n) not in stays}

    def _drop_single(self) -> None:
        """Drops groups of connected nodes in which only one computes, unless it meets f32 tensors outside: data or a
        result of the model."""
        above = {node: node for node in self.groups}

        def top(node: Node) -> Node:
            while above[node] is not node:
                above[node] = above[above[node]]
                node = above[node]
            return node

        outside: dict[Node, int] = {}
        results = set(self.graph.outputs.values())
        for node in self.groups:
            ends = any(_is_data(v) for v in node.inputs)
            for value in node.outputs:
                ends |= value in results or any(in_train_section(r) for r in self.readers.get(value, ()))
            outside[node] = int(ends) + int(bool(node.inputs) and not node.op.moves)
            for value in node.inputs:
                if value.type.dtype is DType.FLOAT and value.producer in self.groups:
                    above[top(node)] = top(value.producer)
        counts: dict[Node, int] = {}
        for node, count in outside.items():
            counts[top(node)] = counts.get(top(node), 0) + count
        self.groups = {n: g for n, g in self.groups.items() if counts[top(n)] > 1}

    def _constants(self) -> None:
        """Constants have the dtype of the nodes that read them."""
        for node in reversed(self.nodes):
            readers = [r for v in node.outputs for r in self.readers.get(v, ())]
            if _is_float(node) and self.constants.issuperset(node.outputs) and any(r in self.groups for r in readers):
                self.groups.setdefault(node, "constant")


def _origin(node: Node) -> Origin:
    return node.name, node.span


def _asked(node: Node) -> str:
    """The group of an op that asks for f32. A cast asks if it is from or to integers that 16 bits may round."""
    if node.op.name == "cast" and not any(t.is_int and t not in _EXACT for t in _dtypes(node)):
        return ""
    return node.op.wide


def _follows(node: Node) -> bool:
    return isinstance(node.op, Pointwise) or node.op.moves


def _is_narrow(product: Node) -> bool:
    columns = product.types[0].shape[-1:]
    return all(isinstance(size, int) and size <= _COLUMNS for size in columns)


def _dtypes(node: Node) -> list[DType]:
    return [t.dtype for t in (*node.input_types, *node.types)]


def _is_float(node: Node) -> bool:
    return DType.FLOAT in _dtypes(node)


def _is_data(value: Value) -> bool:
    source = value.producer
    return isinstance(source, Input) and source.kind is Kind.DATA and value.type.dtype is DType.FLOAT
