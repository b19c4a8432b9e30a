"""Regions of optimizer updates: parameter and slots in one pass, and a flag if a gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region, dense
from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops import registry
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.optimizer.formula import Formula, Operands
from dslc.compiler.ops.optimizer.multi_update import member, parted


class _Step(Operands):
    """Operands of an update formula in a region. ``narrow``: the gradient has a smaller dtype, whose values the
    parameter's dtype all represents."""

    def __init__(self, builder: RegionBuilder, dtype: DType, slots: int, attrs: Attrs, narrow: bool = False) -> None:
        self.builder, self.dtype, self.attrs = builder, dtype, attrs
        self.p, self.g = builder.input(0), builder.let(builder.input(1), dtype) if narrow else builder.input(1)
        if "parts" in attrs:
            self.g = builder.let(self.g / float_attr(attrs, "parts"), dtype)
        self.slots = [builder.input(2 + i) for i in range(slots)]
        self.rate = builder.input(2 + slots)
        self.step = builder.input(3 + slots)
        self.trust = builder.input(4 + slots)  # only for ops in _TRUSTS

    def let(self, expr: Expr) -> Expr:
        return self.builder.let(expr, self.dtype)

    def wide(self, expr: Expr) -> Expr:
        return self.builder.let(expr, DType.F64)

    def count(self) -> Expr:
        return self.wide(self.builder.let(self.step + 1, DType.I64))

    def known(self) -> Expr:
        """The gradient, 0 if it is not finite."""
        return self.let(select(call("abs", self.g) < math.inf, self.g, 0.0))

    def lengths(self, *values: Expr) -> list[Expr]:
        """The Euclidean norms over the whole tensor; expects an open element stage and leaves a row stage open."""
        squares = [self.let(value * value) for value in values]
        sums = [self.builder.reduce("sum", square) for square in squares]
        self.builder.row()
        return [self.let(call("sqrt", total)) for total in sums]


def _sgd(s: _Step) -> list[Expr]:
    return [s.p - s.rate * s.decayed()]


def _momentum(s: _Step) -> list[Expr]:
    g, momentum = s.decayed(), s.number("momentum")
    buf = s.let(s.slots[0] * momentum + g)
    return [s.p - s.rate * (g + buf * momentum if s.flag("nesterov") else buf), buf]


def _corrections(s: _Step) -> list[Expr]:
    """1 - beta^t, in f64."""
    t = s.count()
    return [s.rest(name, t) for name in ("beta1", "beta2")]


def _adam(s: _Step) -> list[Expr]:
    beta1, beta2, rate = s.number("beta1"), s.number("beta2"), s.wide(s.rate)
    correct1, correct2 = _corrections(s)
    p, g = s.p, s.g
    if s.flag("decoupled"):
        p = s.let(p * s.let(1 - rate * s.number("weight_decay")))
    else:
        g = s.decayed()
    root, pace = s.let(call("sqrt", correct2)), s.let(rate / correct1)
    m = s.let(s.slots[0] + (g - s.slots[0]) * (1 - beta1))
    v = s.let(s.slots[1] * beta2 + g * g * (1 - beta2))
    return [p - pace * (m / (call("sqrt", v) / root + s.number("eps"))), m, v]


def _rms_direction(s: _Step, centered: bool) -> tuple[Expr, list[Expr]]:
    """The direction and the new mean square; if ``centered``, also the new mean."""
    g, alpha = s.decayed(), s.number("alpha")
    square = s.let(s.slots[0] * alpha + g * g * (1 - alpha))
    new, spread = [square], square
    if centered:
        mean = s.let(s.slots[1] + (g - s.slots[1]) * (1 - alpha))
        spread = s.let(call("max", square - mean * mean, 0.0))  # rounding may make it negative
        new.append(mean)
    return s.let(g / (call("sqrt", spread) + s.number("eps"))), new


def _rmsprop(s: _Step, centered: bool = False) -> list[Expr]:
    direction, new = _rms_direction(s, centered)
    return [s.p - s.rate * direction, *new]


