"""Stores a comparison as a bitmask (1 bit per element) for consumers that only compare the value with a constant.

Before, other nodes such as the next layer read y, too::

    %4 = fused %x, %scale, %bias, %r {relu(x * scale + bias + r)} : bf16[8, 14, 14, 64]  # relu forward
    %8, %9, %7 = fused_sums %dy, %4, ... {where(y <= 0, 0, dy), ...} : f32[64], f32[64], bf16[8, 14, 14, 64]

After::

    %4, %5 = fused %x, %scale, %bias, %r {relu(...), pack_bits(y <= 0)} : bf16[8, 14, 14, 64], u8[12544]
    %8, %9, %7 = fused_sums %dy, %5, ... {where(unpack_bits(%5), 0, dy), ...} : f32[64], f32[64], bf16[8, 14, 14, 64]

So the gradient of a relu on bf16 reads 1/16 of the bytes. Results keep their bits. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias

from dslc.compiler.ir.graph import Attr, Graph, Node, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.compound.bits import BYTE
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused, results_of, steps
from dslc.compiler.ops.compound.fused_sums import full_shape, fused_sums
from dslc.compiler.ops.elementwise.logic import Comparison
from dslc.compiler.passes.fuse.body import body_of, is_pointwise
from dslc.compiler.passes.queries import is_small
from dslc.compiler.passes.rebuild import reading

#: A comparison with a constant: its op, and the constant, a step without inputs.
_Test: TypeAlias = "tuple[str, Attr]"


def bitmask(graph: Graph) -> Graph:
    """The graph with bitmasks. Deterministic and idempotent."""
    tests: dict[Value, _Test] = {}
    asking: dict[Node, list[int]] = {}
    for node in graph.nodes:
        for number, value in enumerate(node.inputs):
            test = _test(node, number) if _may_be_asked(value, node) else None
            if test is not None and tests.setdefault(value, test) == test:
                asking.setdefault(node, []).append(number)
    bits: dict[Value, Value] = {}  # a value that is asked -> its bitmask
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        fresh = _asking(node, {n: bits[node.inputs[n]] for n in asking[node]}) if node in asking else node
        tested = [v for v in node.outputs if v in tests]
        for value in tested:
            fresh = _packing(fresh, value.index, tests[value])
        if fresh is not node:
            instead.update(zip(node.outputs, fresh.outputs))
            bits.update(zip(tested, fresh.outputs[len(node.outputs) :]))
    return reading(graph, instead)


def _may_be_asked(value: Value, node: Node) -> bool:
    """Whether a pointwise node or a reduction reads a large pointwise result of its own (full) shape."""
    made = value.producer
    if not isinstance(made, Node) or not is_pointwise(made) or is_small(value):
        return False
    if is_pointwise(node):
        shape: tuple[int, ...] = node.types[0].ints
        whole = prod(shape)
    elif node.op is fused_sums:
        shape = full_shape(node)
        whole = _stretch(node, shape)
        if value.type.dtype.itemsize > 2 and len(shape) - 1 in int_tuple(node.attrs, "over"):
            return False  # would change the thread's vector width, and so the order of the sums
    else:
        return False
    return value.type.ints == shape and whole % BYTE == 0 and len(body_of(made)) + 3 <= MAX_STEPS


def _stretch(sums: Node, shape: Sequence[int]) -> int:
    """Contiguous elements of a row (or of a run of columns) of the reduction: the product of the last axes that are all
    reduced or all not, and along which no input is broadcast on some of them only."""
    over, rank = int_tuple(sums.attrs, "over"), len(shape)
    wide = [(1,) * (rank - t.rank) + t.ints for t in sums.input_types if t.rank]
    first = rank - 1
    while first and (first - 1 in over) == (first in over):
        if any((x[first - 1] == 1) != (x[first] == 1) for x in wide if len(x) == rank):
            break
        first -= 1
    return prod(shape[first:])


def _test(node: Node, number: int) -> _Test | None:
    """The only comparison that a node applies to its input ``number``; None if it uses the input otherwise."""
    body = body_of(node)
    if node.op not in (fused, fused_sums):
        return None
    found: set[_Test] = set()
    for name, read, _ in steps(node.attrs):
        if number not in read:
            continue
        if not isinstance(OPS[name], Comparison) or read[0] != number:
            return None
        constant = body[read[1] - len(node.inputs)] if read[1] >= len(node.inputs) else None
        if not isinstance(constant, tuple) or constant[0] != "full":
            return None
        found.add((name, constant))
    kept = {number} & {*int_tuple(node.attrs, "summed")} if node.op is fused_sums else set()
    return found.pop() if len(found) == 1 and not kept else None


def _packing(node: Node, output: int, test: _Test) -> Node:
    """The node with the bitmask of one output as an extra output."""
    body, count, (name, constant) = body_of(node), len(node.inputs), test
    results = tuple(results_of(node.attrs, count + len(body)) if node.op is fused else (count + len(body) - 1,))
    end = count + len(body)
    more: tuple[Attr, ...] = (constant, (name, (results[output], end), ()), ("pack_bits", (end + 1,), ()))
    type = TensorType(DType.U8, (prod(node.types[output].ints) // BYTE,))
    attrs = {"body": (*body, *more), "results": (*results, end + 2)}
    return node.replaced(op=fused, types=(*node.types, type), attrs=attrs)


def _asking(node: Node, bits: dict[int, Value]) -> Node:
    """The node that reads bitmasks instead of the inputs with these indices."""
    shapes = {n: node.input_types[n].ints for n in bits}
    body: list[Attr] = []
    for name, read, given in steps(node.attrs):
        asks = bool(read) and read[0] in bits
        step = ("unpack_bits", (read[0],), (("shape", shapes[read[0]]),)) if asks else (name, read, (*given.items(),))
        body.append(step)  # type: ignore[arg-type]
    inputs = tuple(bits.get(n, v) for n, v in enumerate(node.inputs))
    return node.replaced(inputs=inputs, attrs={**node.attrs, "body": tuple(body)})
