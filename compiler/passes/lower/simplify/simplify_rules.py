"""Rules of ``simplify``: a node -> a value or node with the same bits, or None. Each rule belongs to one op's name.

Rules look only at the node and the producers of its inputs. None of them changes rounding: ``x + 0`` is not a rule for
floats because -0.0 + 0.0 is 0.0, but ``x - 0`` and ``x + -0.0`` are. A contraction that reads a transposed operand sums
the same numbers; the provider decides whether it adds them in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from math import prod
from typing import Final, TypeAlias

from dslc.compiler.ir.graph import Node, Value, made_by
from dslc.compiler.ir.op import OPS, Builder, Pointwise
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.passes.lower.simplify.rolled import rolled_once, round_an_axis
from dslc.compiler.passes.lower.simplify.row_indices import added_rows, gathered_rows, reduced_rows

_FEW: Final = 4096  # elements that a kernel casts in less time than its launch takes
_FEW_OF: Final = 8  # a part is small if the whole has so many times as many elements

Rule: TypeAlias = Callable[[Node], "Value | Node | None"]


def rewritten(node: Node) -> Value | Node | None:
    """The replacement of the node if a rule applies, else None."""
    rule = _RULES.get(node.op.name)
    return rule(node) if rule is not None else None


def _is(value: Value, number: float) -> bool:
    """Whether a value is this constant everywhere, the sign of zero included."""
    made = made_by(value, "full")
    if made is None:
        return False
    have = made.attrs["value"]
    if isinstance(have, bool) or not isinstance(have, int | float) or have != number:
        return False
    return not value.type.dtype.is_float or math.copysign(1.0, have) == math.copysign(1.0, number)


def _same_type(value: Value, node: Node) -> bool:
    return value.type == node.types[0]


def _always_first(node: Node) -> Value:
    return node.inputs[0]


def _mul(node: Node) -> Value | None:
    a, b = node.inputs
    if _is(b, 1) and _same_type(a, node):
        return a
    return b if _is(a, 1) and _same_type(b, node) else None


def _div(node: Node) -> Value | None:
    a, b = node.inputs
    return a if node.types[0].dtype.is_float and _is(b, 1) and _same_type(a, node) else None


def _add(node: Node) -> Value | None:
    a, b = node.inputs
    nothing = -0.0 if node.types[0].dtype.is_float else 0
    if _is(b, nothing) and _same_type(a, node):
        return a
    return b if _is(a, nothing) and _same_type(b, node) else None


def _sub(node: Node) -> Value | None:
    a, b = node.inputs
    return a if _is(b, 0) and _same_type(a, node) else None


def _neg(node: Node) -> Value | None:
    inner = made_by(node.inputs[0], "neg")
    return inner.inputs[0] if inner is not None else None


def _logical_not(node: Node) -> Value | None:
    inner = made_by(node.inputs[0], "logical_not")
    return inner.inputs[0] if inner is not None and _same_type(inner.inputs[0], node) else None


def _cast(node: Node) -> Value | Node | None:
    """A cast to the operand's own dtype, or to a wider float and back. A cast to a narrower dtype comes before a
    reshape of what a pointwise op computes, so that the op's kernel rounds its result."""
    x = node.inputs[0]
    if _same_type(x, node):
        return x
    inner = made_by(x, "cast")
    if inner is not None and widens(inner) and _same_type(inner.inputs[0], node):
        return inner.inputs[0]
    view = made_by(x, "reshape")
    if view is None or not is_pointwise(view.inputs[0]) or node.types[0].bytes >= x.type.bytes:
        return None
    at = _at(node)
    return at.node(view.op, at(node.op, view.inputs[0], **node.attrs), **view.attrs)


def _where(node: Node) -> Node | None:
    """A condition that is negated selects the other way round."""
    inner = made_by(node.inputs[0], "logical_not")
    if inner is None or inner.input_types[0].dtype is not DType.B1:
        return None
    return node.with_inputs((inner.inputs[0], node.inputs[2], node.inputs[1]))


def _reshape(node: Node) -> Value | Node | None:
    x = node.inputs[0]
    if _same_type(x, node):
        return x
    inner = made_by(x, "reshape")
    if inner is not None:
        return node.with_inputs(inner.inputs)
    inner = made_by(x, "expand")
    number = inner is not None and inner.input_types[0].rank == 0
    return _expanded(node, inner.inputs[0]) if inner is not None and number else _filled(node)


def _expand(node: Node) -> Value | Node | None:
    if _same_type(node.inputs[0], node):
        return node.inputs[0]
    inner = made_by(node.inputs[0], "expand")
    return _expanded(node, inner.inputs[0]) if inner is not None else _filled(node)


def _expanded(node: Node, x: Value) -> Node:
    """``x`` expanded to the shape of the node's result."""
    return _at(node).node(OPS["expand"], x, shape=node.types[0].shape)


def _filled(node: Node) -> Node | None:
    """A constant in the node's shape."""
    made = made_by(node.inputs[0], "full")
    return None if made is None else _at(node).node(made.op, **{**made.attrs, "shape": node.types[0].shape})


