"""Regions of the optimizers' steps: parameter and slots in one pass, a flag where a gradient was not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import Access, RegionBuilder, dense
from dslc.compiler.ir.graph import Attrs, Node
from dslc.compiler.ir.scalar import Expr, as_expr, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr


class _Step:
    """What a formula reads. ``let`` names an intermediate value of the parameter's dtype, ``wide`` one of f64."""

    def __init__(self, builder: RegionBuilder, dtype: DType, slots: int, attrs: Attrs) -> None:
        self.builder, self.dtype, self.attrs = builder, dtype, attrs
        self.p, self.g = builder.input(0), builder.input(1)
        self.slots = [builder.input(2 + i) for i in range(slots)]
        self.rate = builder.input(2 + slots)
        self.step = builder.input(3 + slots)

    def let(self, expr: Expr) -> Expr:
        return self.builder.let(expr, self.dtype)

    def wide(self, expr: Expr) -> Expr:
        return self.builder.let(expr, DType.F64)

    def number(self, name: str) -> float:
        return float_attr(self.attrs, name)

    def decayed(self) -> Expr:
        """The gradient with weight decay as a term of the loss."""
        decay = self.number("weight_decay")
        return self.let(self.g + self.p * decay) if decay else self.g


def _sgd(s: _Step) -> list[Expr]:
    return [s.p - s.rate * s.decayed()]


def _momentum(s: _Step) -> list[Expr]:
    g, momentum = s.decayed(), s.number("momentum")
    buf = s.let(s.slots[0] * momentum + g)
    return [s.p - s.rate * (g + buf * momentum if bool_attr(s.attrs, "nesterov") else buf), buf]


def _adam(s: _Step) -> list[Expr]:
    beta1, beta2 = s.number("beta1"), s.number("beta2")
    rate, t = s.wide(s.rate), s.wide(s.builder.let(s.step + 1, DType.I64))
    # 1 - beta^t = -expm1(t * log(beta)), without cancellation
    correct1, correct2 = (
        s.wide(-call("expm1", t * (math.log(beta) if beta else -math.inf))) for beta in (beta1, beta2)
    )
    p, g = s.p, s.g
    if bool_attr(s.attrs, "decoupled"):
        p = s.let(p * s.let(1 - rate * s.number("weight_decay")))
    else:
        g = s.decayed()
    root, pace = s.let(call("sqrt", correct2)), s.let(rate / correct1)
    m = s.let(s.slots[0] + (g - s.slots[0]) * (1 - beta1))
    v = s.let(s.slots[1] * beta2 + g * g * (1 - beta2))
    return [p - pace * (m / (call("sqrt", v) / root + s.number("eps"))), m, v]


def _rms_direction(s: _Step) -> tuple[Expr, Expr]:
    g, alpha = s.decayed(), s.number("alpha")
    square = s.let(s.slots[0] * alpha + g * g * (1 - alpha))
    return s.let(g / (call("sqrt", square) + s.number("eps"))), square


def _rmsprop(s: _Step) -> list[Expr]:
    direction, square = _rms_direction(s)
    return [s.p - s.rate * direction, square]


def _rmsprop_momentum(s: _Step) -> list[Expr]:
    direction, square = _rms_direction(s)
    buf = s.let(s.slots[1] * s.number("momentum") + direction)
    return [s.p - s.rate * buf, square, buf]


_FORMULAS: Final[Mapping[str, Callable[[_Step], list[Expr]]]] = {
    "sgd_update": _sgd,
    "sgd_momentum_update": _momentum,
    "adam_update": _adam,
    "rmsprop_update": _rmsprop,
    "rmsprop_momentum_update": _rmsprop_momentum,
}


def update(node: Node) -> list[Launch]:
    """Two launches: the flag is cleared, then the step. Elements whose gradient is not finite stay as they are."""
    shape, dtype = node.types[0].ints, node.types[0].dtype
    own, one = Access(dtype, dense(shape)), (0,) * len(shape)
    slots = len(node.outputs) - 2
    inputs = [*[own] * (2 + slots), Access(dtype, one), Access(DType.I64, one)]
    builder = RegionBuilder(shape, (), inputs, [*[own] * (1 + slots), Access(DType.B1, one)])
    builder.row()
    step = _Step(builder, dtype, slots, node.attrs)
    new = _FORMULAS[node.op.name](step)
    finite = builder.let(call("abs", step.g) < math.inf, DType.B1)
    for number, (value, old) in enumerate(zip(new, (step.p, *step.slots))):
        builder.store(number, step.let(select(finite, value, old)))
    builder.raise_flag(1 + slots, builder.let(call("not", finite), DType.B1))
    clear = RegionBuilder((), (), [], [Access(DType.B1, ())])
    clear.row()
    clear.store(0, clear.let(as_expr(False), DType.B1))
    flag = node.outputs[-1]
    return [Launch(clear.region(), (), (flag,)), Launch(builder.region(), node.inputs, node.outputs)]


LOWERED: Final[Mapping[str, Any]] = dict.fromkeys(_FORMULAS, update)
