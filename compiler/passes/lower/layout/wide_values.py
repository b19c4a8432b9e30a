"""Which values of odd rows can be computed with aligned rows, and what the added elements are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from dslc.compiler.ir.graph import Attr, Graph, Input, Kind, Node, Value
from dslc.compiler.ir.op import OPS, Builder, Op, Pointwise
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_tuple, ints_attr, number_attr
from dslc.compiler.ops.compound.fused import BITS, FusedOp, steps
from dslc.compiler.ops.compound.fused_sums import fused_sums
from dslc.compiler.ops.reduction.reduce import Reduction
from dslc.compiler.passes.lower.simplify.simplify import folded
from dslc.compiler.passes.queries import SMALL_BYTES

_ALIGNED: Final = 8  # elements
_OF_ZEROS: Final = ("sum", "mean", "max", "min")  # reductions that give 0 for zeros


def more_of(type: TensorType) -> int:
    """The elements that an aligned row has in addition."""
    return -type.ints[-1] % _ALIGNED


def is_large(value: Value) -> bool:
    """Whether a value is no vector: a copy of it takes time."""
    return value.type.bytes > SMALL_BYTES


def prefix(b: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """The first elements along each axis."""
    return b(OPS["slice"], value, starts=(0,) * len(shape), stops=shape, steps=(1,) * len(shape))


class WideValues:
    """``sliced``: a slice of a product's aligned rows -> these rows. ``pads``: a value -> its padded tensor.
    ``nodes``: those that can be computed with aligned rows; ``made``: their results. ``rows``: all values that have
    aligned rows; ``zeros``: those to whose rows zeros are added."""

    def __init__(self, graph: Graph) -> None:
        self.sliced: dict[Value, Value] = {}
        self.made: set[Value] = set()
        self.pads = {node.inputs[0]: node for node in graph.nodes if _pads_rows(node)}
        self.rows: dict[Value, None] = {v: None for v in self.pads if is_large(v)}
        self.zeros = set(self.rows)
        self.nodes: dict[Node, None] = {}
        for node in graph.nodes:
            if _is_of_product(node):
                self.sliced[node.out] = node.inputs[0]
                self.rows[node.out] = None
                self.zeros.add(node.out)
            elif self._can(node):
                self.nodes[node] = None
                self.made.update(node.outputs)
                self.rows.update(dict.fromkeys(node.outputs))
                self.zeros.difference_update(node.outputs)
                self.zeros.update(v for v, zero in zip(node.outputs, self._gives_zeros(node)) if zero)

    def is_odd(self, value: Value) -> bool:
        """Whether a value has rows that are not aligned, and is no row of one element."""
        return value.type.rank > 0 and value.type.ints[-1] != 1 and more_of(value.type) > 0

    def follows(self, reader: Node) -> bool:
        """Whether a reader of a value takes the aligned rows as well."""
        value = reader.inputs[0]
        return reader.op.name == "slice" or (self.pads.get(value) is reader and value in self.zeros)

    def replaced_pads(self, value: Value, readers: Sequence[Node]) -> list[Node]:
        """The padded tensor of a value if its aligned rows take its place."""
        known = value in self.sliced or value in self.made
        return [node for node in readers if known and self.pads.get(value) is node and value in self.zeros]

    def attrs(self, node: Node) -> Mapping[str, Attr]:
        """The attributes of a node with aligned rows."""
        attrs, more = dict(node.attrs), more_of(node.types[0])
        for name in {"reshape": ("shape",), "sum_to": ("shape",), "slice": ("stops",)}.get(node.op.name, ()):
            sizes = int_tuple(attrs, name)
            attrs[name] = (*sizes[:-1], sizes[-1] + more)
        return attrs

    def _can(self, node: Node) -> bool:
        odd = [v for v in node.inputs if self.is_odd(v)]
        if not any(v in self.rows for v in odd):
            return False
        length = node.types[0].ints[-1] if node.types[0].rank else 1
        return {v.type.ints[-1] for v in odd} == {length} and _leaves_rows(node, length)

    def _gives_zeros(self, node: Node) -> list[bool]:
        """Of each result whether zeros are added to its rows."""
        b = Builder().at(node, node.phase)
        known = [self._added(b, v) for v in node.inputs]
        if node.op is fused_sums:
            for name, inputs, attrs in steps(node.attrs):
                known.append(_computed(b, OPS[name], [known[i] for i in inputs], attrs))
            return [_is_zero(known[i]) for i in ints_attr(node.attrs, "summed")]
        if isinstance(node.op, Pointwise):
            return [_is_zero(_computed(b, node.op, known, node.attrs))]
        return [_is_zero(known[0]) and (node.op.name in _OF_ZEROS or not isinstance(node.op, Reduction))]

    def _added(self, b: Builder, value: Value) -> Value:
        """A scalar like the elements that are added to a value's rows, or like those of a value without rows."""
        scalar, made = TensorType(value.type.dtype, ()), value.producer
        if self.is_odd(value) and (value in self.zeros or value not in self.rows):  # others are padded by zeros
            return b(OPS["full"], value=False if scalar.dtype is DType.B1 else 0, dtype=scalar.dtype, shape=())
        if isinstance(made, Node) and made.op.name == "full":
            return b(OPS["full"], **{**made.attrs, "shape": ()})
        return Input("unknown", Kind.DATA, scalar).value


