"""The gradient of a loop: a second loop in the opposite order.

A carry's gradient is a carry of the second loop, a sequence's gradient is what its steps yield. The loop itself is made
again with more results, the *residuals*: the values that the second loop reads. ``scan_merge.py`` then puts it in the
place of the first. Values that cost nothing to compute again, constants and views, are no residuals.

A constant's gradient is a carry of the second loop, to which each step adds its terms one after another, as the program
written out would. It starts at -0.0, which leaves the bits of every term, or at the sum so far (``scan_sums.py``).
Where the program written out would have one matrix product for the products of all steps (``sum_gradients.py``), this
one has it, too: their factors are results of the second loop, and one product over all steps follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from dslc.compiler.ir.graph import Body, Graph, Input, Node, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.pull_back import pull_back
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.types import TensorType

Total: TypeAlias = Callable[[Sequence[Value]], Value]


def gradient_of_loop(node: Node, dys: Sequence[Value | None], b: Builder, total: Total) -> list[Value | None]:
    """The gradients of the inputs of a loop from those of its outputs; sizes are ints."""
    loop = Loop.of(node)
    carried = dys[: len(loop.carries)]
    active = {i for i, dy in enumerate(carried) if dy is not None}
    while True:
        back = _Backward(node, loop, dys, active, b, total)
        found = {i for i, source in enumerate(loop.carry_inputs) if source.value in back.terms}
        if found <= active:
            return back.gradients()
        active |= found


@dataclass
class _Product:
    """The matrix products of a step that give a gradient of one constant, as one: its factors, and their flags."""

    left: Value
    right: Value
    transpose_a: bool
    transpose_b: bool


@dataclass
class _Const:
    """The terms of a constant's gradient in one step: those that are added in order, and the products."""

    added: list[Value] = field(default_factory=list)
    products: list[_Product] = field(default_factory=list)


