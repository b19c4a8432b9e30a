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

    def outputs(self, halves: Mapping[int, DType]) -> list[Value] | None:
        """The values that replace the node's outputs; None if nothing changes. ``halves``: the numbers of the results
        that become 16 bits, and their dtypes."""
        loop, b = self.loop, self.b
        consts = dict(zip(loop.const_inputs, loop.consts))
        sequences = dict(zip(loop.sequence_inputs, loop.sequences))
        firsts = dict(zip(loop.carry_inputs, loop.carries))
        source_of = {source.value: source for source in loop.graph.inputs}
        carried: dict[Input, tuple[Input, DType]] = {}  # a new carry -> the carry of which it is the cast
        new: dict[Value, Value] = {}
        for each in loop.graph.nodes:
            dtype = _narrowed_to(each)
            source = source_of.get(each.inputs[0]) if dtype is not None else None
            if source is None or dtype is None:
                continue
            if source in consts:
                fresh = new_input("const", len(consts), each.out.type)
                consts[fresh] = self._cast(consts[source], dtype)
            elif source in sequences:
                fresh = new_input("x", len(sequences), each.out.type)
                sequences[fresh] = self._cast(sequences[source], dtype)
            else:
                fresh = new_input("carry", len(loop.carries) + len(carried), each.out.type)
                carried[fresh] = source, dtype
            new[each.out] = fresh.value
        if not new and not halves:
            return None
        nodes: list[Node] = []
        for each in loop.graph.nodes:
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
        casts = {
            (each.inputs[0], dtype): new.get(each.out, each.out)
            for each in loop.graph.nodes
            if (dtype := _narrowed_to(each)) is not None
        }

        def narrow(value: Value, dtype: DType) -> Value:
            """The cast of a value of the old body."""
            if (value, dtype) not in casts:
                made = b.node(OPS["cast"], new.get(value, value), dtype=dtype)
                nodes.append(made)
                casts[value, dtype] = made.out
            return casts[value, dtype]

        after = dict(loop.graph.updates)
        carries = {source: (firsts[source], new.get(after[source], after[source])) for source in loop.carry_inputs}
        for fresh, (source, dtype) in carried.items():
            carries[fresh] = self._cast(firsts[source], dtype), narrow(after[source], dtype)
        yields = [
            narrow(v, halves[i]) if i in halves else new.get(v, v) for i, v in enumerate(loop.graph.outputs.values())
        ]
        made = loop_node(b, consts, carries, sequences, yields, tuple(nodes), loop.count, loop.reverse)
        kept = len(loop.carries)
        return [*made.outputs[:kept], *made.outputs[kept + len(carried) :]]

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
