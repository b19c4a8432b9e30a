"""Takes casts to 16 bits out of loops.

Before::

    %4, %5 = scan %w, %h, %x {consts=1, count=35, ...} : f32[20, 64], f32[35, 20, 64]
      %3 = cast %0 {dtype=bf16} : bf16[64, 64]  # of the constant
      %4 = cast %1 {dtype=bf16} : bf16[20, 64]  # of the carry
      ...
      output y.0 = %9
      update carry.0 = %9
    %6 = cast %5 {dtype=bf16} : bf16[35, 20, 64]

After::

    %4 = cast %w {dtype=bf16} : bf16[64, 64]
    %5 = cast %h {dtype=bf16} : bf16[20, 64]
    %6, %7, %8 = scan %4, %h, %5, %x ... : f32[20, 64], bf16[20, 64], bf16[35, 20, 64]
      ...
      %9 = cast %8 {dtype=bf16} : bf16[20, 64]
      output y.0 = %9
      update carry.0 = %8
      update carry.1 = %9

A constant and a sequence are cast before the loop, and a result that is only read as 16 bits leaves it so. A carry is
cast when it gets its value, by the kernel that computes it, into a carry of its own. A cast of joined tensors becomes
casts of each. ``prune_loops.py`` removes unused values afterwards, such as the carry itself. Each value is rounded
once, as before, so bits stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.compiler.ir.graph import Graph, Input, Node, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.loops.prune_loops import prune_loops


def half_loops(graph: Graph) -> Graph:
    """The graph with such loops; the same object if nothing changes. Idempotent."""
    while True:
        changed = _once(prune_loops(graph))
        if changed is graph:
            return graph
        graph = changed


def _once(graph: Graph) -> Graph:
    """Changes each loop with respect to the present readers of its results."""
    if not any(node.op is scan for node in graph.nodes):
        return graph
    readers, roots = graph.readers(), set(graph.roots)
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.outputs[0] in new:  # the cast of a result
            continue
        current = node.reading(new)
        if _narrowed_to(node) is not None and (whole := _widened(current.inputs[0], node.types[0].dtype)) is not None:
            new[node.out] = whole
        elif node.op is scan:
            carries = len(Loop.of(node).carries)
            halves = {
                i: dtype
                for i, v in enumerate(node.outputs[carries:])
                if v not in roots and (dtype := _only_as(readers.get(v, []))) is not None
            }
            found = _Halved(current).outputs(halves)
            if found is None:
                new.update((old, v) for old, v in zip(node.outputs, current.outputs) if old is not v)
                continue
            new.update(zip(node.outputs, found))
            for i in halves:
                new.update((reader.out, found[carries + i]) for reader in readers[node.outputs[carries + i]])
        elif current is not node:
            new.update(zip(node.outputs, current.outputs))
    return graph.replace_values(new) if new else graph


def _only_as(readers: Sequence[Node]) -> DType | None:
    """The 16-bit dtype as which a value is only read."""
    found = {_narrowed_to(node) for node in readers}
    return found.pop() if len(found) == 1 else None


def _narrowed_to(node: Node) -> DType | None:
    """The dtype of a cast to 16 bits; None for other nodes."""
    return node.types[0].dtype if node.op.name == "cast" and node.types[0].dtype.is_half else None


def _widened(value: Value, dtype: DType) -> Value | None:
    """The value of this dtype that was widened for a loop."""
    made = value.producer
    found = isinstance(made, Node) and made.op.name == "cast" and made.input_types[0].dtype is dtype
    return made.inputs[0] if found and isinstance(made, Node) else None


class _Halved:
    """A loop, whose casts become inputs of the body: ``new``: a cast inside, or a former input -> its value."""

    def __init__(self, node: Node) -> None:
        self.node, self.loop = node, Loop.of(node)
        self.b = Builder().at(node, node.phase)
        self.consts = dict(zip(self.loop.const_inputs, self.loop.consts))
        self.sequences = dict(zip(self.loop.sequence_inputs, self.loop.sequences))
        self.carried: dict[Input, tuple[Input, DType]] = {}  # a new carry -> the carry of which it is the cast
        self.new: dict[Value, Value] = {}

    def outputs(self, halves: Mapping[int, DType]) -> list[Value] | None:
        """The values that replace the node's outputs; None if nothing changes. ``halves``: the numbers of the results
        that become 16 bits, and their dtypes."""
        loop, new = self.loop, self.new
        self._take_casts()
        if not new and not halves:
            return None
        nodes = self._nodes()
        casts = {
            (each.inputs[0], dtype): new.get(each.out, each.out)
            for each in loop.graph.nodes
            if (dtype := _narrowed_to(each)) is not None
        }

        def narrow(value: Value, dtype: DType) -> Value:
            """The cast of a value of the old body."""
            if (value, dtype) not in casts:
                made = self.b.node(OPS["cast"], new.get(value, value), dtype=dtype)
                nodes.append(made)
                casts[value, dtype] = made.out
            return casts[value, dtype]

        after, firsts = dict(loop.graph.updates), dict(zip(loop.carry_inputs, loop.carries))
        carries = {source: (firsts[source], new.get(after[source], after[source])) for source in loop.carry_inputs}
        for fresh, (source, dtype) in self.carried.items():
            carries[fresh] = self._cast(firsts[source], dtype), narrow(after[source], dtype)
        yields = [
            narrow(v, halves[i]) if i in halves else new.get(v, v) for i, v in enumerate(loop.graph.outputs.values())
        ]
        made = loop_node(self.b, self.consts, carries, self.sequences, yields, tuple(nodes), loop.count, loop.reverse)
        kept = len(loop.carries)
        return [*made.outputs[:kept], *made.outputs[kept + len(self.carried) :]]

    def _take_casts(self) -> None:
        """Makes an input of the body of each cast of an input."""
        loop = self.loop
        source_of = {source.value: source for source in loop.graph.inputs}
        for each in loop.graph.nodes:
            dtype = _narrowed_to(each)
            source = source_of.get(each.inputs[0]) if dtype is not None else None
            if source is None or dtype is None:
                continue
            if source in self.consts:
                fresh = new_input("const", len(self.consts), each.out.type)
                self.consts[fresh] = self._cast(self.consts[source], dtype)
            elif source in self.sequences:
                fresh = new_input("x", len(self.sequences), each.out.type)
                self.sequences[fresh] = self._cast(self.sequences[source], dtype)
            else:
                fresh = new_input("carry", len(loop.carries) + len(self.carried), each.out.type)
                self.carried[fresh] = source, dtype
            self.new[each.out] = fresh.value

    def _nodes(self) -> list[Node]:
        """The other nodes of the body, with the new inputs."""
        new, nodes = self.new, list[Node]()
        for each in self.loop.graph.nodes:
            if each.outputs[0] in new:
                continue
            if (parts := self._parts(each)) is not None:
                nodes += [part.reading(new) for part in parts[:-1]]
                each, joined = parts[-1].with_inputs(tuple(n.out for n in nodes[-len(parts) + 1 :])), each
                nodes.append(each)
                new[joined.out] = each.out
                continue
            nodes.append(each.reading(new))
            new.update((old, v) for old, v in zip(each.outputs, nodes[-1].outputs) if old is not v)
        return nodes

    def _parts(self, node: Node) -> list[Node] | None:
        """For a cast of a concat: the casts of its inputs, then the concat of these; None for other nodes."""
        joined = node.inputs[0].producer if node.inputs and _narrowed_to(node) is not None else None
        if not isinstance(joined, Node) or joined.op.name != "concat":
            return None
        b = Builder().at(node, node.phase)
        casts = [b.node(OPS["cast"], v, dtype=node.types[0].dtype) for v in joined.inputs]
        return [*casts, joined.replaced(inputs=tuple(c.out for c in casts), types=node.types)]

    def _cast(self, value: Value, dtype: DType) -> Value:
        """Outside of the loop."""
        return _widened(value, dtype) or self.b(OPS["cast"], value, dtype=dtype)