class _Backward:
    """The second loop, given which carries have gradients."""

    def __init__(
        self, node: Node, loop: Loop, dys: Sequence[Value | None], active: set[int], b: Builder, total: Total
    ) -> None:
        self.node, self.loop, self.dys, self.b, self.total = node, loop, dys, b, total
        self.count = loop.count
        assert isinstance(self.count, int), "sizes are known"
        self.active = sorted(i for i in active if loop.carries[i].type.dtype.is_float)
        self.terms: dict[Value, list[Value]] = {}
        self.d_carry = {i: new_input("carry", n, loop.carries[i].type) for n, i in enumerate(self.active)}
        self.d_yield: dict[int, Input] = {}
        graph = loop.graph
        for i in self.active:
            self._begin(graph.updates[i][1], self.d_carry[i])
        for j, value in enumerate(graph.outputs.values()):
            if dys[len(loop.carries) + j] is not None:
                self.d_yield[j] = new_input("x", len(self.d_yield), value.type)
                self._begin(value, self.d_yield[j])
        reached = {i.value for i in graph.inputs if i.value.type.dtype.is_float}
        between = []
        for each in graph.nodes:
            if any(v in reached for v in each.inputs):
                between.append(each)
                reached.update(v for v in each.outputs if v.type.dtype.is_float)
        pull_back(between, self.terms, reached, total, b.phase)

    def _begin(self, value: Value, source: Input) -> None:
        if value.type.dtype.is_float:
            self.terms.setdefault(value, []).append(source.value)

    def gradients(self) -> list[Value | None]:
        """The gradients of the loop's inputs."""
        loop, b = self.loop, Builder().at(self.node, self.b.phase)
        consts = {
            i: self._const(self.terms[source.value])
            for i, source in enumerate(loop.const_inputs)
            if source.value in self.terms
        }
        summed = [i for i in consts if consts[i].added]
        sums = {i: new_input("carry", len(self.active) + n, loop.consts[i].type) for n, i in enumerate(summed)}
        after: dict[Input, Value] = {}
        for i in self.active:
            found = self.terms.get(loop.carry_inputs[i].value)
            after[self.d_carry[i]] = self._full(b, loop.carries[i].type, 0.0) if found is None else self.total(found)
        for i, source in sums.items():
            value = source.value
            for term in consts[i].added:
                value = self._at(term)(OPS["add"], value, term)
            after[source] = value
        yields = {
            k: self.total(self.terms[source.value])
            for k, source in enumerate(loop.sequence_inputs)
            if source.value in self.terms
        }
        factors = [v for const in consts.values() for p in const.products for v in (p.left, p.right)]
        parts = _Parts(self, [*after.values(), *yields.values(), *factors], after)
        made = parts.node({self.d_carry[i]: self._first(i) for i in self.active}
                          | {s: self._full(b, loop.consts[i].type, -0.0) for i, s in sums.items()},
                          after, [*yields.values(), *factors])  # fmt: skip
        carried = dict(zip(after, made.outputs))
        rows = dict(zip([*yields.values(), *factors], made.outputs[len(after) :]))
        result: list[Value | None] = []
        for i in range(len(loop.consts)):
            const = consts.get(i)
            added = carried[sums[i]] if i in sums else None
            result.append(None if const is None else self._whole(const, added, rows))
        result += [carried[self.d_carry[i]] if i in self.d_carry else None for i in range(len(loop.carries))]
        result += [rows[yields[k]] if k in yields else None for k in range(len(loop.sequences))]
        return result

    def _first(self, i: int) -> Value:
        """The gradient of a carry after the last step."""
        given = self.dys[i]
        return self._full(self.b, self.loop.carries[i].type, -0.0) if given is None else given

    @staticmethod
    def _full(b: Builder, type: TensorType, value: float) -> Value:
        return b(OPS["full"], value=value, dtype=type.dtype, shape=type.shape)

    @staticmethod
    def _at(value: Value) -> Builder:
        made = value.producer
        return Builder().at(made, made.phase) if isinstance(made, Node) else Builder(phase=Phase.BACKWARD)

    def _const(self, terms: list[Value]) -> _Const:
        """The terms of a constant, with matching products together if their factors are smaller than their results."""
        groups: dict[tuple[bool, bool], list[Node]] = {}
        for term in terms:
            made = term.producer
            if isinstance(made, Node) and made.op is OPS["matmul"] and all(v.type.rank == 2 for v in made.inputs):
                flags = bool(made.attrs["transpose_a"]), bool(made.attrs["transpose_b"])
                groups.setdefault(flags, []).append(made)
        found = _Const()
        joined: set[Value] = set()
        for (ta, tb), nodes in groups.items():
            read = sum(prod(v.type.ints) for each in nodes for v in each.inputs)
            written = sum(prod(each.out.type.ints) for each in nodes)
            if self.count * len(nodes) < 2 or read >= written:  # type: ignore[operator]
                continue
            left, right = ([each.inputs[side] for each in nodes] for side in (0, 1))
            b = Builder().at(nodes[0], nodes[0].phase)
            found.products.append(
                _Product(
                    left[0] if len(left) == 1 else b(OPS["concat"], *left, axis=0 if ta else 1),
                    right[0] if len(right) == 1 else b(OPS["concat"], *right, axis=1 if tb else 0),
                    ta,
                    tb,
                )
            )
            joined.update(each.out for each in nodes)
        found.added = [term for term in terms if term not in joined]
        return found

    def _whole(self, const: _Const, added: Value | None, rows: dict[Value, Value]) -> Value:
        """The gradient of a constant, from the terms of all steps."""
        parts: list[Value] = []
        for product in const.products:
            left = self._over_steps(rows[product.left], 0 if product.transpose_a else 1)
            right = self._over_steps(rows[product.right], 1 if product.transpose_b else 0)
            flags = {"transpose_a": product.transpose_a, "transpose_b": product.transpose_b}
            parts.append(self.b(OPS["matmul"], left, right, **flags))
        parts += [] if added is None else [added]
        result, *more = parts
        for part in more:
            result = self.b(OPS["add"], result, part)
        return result

    def _over_steps(self, x: Value, axis: int) -> Value:
        """The matrices of all steps, the last step of the forward loop first, side by side along an axis."""
        count, rows, columns = x.type.ints
        if not self.loop.reverse:
            x = self.b(OPS["slice"], x, starts=(count - 1, 0, 0), stops=(-1, rows, columns), steps=(-1, 1, 1))
        if axis == 0:
            return self.b(OPS["reshape"], x, shape=(count * rows, columns))
        x = self.b(OPS["transpose"], x, perm=(1, 0, 2))
        return self.b(OPS["reshape"], x, shape=(rows, count * columns))


