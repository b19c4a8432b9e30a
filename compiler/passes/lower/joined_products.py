"""Computes products of one value with several weights as one product: queries, keys and values are then one launch.

Before, with the biases of linear layers::

    %1 = add %x @ %wq, %bq : [1, 128, 768]  # q forward
    %2 = add %x @ %wk, %bk : [1, 128, 768]  # k forward

After::

    %1 = concat %wq, %wk {axis=1} : [768, 1536]  # q forward
    %2 = concat %bq, %bk {axis=0} : [1536]  # q forward
    %3 = add %x @ %1, %2 : [1, 128, 1536]  # q forward
    %4, %5 = two slices of %3 : [1, 128, 768]  # q forward

``prepare.py`` computes the weights and biases once after they change. Only of ``predict``, where launches take long,
and where pointwise ops and attention read the results, up to reshapes, transposes and slices: their kernels read parts
of a tensor in place. Sums keep their order; the kernel of a wider product may have another one. Linear in nodes and
reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import bool_attr
from dslc.compiler.ops.products.attention import sdpa
from dslc.compiler.passes.conditions import batches_launches
from dslc.compiler.passes.queries import values_of_weights
from dslc.compiler.passes.rebuild import reading

_RUN: Final = 8  # columns that a thread reads at once
_MOVES: Final = ("reshape", "transpose", "slice")


@dataclass(frozen=True)
class _Member:
    """A product with weights, and what it is after its bias, if it has one that needs weights alone."""

    node: Node
    bias: Value | None
    end: Value

    @property
    def kind(self) -> Hashable:
        """Members of one kind are joined."""
        return self.node.inputs[0], bool_attr(self.node.attrs, "transpose_b"), self.bias is None, self.node.phase

    @property
    def columns(self) -> int:
        return self.node.types[0].ints[-1]


def joined_products(program: Program, build: Build) -> Program:
    """The pass. Idempotent."""
    if program.entry != "predict" or program.prepared is not None or not (build.prepare and batches_launches(build)):
        return program
    graph = program.graph
    fixed, readers, roots = values_of_weights(graph), graph.readers(), {*graph.roots}
    groups: dict[Hashable, list[_Member]] = {}
    for node in graph.nodes:
        found = _member(node, fixed, readers)
        if found is not None and _is_read_in_parts(found.end, readers, roots):
            groups.setdefault(found.kind, []).append(found)
    instead: dict[Value, Value] = {}
    for members in groups.values():
        if len(members) > 1:
            instead |= _joined(members)
    return replace(program, graph=reading(graph, instead)) if instead else program


def _member(node: Node, fixed: set[Value], readers: Mapping[Value, list[Node]]) -> _Member | None:
    if node.op.name != "matmul" or node.inputs[0] in fixed or node.inputs[1] not in fixed:
        return None
    if node.inputs[1].type.rank != 2 or bool_attr(node.attrs, "transpose_a") or node.types[0].ints[-1] % _RUN:
        return None
    own = readers.get(node.out, [])
    if len(own) == 1 and own[0].op.name == "add":
        first, second = own[0].inputs
        bias = second if first is node.out else first
        if bias in fixed and bias.type.ints == node.types[0].ints[-1:]:
            return _Member(node, bias, own[0].out)
    return _Member(node, None, node.out)


def _is_read_in_parts(value: Value, readers: Mapping[Value, list[Node]], roots: set[Value]) -> bool:
    """Whether all that reads a value, up to nodes that move its elements, reads parts of a tensor in place."""
    if value in roots:
        return False
    for reader in readers.get(value, ()):
        if reader.op.name in _MOVES:
            if not _is_read_in_parts(reader.out, readers, roots):
                return False
        elif not (isinstance(reader.op, Pointwise) or reader.op is sdpa) or reader.op.random:
            return False
    return True


def _joined(members: list[_Member]) -> dict[Value, Value]:
    """The end of each member as a slice of one product."""
    first = members[0].node
    b, turned = Builder().at(first, first.phase), bool_attr(first.attrs, "transpose_b")
    weights = b(OPS["concat"], *(m.node.inputs[1] for m in members), axis=0 if turned else 1)
    made = b(first.op, first.inputs[0], weights, **first.attrs)
    biases = [m.bias for m in members if m.bias is not None]
    if biases:
        made = b(OPS["add"], made, b(OPS["concat"], *biases, axis=0))
    found: dict[Value, Value] = {}
    *lead, _ = made.type.ints
    begin = 0
    for member in members:
        starts, stops = (*(0 for _ in lead), begin), (*lead, begin + member.columns)
        own = Builder().at(member.node, first.phase)
        found[member.end] = own(OPS["slice"], made, starts=starts, stops=stops, steps=(1,) * len(stops))
        begin += member.columns
    return found
