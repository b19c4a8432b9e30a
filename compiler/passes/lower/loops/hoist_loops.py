"""Takes matrix products out of loops, where one product of all steps does the work of one product for each. A part of
``simplify``.

Before::

    %3, %4 = scan %w, %r, %h, %x {consts=2, count=35, ...} : f32[20, 64], f32[35, 20, 64]
      %0 = data const.0 : f32[64, 64]
      ...
      %3 = data x.0 : f32[20, 64]
      %4 = matmul %3, %0 : f32[20, 64]

After::

    %3 = reshape %x : f32[700, 64]
    %4 = matmul %3, %w : f32[700, 64]
    %5 = reshape %4 : f32[35, 20, 64]
    %6, %7 = scan %r, %h, %5 {consts=1, count=35, ...} : f32[20, 64], f32[35, 20, 64]

A product of an element of a sequence and a constant is computed before the loop. A product with a constant that is
only a result of the loop is computed after it, from the sequence of its other factors. So the constant is read once
instead of once a step. Each element of a product is the sum of the same terms in the same order. Numpy's products may
add in an order that depends on the number of rows, so the reference provider keeps them in the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from dslc.compiler.ir.graph import Graph, Input, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan import Loop, loop_node, new_input, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.loops.prune_loops import prune_loops
from dslc.compiler.passes.rebuild import nodes_reading


def hoist_loops(graph: Graph) -> Graph:
    """The graph with such products outside of its loops; sizes are ints."""
    changed = graph.rewrite(lambda node: _hoisted(node) if node.op is scan else None)
    return graph if changed is graph else prune_loops(changed)


def _hoisted(node: Node) -> Sequence[Value] | None:
    loop = Loop.of(node)
    graph, count = loop.graph, loop.count
    assert isinstance(count, int)
    consts = dict(zip((s.value for s in loop.const_inputs), loop.consts))
    elements = dict(zip((s.value for s in loop.sequence_inputs), loop.sequences))
    sequences: dict[Input, Value] = dict(zip(loop.sequence_inputs, loop.sequences))
    before: dict[Value, Value] = {}
    yields = list(graph.outputs.values())
    after: dict[int, Node] = {}  # the number of a result -> its product
    read = {v for each in graph.nodes for v in each.inputs} | {v for _, v in graph.updates}
    for each in graph.nodes if count > 1 else ():
        if not _is_product(each) or each.inputs[1] not in consts:
            continue
        left = each.inputs[0]
        if left in elements:
            source = new_input("x", len(sequences), each.out.type)
            sequences[source] = _over_steps(each, elements[left], consts[each.inputs[1]], count, each.out.type.dtype)
            before[each.out] = source.value
        elif left not in consts:
            result = _result(each, graph.nodes)
            if result not in read:
                after.update((i, each) for i, value in enumerate(yields) if value is result)
    if not before and not after:
        return None
    inner = [after[i].inputs[0] if i in after else value for i, value in enumerate(yields)]
    new = dict(before)
    inside = order([*inner, *(v for _, v in graph.updates)])
    nodes = nodes_reading((each for each in inside if each.outputs[0] not in before), new)
    made = loop_node(
        Builder().at(node, node.phase),
        dict(zip(loop.const_inputs, loop.consts)),
        {s: (first, new.get(v, v)) for (s, v), first in zip(graph.updates, loop.carries)},
        sequences,
        [new.get(v, v) for v in inner],
        tuple(nodes),
        count,
        loop.reverse,
    )
    outputs = list(made.outputs)
    for i, product in after.items():
        place = len(loop.carries) + i
        whole = _over_steps(product, outputs[place], consts[product.inputs[1]], count, yields[i].type.dtype)
        outputs[place] = whole
    return outputs


def _result(product: Node, nodes: Sequence[Node]) -> Value:
    """The product, or the cast to the dtype of its factors that alone reads it."""
    readers = [node for node in nodes if product.out in node.inputs]
    if len(readers) == 1 and readers[0].op.name == "cast" and readers[0].types[0].dtype is product.input_types[0].dtype:
        return readers[0].out
    return product.out


def _is_product(node: Node) -> bool:
    return node.op.name == "matmul" and not node.attrs["transpose_a"] and all(v.type.rank == 2 for v in node.inputs)


def _over_steps(product: Node, left: Value, right: Value, count: int, dtype: DType) -> Value:
    """The products of all steps as one: the sequence of their results, rounded to ``dtype``."""
    b = Builder().at(product, product.phase)
    rows, terms = product.inputs[0].type.ints
    whole = b(OPS["reshape"], left, shape=(count * rows, terms))
    flags = {name: product.attrs[name] for name in ("transpose_a", "transpose_b")}
    wide = {} if dtype is left.type.dtype else {"dtype": dtype}
    result = b(OPS["matmul"], whole, right, **flags, **wide)
    return b(OPS["reshape"], result, shape=(count, *product.out.type.ints))
