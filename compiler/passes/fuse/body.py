"""Bodies of fused nodes: their steps, bodies of nodes that are merged, and producers inside their readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from dslc.compiler.ir.graph import Attr, Graph, Node, Value, origins_of
from dslc.compiler.ir.op import OPS, Op, Pointwise
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.fused import BITS, FusedOp, Step, fused, results_of, steps
from dslc.compiler.ops.compound.fused_rows import fused_rows, is_core
from dslc.compiler.ops.compound.fused_sums import FusedSums, fused_sums

_NEIGHBOURS: Final = 4  # elements of an f32 vector
_NOTHING: Final[Mapping[Value, Value]] = MappingProxyType({})


def is_pointwise(node: Node) -> bool:
    """Whether a node is a pointwise op, or a fused one, without random draws."""
    return not draws(node) if node.op is fused else isinstance(node.op, Pointwise) and not node.op.random


def is_pointwise_or_draw(node: Node) -> bool:
    """Whether a node is pointwise with one result, possibly with random draws."""
    return len(node.outputs) == 1 and node.op is not fused_sums and (is_pointwise(node) or draws(node))


def draws(node: Node) -> bool:
    """Whether a node is a dropout, or has one among its steps."""
    return any(op.name == "dropout" for op in ops_of(node))


def has_neighbours(value: Value) -> bool:
    """Whether a reduction kernel may draw random numbers for this value: one draw serves several elements, so a thread
    needs consecutive elements of a row."""
    return value.type.rank > 0 and value.type.ints[-1] % _NEIGHBOURS == 0


def ops_of(node: Node) -> list[Op]:
    """The ops of a node's steps; of a node without a body, its own op."""
    return [OPS[name] for name, _, _ in steps(node.attrs)] if isinstance(node.op, FusedOp) else [node.op]


def packs_bits(node: Node) -> bool:
    """Whether a step of the node packs or unpacks bits."""
    return any(op.name in BITS for op in ops_of(node))


def body_of(node: Node) -> tuple[Attr, ...]:
    """The steps of a node: its body, or the node itself as one step."""
    if isinstance(node.op, FusedOp):
        body = node.attrs["body"]
        assert isinstance(body, tuple)
        return body
    return ((node.op.name, tuple(range(len(node.inputs))), tuple(sorted(node.attrs.items()))),)


class Body:
    """The body of a new node under construction: the steps of several nodes, one after the other. ``number``: the
    inputs and the results of the steps so far -> their numbers in the body.

    A step that was added is not added again: nodes that are merged may each compute the same producer. But steps after
    an op that takes neighbours do not see those before it, which its kernel computes in another place.
    """

    def __init__(self, inputs: Iterable[Value]) -> None:
        self.inputs = tuple(dict.fromkeys(inputs))
        self.number = {v: i for i, v in enumerate(self.inputs)}
        self.steps: list[Attr] = []
        self._known: dict[str, int] = {}  # a step as text, which tells 1 from 1.0 and 0.0 from -0.0 -> its number

    def add(self, node: Node, read: Sequence[Value] | None = None, *, is_last: bool = False) -> Callable[[int], int]:
        """Adds the steps of a node, which read the values ``read`` in place of its inputs. Returns the function from a
        number in the node's body to the number in this one. ``is_last``: the result of this body is that of its last
        step, the last one of the node, which is added in any case."""
        numbers = [self.number[v] for v in (node.inputs if read is None else read)]
        own = cast("tuple[Step, ...]", body_of(node))
        for place, (name, inputs, attrs) in enumerate(own, 1):
            step = (name, tuple([numbers[i] for i in inputs]), attrs)
            numbers.append(self._added(step, again=is_last and place == len(own)))
        if not isinstance(node.op, FusedOp):
            self.number[node.outputs[0]] = numbers[-1]
        elif not isinstance(node.op, FusedSums):
            self.number.update(zip(node.outputs, [numbers[i] for i in results_of(node.attrs, len(numbers))]))
        return numbers.__getitem__

    def _added(self, step: Step, again: bool) -> int:
        """The number of a step, which is added unless an equal one was and it need not be added ``again``."""
        text, end = repr(step), len(self.inputs) + len(self.steps)
        if not again and text in self._known:
            return self._known[text]
        if is_core(OPS[step[0]]):
            self._known.clear()
        self._known[text] = end
        self.steps.append(step)
        return end


def inlined(graph: Graph, chosen: Mapping[Node, Sequence[Node]]) -> Graph:
    """The graph in which nodes compute some of their inputs themselves: a node -> the producers of these inputs."""
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        fresh = with_producers(node, chosen[node], new) if node in chosen else node.reading(new)
        if fresh is not node:
            new.update(zip(node.outputs, fresh.outputs))
    return graph.replace_values(new) if new else graph


def with_producers(node: Node, producers: Sequence[Node], new: Mapping[Value, Value] = _NOTHING) -> Node:
    """Returns ``node`` with the bodies of producers of its inputs placed before its own; inputs are renamed by
    ``new``."""
    read = [v if v.producer in producers else new.get(v, v) for v in node.inputs]
    inputs = [v for v in read if v.producer not in producers]
    body = Body([*inputs, *(new.get(v, v) for producer in producers for v in producer.inputs)])
    for producer in producers:
        body.add(producer, [new.get(v, v) for v in producer.inputs])
    place = body.add(node, read, is_last=True)
    origins, attrs = origins_of((*producers, node)), dict[str, Attr](body=tuple(body.steps))
    if node.op is not fused_sums:
        op = fused_rows if any(is_core(OPS[name]) for name, _, _ in steps(attrs)) else fused
        if "results" in node.attrs:
            attrs["results"] = tuple(map(place, int_tuple(node.attrs, "results")))
        return node.replaced(op=op, inputs=body.inputs, attrs=attrs, origins=origins)
    own = {name: tuple(map(place, int_tuple(node.attrs, name))) for name in ("summed", "kept") if name in node.attrs}
    return node.replaced(inputs=body.inputs, attrs={**node.attrs, **attrs, **own}, origins=origins)
