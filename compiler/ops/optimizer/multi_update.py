"""``multi_update``: the optimizer's step of several parameters as one node. The fuse pass makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dslc.compiler.ir.graph import Attr, Attrs, Node, Value, origins_of
from dslc.compiler.ir.op import OPS, Builder, Cost, Mismatch, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.optimizer.optim import Update

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array

T = TypeVar("T")
MAX_PARAMS: Final = 64  # per node: a kernel's arguments are limited
_MAX_STATES: Final = 4 * MAX_PARAMS


class MultiUpdate(Op):
    """multi_update(states..., grads..., lr, step): one optimizer's step of several parameters.

    Attributes ``step``, the name of an elementwise update op, and ``each``, its attributes as
    ((name, value), ...). The states are each parameter and its slots, parameter after parameter. Then follow their
    gradients in the same order, which may have 16 bits. Outputs: the new states in their order, and the flags
    b1[parameters]. Every element has the bits of the op's own step with the gradient cast to the state's dtype. With
    the attribute ``together`` a GPU needs one launch for all steps.
    """

    name = "multi_update"
    kernel_kind = "updates"
    inplace = tuple((i, i) for i in range(_MAX_STATES))

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        op, each = member(attrs)
        states, grads, scalars = parted(types, op)
        outputs: list[TensorType] = []
        for own, grad in zip(states, grads):
            assert grad.dtype in (own[0].dtype, DType.BF16, DType.F16)
            *new, _ = op.infer([own[0], TensorType(own[0].dtype, grad.shape), *own[1:], *scalars], each)
            outputs += new
        assert len({grad.dtype for grad in grads}) == 1, "gradients of two dtypes"
        if not 1 <= len(grads) <= MAX_PARAMS:
            raise Mismatch(f"{len(grads)} parameters", f"1 to {MAX_PARAMS}")
        return (*outputs, TensorType(DType.B1, (len(grads),)))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("no gradient flows through an optimizer's step")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        op, each = member(attrs)
        states, grads, scalars = parted(xs, op)
        pairs = [(own, grad.astype(own[0].dtype, copy=False)) for own, grad in zip(states, grads)]
        found = [op.meaning([own[0], grad, *own[1:], *scalars], each) for own, grad in pairs]
        return *(x for new in found for x in new[:-1]), np.array([bool(new[-1]) for new in found])

    def cost(self, node: Node) -> Cost:
        op, _ = member(node.attrs)
        _, grads, _ = parted(node.input_types, op)
        elements = sum(math.prod(t.ints) for t in grads)
        return Cost(op.flops * elements, sum(t.bytes for t in (*node.input_types, *node.types)))


multi_update = register(MultiUpdate())


def member(attrs: Mapping[str, Any]) -> tuple[Update, dict[str, Any]]:
    """The op of each parameter and its attributes; accepts the compiler's form and the JSON form."""
    op = OPS[attrs["step"]]
    assert isinstance(op, Update) and not op.layerwise, f"{op.name} looks at more than an element"
    return op, {name: value for name, value in attrs["each"]}


def parted(inputs: Sequence[T], op: Update) -> tuple[list[Sequence[T]], Sequence[T], Sequence[T]]:
    """The states of each parameter, the gradients, and (lr, step)."""
    size = 1 + op.slots
    count, rest = divmod(len(inputs) - 2, size + 1)
    assert not rest, f"{len(inputs)} inputs do not fit {op.name}"
    states = [inputs[i * size : (i + 1) * size] for i in range(count)]
    return states, inputs[count * size : -2], inputs[-2:]


def merged_updates(nodes: Sequence[Node], name: str, grads: Sequence[Value]) -> Node:
    """The node that replaces ``nodes``: updates of one op, with equal attributes, lr and step. ``grads``: the
    gradients to read, of one dtype."""
    first = nodes[0]
    inputs = [*(v for n in nodes for v in (n.inputs[0], *n.inputs[2:-2])), *grads]
    each: Attr = tuple(sorted(first.attrs.items()))
    types = (*(t for n in nodes for t in n.types[:-1]), TensorType(DType.B1, (len(nodes),)))
    attrs: dict[str, Attr] = {"step": first.op.name, "each": each}
    inputs += first.inputs[-2:]
    return Node(
        multi_update, tuple(inputs), types, attrs,
        name=name, span=first.span, phase=first.phase, origins=origins_of(nodes),
    )  # fmt: skip
