"""``contraction``: a contraction with its pointwise epilogue as one node. A pass makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value, origins_of
from dslc.compiler.ir.op import OPS, PRODUCT_KINDS, Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.compound.fused import fused

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Contraction(Op):
    """contraction(a, b, x0, x1, ...): a contraction of ``a`` and ``b`` with a pointwise epilogue.

    Attributes: ``product``, the name of an op of two operands, and ``each``, its attributes as ((name, value), ...);
    ``body``, steps as in ``fused``, whose inputs are the product and the x. The result has the product's shape. The
    product and every step are rounded to their dtypes as if they stood alone. ``tf32``, if it is there, is the
    product's.
    """

    name = "contraction"

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        op, each = product(attrs)
        if len(types) < 2 or op.kernel_kind not in PRODUCT_KINDS:
            raise Mismatch(f"`contraction` of {len(types)} tensors by `{op.name}`", "two operands of a product")
        [whole] = op.infer(types[:2], each)
        [result] = fused.infer([whole, *types[2:]], {"body": attrs["body"]})
        assert result.shape == whole.shape, "the steps change the product's shape"
        return (result,)

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("fusion comes after differentiation")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        op, each = product(attrs)
        [whole] = op.meaning(xs[:2], each)
        return fused.meaning([whole, *xs[2:]], {"body": attrs["body"]})

    def cost(self, node: Node) -> Cost:
        first, last = product_and_epilogue(node)
        moved = sum(t.bytes for t in (*node.input_types, *node.types))
        return Cost(first.op.cost(first).flops + last.op.cost(last).flops, moved)

    def rows(self, node: Node, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
        first, last = product_and_epilogue(node)
        found = first.op.rows(first, axes[:2])
        return None if found is None else last.op.rows(last, [*found, *axes[2:]])


contraction = register(Contraction())


def product(attrs: Mapping[str, Any]) -> tuple[Op, dict[str, Any]]:
    """The op of the product and its attributes; accepts the compiler's form and the JSON form."""
    marked = {"tf32": True} if attrs.get("tf32") else {}
    return OPS[attrs["product"]], {name: value for name, value in attrs["each"]} | marked


def product_and_epilogue(node: Node) -> tuple[Node, Node]:
    """The product, and the ``fused`` node that reads it."""
    op, each = product(node.attrs)
    b = Builder(name=node.name, span=node.span, phase=node.phase)
    first = b.node(op, *node.inputs[:2], **each)
    return first, b.node(fused, first.out, *node.inputs[2:], body=node.attrs["body"])


class Added(NamedTuple):
    """What is added to a product, in the order of the further inputs: ``bias``, a number for each channel, or ``c``, of
    the product's shape; at most one of each. ``relu``: of the sum."""

    kinds: tuple[str, ...]
    relu: bool


def added(node: Node) -> Added | None:
    """What a ``contraction`` does after its product, with operands of the product's dtype; None if it does anything
    else. A matrix product of 16 bits may be in f32, a convolution is in its own dtype."""
    op, _ = product(node.attrs)
    whole, count, steps = node.types[0], len(node.inputs) - 2, _steps(node.attrs)
    if any(t.dtype is not whole.dtype for t in node.input_types[2 if op.name == "matmul" else 0 :]):
        return None
    relu = steps[-1][0] == "relu"
    left, running = set(range(1, count + 1)), 0
    for number, (name, read, _) in enumerate(steps[:-1] if relu else steps):
        other = next((i for i in read if i in left), None)
        if name != "add" or other is None or sorted(read) != sorted((running, other)):
            return None
        left.remove(other)
        running = count + 1 + number
    if left or (relu and steps[-1][1] != (running,)):
        return None
    channel = 1 if op.name in ("conv", "conv_dgrad") else whole.rank - 1
    kinds = tuple("c" if t.shape == whole.shape else _along(t, whole, channel) for t in node.input_types[2:])
    return Added(kinds, relu) if "" not in kinds and len(set(kinds)) == len(kinds) else None


def _along(bias: TensorType, whole: TensorType, axis: int) -> str:
    """``bias`` if its elements are those of an axis of the whole tensor, else nothing."""
    shape = (1,) * (whole.rank - bias.rank) + bias.shape
    return "bias" if shape == tuple(size if n == axis else 1 for n, size in enumerate(whole.shape)) else ""


def summands(node: Node) -> tuple[str, ...] | None:
    """The ``kinds`` of what a ``contraction`` adds to its product; None if it does anything else."""
    found = added(node)
    return None if found is None or found.relu else found.kinds


def _steps(attrs: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...], Any]]:
    return [(name, tuple(map(int, read)), each) for name, read, each in attrs["body"]]


def with_epilogue(first: Node, last: Node, others: Sequence[Value], body: tuple[Attr, ...]) -> Node:
    """The node that replaces a product and ``last``, the pointwise node that reads it. ``body``: its
    steps, whose inputs are the product and ``others``."""
    each: Attr = tuple(sorted(first.attrs.items()))
    attrs: dict[str, Attr] = {"product": first.op.name, "each": each, "body": body}
    return Node(
        contraction, (*first.inputs, *others), last.types, attrs,
        name=last.name, span=last.span, phase=last.phase, origins=origins_of((first, last)),
    )  # fmt: skip