def _rmsprop_momentum(s: _Step, centered: bool = False) -> list[Expr]:
    direction, new = _rms_direction(s, centered)
    buf = s.let(s.slots[-1] * s.number("momentum") + direction)
    return [s.p - s.rate * buf, *new, buf]


def _lamb_direction(s: _Step) -> list[Expr]:
    """The direction and the new moments; a gradient that is not finite counts as 0."""
    beta1, beta2 = s.number("beta1"), s.number("beta2")
    correct1, correct2 = _corrections(s)
    first, root, g = s.let(correct1), s.let(call("sqrt", correct2)), s.known()
    m = s.let(s.slots[0] + (g - s.slots[0]) * (1 - beta1))
    v = s.let(s.slots[1] * beta2 + g * g * (1 - beta2))
    below = s.let(call("sqrt", v) / root + s.number("eps"))
    return [s.let(m / first / below + s.p * s.number("weight_decay")), m, v]


def _lamb(s: _Step) -> list[Expr]:
    direction, *new = _lamb_direction(s)
    return [s.p - s.rate * s.trust * direction, *new]


def _lars(s: _Step) -> list[Expr]:
    buf = s.let(s.slots[0] * s.number("momentum") + s.trust * s.decayed())
    return [s.p - s.rate * buf, buf]


def _lamb_trust(s: _Step) -> Expr:
    """The ratio |param| / |direction|, 1 if one of them is 0."""
    of_param, of_step = s.lengths(s.p, _lamb_direction(s)[0])
    both = s.builder.let(call("and", of_param > 0, of_step > 0), DType.B1)
    return s.let(select(both, of_param / of_step, 1.0))


def _lars_trust(s: _Step) -> Expr:
    """trust_coefficient * |param| / (|grad| + weight_decay*|param| + eps), 1 if one of the norms is 0."""
    of_param, of_grad = s.lengths(s.p, s.known())
    both = s.builder.let(call("and", of_param > 0, of_grad > 0), DType.B1)
    below = of_grad + of_param * s.number("weight_decay") + s.number("eps")
    return s.let(select(both, of_param * s.number("trust_coefficient") / below, 1.0))


_FORMULAS: Final[Mapping[str, Callable[[_Step], list[Expr]]]] = {
    "sgd_update": _sgd,
    "sgd_momentum_update": _momentum,
    "adam_update": _adam,
    "rmsprop_update": _rmsprop,
    "rmsprop_momentum_update": _rmsprop_momentum,
    "rmsprop_centered_update": partial(_rmsprop, centered=True),
    "rmsprop_centered_momentum_update": partial(_rmsprop_momentum, centered=True),
    "lamb_update": _lamb,
    "lars_update": _lars,
}
#: Ops whose update needs one number of the whole tensor, computed into scratch by a launch before.
_TRUSTS: Final[Mapping[str, Callable[[_Step], Expr]]] = {"lamb_update": _lamb_trust, "lars_update": _lars_trust}


def _formula(name: str) -> Callable[[_Step], Sequence[Expr]]:
    op = OPS[name]
    return op.formula if isinstance(op, Formula) else _FORMULAS[name]


@lowers(*_FORMULAS, *(name for name, op in registry.ops().items() if isinstance(op, Formula)))
def update(node: Node) -> list[Launch]:
    """Clears the flag, then computes the number of the whole tensor if the op needs one, then the update. Elements
    whose gradient is not finite stay as they are."""
    name, attrs, of = node.op.name, node.attrs, node.types[0]
    trust = _TRUSTS.get(name)
    reads: tuple[Value | Scratch, ...] = node.inputs
    before = []
    if trust is not None:
        found = Scratch(0, of.dtype.itemsize)
        before = [Launch(_of_tensor(trust, node), reads, (found,))]
        reads = (*reads, found)
    flag = node.outputs[-1]
    step = region(name, attrs, of.dtype, of.ints, len(node.outputs) - 2)
    return [_cleared(flag), *before, Launch(step, reads, node.outputs)]


