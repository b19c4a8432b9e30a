"""Elementwise updates whose rule is written once, as expressions: numpy evaluates them, and kernels are made of them.

A new optimizer is a file in this folder with a ``Formula`` and an ``OfOneOp`` that names it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dslc.compiler.ir import scalar as tree
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.optimizer.optim import Update

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Operands(ABC):
    """What a formula computes with: the parameter ``p``, its gradient ``g``, its ``slots``, the learning rate ``rate``
    and ``step`` from 0."""

    attrs: Mapping[str, Any]
    p: Expr
    g: Expr
    slots: list[Expr]
    rate: Expr
    step: Expr

    @abstractmethod
    def let(self, expr: Expr) -> Expr:
        """Names an intermediate value, rounded to the parameter's dtype."""

    @abstractmethod
    def wide(self, expr: Expr) -> Expr:
        """Names an intermediate value of f64."""

    @abstractmethod
    def count(self) -> Expr:
        """The number of the step from 1, in f64."""

    def number(self, name: str) -> float:
        return float_attr(self.attrs, name)

    def flag(self, name: str) -> bool:
        return bool_attr(self.attrs, name)

    def decayed(self) -> Expr:
        """The gradient plus weight decay as an L2 term of the loss."""
        decay = self.number("weight_decay")
        return self.let(self.g + self.p * decay) if decay else self.g

    def shrunk(self) -> Expr:
        """The parameter after decoupled weight decay: times ``1 - lr*weight_decay``."""
        decay = self.number("weight_decay")
        return self.let(self.p * self.let(1 - self.wide(self.rate) * decay)) if decay else self.p

    def by_decay(self) -> tuple[Expr, Expr]:
        """The parameter and the gradient after weight decay, of which the attribute ``decoupled`` is true or false."""
        return (self.shrunk(), self.g) if self.flag("decoupled") else (self.p, self.decayed())

    def rest(self, name: str, t: Expr) -> Expr:
        """``1 - beta^t`` of a coefficient, in f64 without cancellation."""
        beta = self.number(name)
        return self.wide(-tree.call("expm1", t * (math.log(beta) if beta else -math.inf)))

    def mean(self, slot: int, name: str, value: Expr) -> Expr:
        """The running mean in a slot with ``value`` added: ``m + (1 - beta)*(value - m)``."""
        old = self.slots[slot]
        return self.let(old + (value - old) * (1 - self.number(name)))

    def square(self, slot: int, name: str, value: Expr) -> Expr:
        """The running mean in a slot with the square of ``value`` added: ``beta*v + (1 - beta)*value^2``."""
        beta = self.number(name)
        return self.let(self.slots[slot] * beta + value * value * (1 - beta))


class Arrays(Operands):
    """Operands that are numpy arrays. ``values``: the arrays, of which an expression names the index."""

    def __init__(
        self, p: Array, g: Array, slots: Sequence[Array], rate: float, t: int, attrs: Mapping[str, Any]
    ) -> None:
        self.attrs = attrs
        self.values: list[Array] = [p, g, np.asarray(p.dtype.type(rate)), np.asarray(float(t)), *slots]
        self.p, self.g, self.rate = (tree.argument(i) for i in range(3))
        self.slots = [tree.argument(4 + i) for i in range(len(slots))]

    def let(self, expr: Expr) -> Expr:
        return self._named(self.value(expr))

    def wide(self, expr: Expr) -> Expr:
        return self._named(np.asarray(self._evaluated(expr), np.float64))

    def count(self) -> Expr:
        return tree.argument(3)

    def value(self, expr: Expr) -> Array:
        """An expression's value in the parameter's dtype."""
        return np.asarray(self._evaluated(expr)).astype(self.values[0].dtype, copy=False)

    def _evaluated(self, expr: Expr) -> Any:
        """In f64 if an operand is f64, else in the parameter's dtype."""
        used = _used(expr)
        dtype = np.result_type(self.values[0].dtype, *(self.values[i].dtype for i in used))
        return tree.evaluate(expr, [v.astype(dtype) if i in used or not i else v for i, v in enumerate(self.values)])

    def _named(self, value: Array) -> Expr:
        self.values.append(value)
        return tree.argument(len(self.values) - 1)


def _used(expr: Expr) -> set[int]:
    """The indices of the values that an expression reads."""
    if expr.function == "arg":
        return {expr.index}
    return set().union(*map(_used, expr.args))


class Formula(Update):
    """An elementwise update with one ``formula`` for all targets."""

    @abstractmethod
    def formula(self, s: Operands) -> Sequence[Expr]:
        """The new parameter and the new slots."""

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        s = Arrays(p, g, slots, lr, t, attrs)
        return tuple(np.broadcast_to(s.value(new), p.shape) for new in self.formula(s))