def _perm(node: Node) -> tuple[int, ...]:
    perm = node.attrs["perm"]
    assert isinstance(perm, tuple)
    return tuple(axis for axis in perm if isinstance(axis, int))


def _transpose(node: Node) -> Value | Node | None:
    perm = _perm(node)
    if perm == tuple(range(len(perm))):
        return node.inputs[0]
    spread = made_by(node.inputs[0], "expand")
    if spread is not None:
        turned = _turned(node, spread.inputs[0], perm)
        return None if turned is None else _expanded(node, turned)
    inner = made_by(node.inputs[0], "transpose")
    if inner is None:
        return None
    first = _perm(inner)
    return _at(node).node(node.op, inner.inputs[0], perm=tuple(first[axis] for axis in perm))


def _turned(node: Node, x: Value, perm: tuple[int, ...]) -> Value | None:
    """What was expanded before a transpose, with its axes in that order; None if that takes two nodes."""
    at, shape = _at(node), (*(1,) * (len(perm) - x.type.rank), *x.type.ints)
    moving = [axis for axis in perm if shape[axis] != 1]
    if moving == sorted(moving):
        return at(OPS["reshape"], x, shape=tuple(shape[axis] for axis in perm))
    return at(OPS["transpose"], x, perm=perm) if x.type.rank == len(perm) else None


def _matmul(node: Node) -> Node | None:
    """Turns a transpose of the last two axes into a flag of the contraction."""
    for i, flag in enumerate(("transpose_a", "transpose_b")):
        made = made_by(node.inputs[i], "transpose")
        if made is None:
            continue
        perm = _perm(made)
        rank = len(perm)
        if rank < 2 or perm != (*range(rank - 2), rank - 1, rank - 2):
            continue
        inputs = [*node.inputs]
        inputs[i] = made.inputs[0]
        attrs = {**node.attrs, flag: not node.attrs[flag]}
        return _at(node).node(node.op, *inputs, **attrs)
    return None


def _dropout(node: Node) -> Value | None:
    """Nothing is dropped with probability 0."""
    return node.inputs[0] if node.attrs["p"] == 0 else None


def _slice(node: Node) -> Value | Node | None:
    """All of a tensor is the tensor. A part that is small, or of a small tensor, is cast after it is taken out:
    whatever else reads the tensor, few elements are cast."""
    if node.types == node.input_types and all(step == 1 for step in int_tuple(node.attrs, "steps")):
        return node.inputs[0]
    made = made_by(node.inputs[0], "cast")
    whole = prod(node.input_types[0].ints)
    if made is None or (whole > _FEW and prod(node.types[0].ints) * _FEW_OF > whole):
        return None
    at = _at(node)
    return at.node(made.op, at(node.op, made.inputs[0], **node.attrs), **made.attrs)


def _pad(node: Node) -> Value | None:
    """The tensor itself if nothing is added."""
    return node.inputs[0] if node.types == node.input_types else None


def _resampled(node: Node) -> Value | None:
    """An image whose sizes all stay, in every mode; so its gradient."""
    return node.inputs[0] if node.types == node.input_types else None


def _nonfinite(node: Node) -> Node | None:
    """Whether all elements are finite does not depend on their order or on widening casts."""
    inputs = [_unmoved(value) for value in node.inputs]
    return None if all(a is b for a, b in zip(inputs, node.inputs)) else _at(node).node(node.op, *inputs)


def _unmoved(value: Value) -> Value:
    made = value.producer
    while isinstance(made, Node) and (made.op.name in ("reshape", "transpose") or widens(made)):
        value = made.inputs[0]
        made = value.producer
    return value


def widens(node: Node) -> bool:
    """Whether a node casts floats to wider ones, which hold each of their numbers."""
    if node.op.name != "cast":
        return False
    source, to = node.input_types[0].dtype, node.types[0].dtype
    return (source.is_half and to in (DType.F32, DType.F64)) or (source is DType.F32 and to is DType.F64)


def is_pointwise(value: Value) -> bool:
    return isinstance(value.producer, Node) and isinstance(value.producer.op, Pointwise)


def _at(node: Node) -> Builder:
    return Builder().at(node, node.phase)


_RULES: Final[Mapping[str, Rule]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "logical_not": _logical_not,
    "where": _where,
    "cast": _cast,
    "stop_gradient": _always_first,  # autodiff has already run
    "reshape": _reshape,
    "expand": _expand,
    "transpose": _transpose,
    "matmul": _matmul,
    "dropout": _dropout,
    "nonfinite": _nonfinite,
    "pad": _pad,
    "interpolate": _resampled,
    "interpolate_grad": _resampled,
    "adaptive_avgpool": _resampled,
    "adaptive_avgpool_grad": _resampled,
    "slice": _slice,
    "concat": round_an_axis,
    "roll": rolled_once,
    "gather": gathered_rows,
    "scatter_add": added_rows,
    "scatter_reduce": reduced_rows,
}