@lowers("multi_update")
def multi_update(node: Node) -> list[Launch]:
    """Clears the flags, then updates each parameter. A target may merge the updates into one launch."""
    op, each = member(node.attrs)
    states, grads, scalars = parted(node.inputs, op)
    *outputs, flags = node.outputs
    launches = [_cleared(flags)]
    for number, (own, grad) in enumerate(zip(states, grads)):
        step = region(op.name, each, own[0].type.dtype, grad.type.ints, op.slots, number, grad.type.dtype)
        new = outputs[number * len(own) : (number + 1) * len(own)]
        launches.append(Launch(step, (own[0], grad, *own[1:], *scalars), (*new, flags)))
    return launches


def region(
    name: str,
    attrs: Mapping[str, Any],
    dtype: DType,
    shape: Sequence[int],
    slots: int,
    flag: int = 0,
    grad: DType | None = None,
) -> Region:
    """The region of an update op. It reads parameter, gradient, slots, lr, step, and the number of ``_TRUSTS`` if the
    op has one. It writes the new parameter and slots, and flags, of which element ``flag`` is set. ``grad``: the
    gradient's dtype, by default the parameter's."""
    inputs = _inputs(dtype, shape, slots)
    inputs[1] = Access(grad or dtype, inputs[1].strides)
    if name in _TRUSTS:
        inputs.append(Access(dtype, (0,) * len(shape)))
    outputs = [*[Access(dtype, dense(shape))] * (1 + slots), Access(DType.B1, (0,) * len(shape), flag)]
    builder = RegionBuilder(shape, (), inputs, outputs)
    builder.row()
    step = _Step(builder, dtype, slots, attrs, narrow=inputs[1].dtype is not dtype)
    new = _formula(name)(step)
    finite = builder.let(call("abs", step.g) < math.inf, DType.B1)
    for number, (value, old) in enumerate(zip(new, (step.p, *step.slots))):
        builder.store(number, step.let(select(finite, value, old)))
    builder.set_flag(1 + slots, builder.let(call("not", finite), DType.B1))
    return builder.region()


def _inputs(dtype: DType, shape: Sequence[int], slots: int) -> list[Access]:
    own, one = Access(dtype, dense(shape)), (0,) * len(shape)
    return [*[own] * (2 + slots), Access(dtype, one), Access(DType.I64, one)]


@lowers("nonfinite")
def nonfinite(node: Node) -> list[Launch]:
    """Clears the flags, then checks each tensor with a launch. A target may merge them into one launch."""
    checks = [
        Launch(check_finite(value.type.dtype, value.type.ints, number), (value,), node.outputs)
        for number, value in enumerate(node.inputs)
    ]
    return [_cleared(node.out), *checks]


def check_finite(dtype: DType, shape: Sequence[int], flag: int = 0) -> Region:
    """Sets a flag if an element is not finite."""
    outputs = [Access(DType.B1, (0,) * len(shape), flag)]
    builder = RegionBuilder(shape, (), [Access(dtype, dense(shape))], outputs)
    builder.row()
    finite = builder.let(call("abs", builder.input(0)) < math.inf, DType.B1)
    builder.set_flag(0, builder.let(call("not", finite), DType.B1))
    return builder.region()


def _cleared(flags: Value) -> Launch:
    builder = RegionBuilder(flags.type.ints, (), [], [Access(DType.B1, dense(flags.type.ints))])
    builder.row()
    builder.store(0, builder.let(as_expr(False), DType.B1))
    return Launch(builder.region(), (), (flags,))


def _of_tensor(trust: Callable[[_Step], Expr], node: Node) -> Region:
    """One number reduced from all elements."""
    shape, dtype = node.types[0].ints, node.types[0].dtype
    inputs = _inputs(dtype, shape, len(node.outputs) - 2)
    builder = RegionBuilder((), shape, inputs, [Access(dtype, (0,) * len(shape))])
    builder.element()
    builder.store(0, trust(_Step(builder, dtype, len(node.outputs) - 2, node.attrs)))
    return builder.region()