class _Parts:
    """Divides the nodes of the gradient between the two loops, and finds what the second reads of the first."""

    def __init__(self, back: _Backward, roots: Sequence[Value], after: Iterable[Input]) -> None:
        self.back, self.loop = back, back.loop
        forward = set(self.loop.graph.nodes)
        own = {s.value for s in (*after, *back.d_yield.values())}
        new = [n for n in order(roots) if n not in forward]
        for each in new:
            if any(v in own for v in each.inputs):
                own.update(each.outputs)
        # a loop in the body whose residuals are wanted belongs to the first loop
        self.first = forward | {n for n in new if n.op is scan and not any(v in own for v in n.outputs)}
        self.second: dict[Node, None] = {}
        self.read: dict[Value, None] = {}
        for value in roots:
            self._need(value, own)

    def _need(self, root: Value, own: set[Value]) -> None:
        stack = [root]
        while stack:
            value = stack.pop()
            made = value.producer
            if isinstance(made, Input):
                if value not in own:
                    self.read[value] = None
            elif made in self.first and made.inputs and not made.op.view:
                self.read[value] = None
            elif made not in self.second:
                self.second[made] = None
                stack += made.inputs

    def node(self, first: dict[Input, Value], after: dict[Input, Value], yields: Sequence[Value]) -> Node:
        """The second loop. ``first``: the carries' values before it; ``after``: inside, after a step."""
        loop, back = self.loop, self.back
        inside = dict(zip((i.value for i in loop.const_inputs), loop.consts))
        outside = dict(zip((i.value for i in loop.sequence_inputs), loop.sequences))
        residuals = [v for v in self.read if v not in inside and v not in outside]
        again = self._again(residuals)
        given = list(loop.graph.outputs.values())
        results = dict(zip(given + [v for v in residuals if v not in given], again.outputs[len(loop.carries) :]))
        consts: dict[Input, Value] = {}
        sequences = {source: dy for j, source in back.d_yield.items() if (dy := back.dys[len(loop.carries) + j])}
        new: dict[Value, Value] = {}
        for value in self.read:
            if value in inside:
                source = new_input("const", len(consts), value.type)
                consts[source] = inside[value]
            else:
                source = new_input("x", len(sequences), value.type)
                sequences[source] = outside[value] if value in outside else results[value]
            new[value] = source.value
        nodes: list[Node] = []
        for each in order([*after.values(), *yields]):
            if each in self.second:
                nodes.append(each.reading(new))
                new.update(zip(each.outputs, nodes[-1].outputs))
        return loop_node(
            Builder().at(back.node, back.b.phase),
            consts,
            {s: (first[s], new.get(after[s], after[s])) for s in first},
            sequences,
            [new.get(v, v) for v in yields],
            tuple(nodes),
            loop.count,
            not loop.reverse,
        )

    def _again(self, residuals: Sequence[Value]) -> Node:
        """The first loop with these values of its steps as further results."""
        node, graph = self.back.node, self.loop.graph
        given = list(graph.outputs.values())
        extra = [v for v in residuals if v not in given]
        outputs = {f"y.{i}": v for i, v in enumerate([*given, *extra])}
        nodes = order([*outputs.values(), *(v for _, v in graph.updates)])
        body = merged_loops(Graph(graph.inputs, nodes, outputs, graph.updates))
        b = Builder().at(node, node.phase)
        return b.node(scan, *node.inputs, **{**node.attrs, "loop": Body(body)})