def _is_zero(value: Value) -> bool:
    made = value.producer
    return isinstance(made, Node) and made.op.name == "full" and not made.attrs["value"]


def _computed(b: Builder, op: Op, scalars: Sequence[Value], attrs: Mapping[str, Attr]) -> Value:
    """What a pointwise op makes of scalars: a ``full`` if it is known."""
    node = b.node(op, *scalars, **attrs)
    made = folded(node)
    if made is not None:
        return made.out
    if op.name == "mul":
        return next(filter(_is_zero, scalars), node.out)
    if op.name == "where" and all(map(_is_zero, scalars[1:])):
        return scalars[1]
    return node.out


def _pads_rows(node: Node) -> bool:
    """Whether a node only adds zeros that align rows."""
    if node.op.name != "pad" or not node.input_types[0].rank or number_attr(node.attrs, "value") != 0:
        return False
    low, high, interior = (int_tuple(node.attrs, name) for name in ("low", "high", "interior"))
    more = more_of(node.input_types[0])
    return not any((*low, *high[:-1], *interior)) and high[-1] == more > 0 and node.input_types[0].ints[-1] > 1


def _is_of_product(node: Node) -> bool:
    """Whether a node is the slice of aligned rows of a product whose other columns are zeros."""
    if node.op.name != "slice" or not node.types[0].rank:
        return False
    [x], [y] = node.input_types, node.types
    first = not any(int_tuple(node.attrs, "starts")) and set(int_tuple(node.attrs, "steps")) <= {1}
    if not first or x.ints[:-1] != y.ints[:-1] or x.ints[-1] != y.ints[-1] + more_of(y) or not more_of(y):
        return False
    made = node.inputs[0].producer
    if not isinstance(made, Node) or made.op.name not in ("conv_last", "conv_dgrad_last", "matmul"):
        return False
    axis = -1 if made.op.name == "conv_dgrad_last" else 0
    if made.op.name == "matmul":
        axis = -2 if bool_attr(made.attrs, "transpose_b") else -1
    weight = made.inputs[1].producer
    if not isinstance(weight, Node) or weight.op.name != "pad" or number_attr(weight.attrs, "value") != 0:
        return False
    inside = not any((*int_tuple(weight.attrs, "low"), *int_tuple(weight.attrs, "interior")))
    return inside and int_tuple(weight.attrs, "high")[axis] == more_of(y)


def _is_plain(op: Op) -> TypeGuard[Pointwise]:
    return isinstance(op, Pointwise) and not isinstance(op, FusedOp) and not op.random and op.name not in BITS


def _leaves_rows(node: Node, length: int) -> bool:
    """Whether a node computes each column of rows of that length from the same column of its operands."""
    op, attrs = node.op, node.attrs
    rank = node.input_types[0].rank
    if any(v.type.rank and v.type.ints[-1] not in (1, length) for v in node.inputs):
        return False
    if any(not t.rank or t.ints[-1] != length for t in node.types):
        return False
    if op is fused_sums:
        plain = all(_is_plain(OPS[name]) for name, _, _ in steps(attrs)) and not {"finish", "kept"} & attrs.keys()
        return plain and max(v.type.rank for v in node.inputs) - 1 not in ints_attr(attrs, "over")
    if isinstance(op, Reduction):
        return rank - 1 not in ints_attr(attrs, "over")
    match op.name:
        case "reshape" | "sum_to":
            return True
        case "pad":
            ends = [int_tuple(attrs, name)[-1] for name in ("low", "high", "interior")]
            return not any(ends) and number_attr(attrs, "value") == 0
        case "slice":
            return int_tuple(attrs, "starts")[-1] == 0 and int_tuple(attrs, "steps")[-1] == 1
        case "transpose":
            return int_tuple(attrs, "perm")[-1] == rank - 1
    return _is_plain(op) and len(node.outputs) == 1
