"""The node of a loop at run time: ``scan`` of the language.

Its attribute ``loop`` holds the body, a graph of its own. The inputs of the node, and in the same order of the body,
are

- **constants**, which are the same in each step: parameters and other tensors that the body captures;
- **carries**, which a step passes to the next one: buffers of the body, which it updates;
- **sequences**, of which each step reads one element along axis 0.

The outputs are the carries after the last step, then the sequences of the body's outputs, stacked along axis 0::

    %3, %4 = scan %w, %h, %x {consts=1, count=8, reverse=False} : [4], [8, 4]  # "" m.nn:5:3 forward
      %0 = data const.0 : [4]
      %1 = buffer carry.0 : [4]
      %2 = data x.0 : [4]
      %3 = mul %1, %0 : [4]  # "" m.nn:6:5 forward
      %4 = add %3, %2 : [4]  # "" m.nn:6:5 forward
      output y.0 = %4
      update carry.0 = %4

With ``reverse``, the steps run from the last element to the first; each sequence keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir.graph import Attr, Attrs, Body, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder, Cost, Mismatch, Op
from dslc.compiler.ir.row_axes import plain as plain_axis
from dslc.compiler.ir.row_axes import row_axes
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Scan(Op):
    """scan(...): a loop at run time.

    The statement `scan` and the recurrent layers make it, so the table of ops does not list it. It has no kernel of
    its own: a plan holds the kernels of its body once, in a loop.
    """

    name = "scan"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        graph, count = body_of(attrs), count_of(attrs)
        consts, carries = consts_of(attrs), len(graph.updates)
        if len(types) != len(graph.inputs):
            raise Mismatch(f"a loop with {len(graph.inputs)} inputs is given {len(types)}")
        for at, (type, source) in enumerate(zip(types, graph.inputs)):
            inner = source.value.type
            wanted = inner if at < consts + carries else stacked(inner, count)
            if type != wanted:
                raise Mismatch(f"{source.name} of a loop is {wanted}, not {type}")
        if [source for source, _ in graph.updates] != list(graph.inputs[consts : consts + carries]):
            raise Mismatch("a loop updates other inputs than its carries")
        carried = (source.value.type for source, _ in graph.updates)
        return (*carried, *(stacked(v.type, count) for v in graph.outputs.values()))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise AssertionError("`summed_grad` is called instead")

    def summed_grad(
        self, node: Node, dys: Sequence[Value | None], b: Builder, total: Callable[[Sequence[Value]], Value]
    ) -> Sequence[Value | None]:
        from dslc.compiler.ir.scan_gradient import gradient_of_loop

        return gradient_of_loop(node, dys, b, total)

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        graph, consts = body_of(attrs), consts_of(attrs)
        first = consts + len(graph.updates)
        count = count_of(attrs)
        assert isinstance(count, int), "sizes are known"
        carried = list(xs[consts:first])
        stacks: dict[str, dict[int, Array]] = {name: {} for name in graph.outputs}
        for at in reversed(range(count)) if attrs["reverse"] else range(count):
            values = [*xs[:consts], *carried, *(x[at] for x in xs[first:])]
            known = dict(zip((source.value for source in graph.inputs), values))
            for node in graph.nodes:
                plain = {name: _plain(value) for name, value in node.attrs.items()}
                known.update(zip(node.outputs, node.op.meaning([known[v] for v in node.inputs], plain)))
            carried = [known[value] for _, value in graph.updates]
            for name, value in graph.outputs.items():
                stacks[name][at] = known[value]
        import numpy as np

        return [*carried, *(np.stack([rows[at] for at in range(count)]) for rows in stacks.values())]

    def cost(self, node: Node) -> Cost:
        costs = [inner.op.cost(inner) for inner in body_of(node.attrs).nodes if not inner.op.view]
        count = int_count(node)
        return Cost(count * sum(c.flops for c in costs), count * sum(c.bytes for c in costs))

    def rows_of(self, node: Node, axes: Sequence[int | None], count: int) -> tuple[int | None, ...] | None:
        graph, consts = body_of(node.attrs), consts_of(node.attrs)
        sequences = consts + len(graph.updates)
        if any(axis == 0 for axis in axes[sequences:]):  # the steps would mix rows
            return None
        if not all(map(plain_axis, axes[consts:])):
            return None
        inner = [*axes[:sequences], *(None if axis is None else axis - 1 for axis in axes[sequences:])]
        likely = [axis if axis is not None else _row_axis(v, count) for v, axis in zip(node.inputs, inner)]
        likely = [*inner[:consts], *likely[consts:sequences], *inner[sequences:]]
        return _rows_of_steps(graph, consts, likely, count) or _rows_of_steps(graph, consts, inner, count)


def _row_axis(value: Value, count: int) -> int | None:
    """The axis that may be that of the rows of a tensor whose elements are equal."""
    made = value.producer
    if not isinstance(made, Node) or made.op.name != "full":
        return None
    return next((axis for axis, size in enumerate(value.type.shape) if size == count), None)


def _rows_of_steps(graph: Graph, consts: int, inner: list[int | None], count: int) -> tuple[int | None, ...] | None:
    """The row axes of a loop's outputs from those of its body's inputs; None if rows are mixed."""
    inner, sequences = [*inner], consts + len(graph.updates)
    while True:
        where = dict(zip((i.value for i in graph.inputs), inner))
        for each in graph.nodes:
            read = [where[v] for v in each.inputs]
            known = all(axis is None for axis in read)
            found = (None,) * len(each.outputs) if known else row_axes(each, read, count)
            if found is None:
                return None
            where.update(zip(each.outputs, found))
        after = [where[value] for _, value in graph.updates]
        if not all(map(plain_axis, (*after, *(where[value] for value in graph.outputs.values())))):
            return None
        before = inner[consts:sequences]
        if after == before:
            break
        if any(b is not None and a != b for a, b in zip(after, before)):
            return None
        inner[consts:sequences] = after  # a carry that starts equal for all rows
    stacks = (where[value] for value in graph.outputs.values())
    return (*inner[consts:sequences], *(None if axis is None else axis + 1 for axis in stacks))


def _plain(attr: Attr) -> object:
    """An attribute as ``meaning`` takes it: dtypes by name."""
    if isinstance(attr, tuple):
        return [_plain(each) for each in attr]
    return attr.value if isinstance(attr, DType) else attr


scan = Scan()


@dataclass(frozen=True)
class Loop:
    """The parts of a scan node: outside, and each with the input of the body that stands for it."""

    graph: Graph
    consts: tuple[Value, ...]
    carries: tuple[Value, ...]
    sequences: tuple[Value, ...]
    count: Size
    reverse: bool

    @classmethod
    def of(cls, node: Node) -> Loop:
        graph, first = body_of(node.attrs), consts_of(node.attrs)
        second = first + len(graph.updates)
        return cls(
            graph,
            node.inputs[:first],
            node.inputs[first:second],
            node.inputs[second:],
            count_of(node.attrs),
            bool(node.attrs["reverse"]),
        )

    @property
    def const_inputs(self) -> tuple[Input, ...]:
        return self.graph.inputs[: len(self.consts)]

    @property
    def carry_inputs(self) -> tuple[Input, ...]:
        return self.graph.inputs[len(self.consts) : len(self.consts) + len(self.carries)]

    @property
    def sequence_inputs(self) -> tuple[Input, ...]:
        return self.graph.inputs[len(self.consts) + len(self.carries) :]


def loop_node(
    b: Builder,
    consts: Mapping[Input, Value],
    carries: Mapping[Input, tuple[Value, Value]],
    sequences: Mapping[Input, Value],
    yields: Sequence[Value],
    nodes: tuple[Node, ...],
    count: Size,
    reverse: bool,
) -> Node:
    """A scan node. ``consts``, ``sequences``: an input of the body -> the value outside. ``carries``: an input -> its
    first value, outside, and its next value, inside. ``yields``: what each step adds to a sequence."""
    graph = Graph(
        (*consts, *carries, *sequences),
        nodes,
        {f"y.{i}": value for i, value in enumerate(yields)},
        tuple((source, after) for source, (_, after) in carries.items()),
    )
    outside = (*consts.values(), *(first for first, _ in carries.values()), *sequences.values())
    return b.node(scan, *outside, loop=Body(graph), consts=len(consts), count=count, reverse=reverse)


def new_input(kind: str, number: int, type: TensorType) -> Input:
    """An input of a body: ``const``, ``carry`` or ``x``."""
    return Input(f"{kind}.{number}", Kind.BUFFER if kind == "carry" else Kind.DATA, type)


def stacked(type: TensorType, count: Size) -> TensorType:
    """The sequence of ``count`` tensors of a type."""
    return TensorType(type.dtype, (count, *type.shape))


def body_of(attrs: Attrs) -> Graph:
    """The body of a scan node, from its attributes."""
    body = attrs["loop"]
    assert isinstance(body, Body)
    return body.graph


def with_body(node: Node, graph: Graph) -> Node:
    """The node with another body, whose inputs may have other types; so its inputs must fit already."""
    attrs: dict[str, Attr] = {**node.attrs, "loop": Body(graph)}
    return node.replaced(attrs=attrs, types=scan.infer(node.input_types, attrs))


def consts_of(attrs: Attrs) -> int:
    """The number of constants of a scan node."""
    count = attrs["consts"]
    assert isinstance(count, int)
    return count


def count_of(attrs: Attrs) -> Size:
    """The number of steps of a scan node."""
    count = attrs["count"]
    assert not isinstance(count, (bool, float, str, tuple, Body)), count
    return count  # type: ignore[return-value]


def int_count(node: Node) -> int:
    """The number of steps, once sizes are known."""
    count = count_of(node.attrs)
    assert isinstance(count, int), f"{count} steps"
    return count


__all__ = ["Loop", "Scan", "body_of", "consts_of", "count_of", "int_count", "loop_node", "new_input",
           "scan", "stacked", "with_body"]  # fmt: skip
