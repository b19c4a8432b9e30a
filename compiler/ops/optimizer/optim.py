"""Optimizer steps as ops: inputs are a parameter, its gradient and its slots, outputs the new ones.

sgd and adam here, the others in rmsprop.py and layerwise.py. The formulas are PyTorch's, so a run can continue in
either. Elements whose gradient is not finite are left alone, in the parameter and in the slots, and a flag
tells that there were some.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir.graph import Attrs, Node, Value
from dslc.compiler.ir.op import Builder, Cost, NoGradient, Op, register
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.lazy import np

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Update(Op):
    """Inputs: the parameter, its gradient, ``slots`` tensors of the same type, the learning rate ``[]`` of that dtype,
    and the step i64[] from 0. Outputs: the new parameter, the new slots, a flag b1[]. Elementwise except for the
    flag, or ``layerwise``: also by norms of the whole tensor. With the attribute ``parts``, a float, the gradient is a
    sum of so many, and its mean is taken. A subclass defines ``slots``, ``flops`` per element and ``updated``."""

    slots: ClassVar[int]
    flops: ClassVar[int]
    layerwise: ClassVar[bool] = False
    kernel_kind = "updates"

    @property
    def inplace(self) -> tuple[tuple[int, int], ...]:  # type: ignore[override]
        return (0, 0), *((2 + i, 1 + i) for i in range(self.slots))

    @abstractmethod
    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        """The new parameter and slots, of p's dtype; ``t`` counts steps from 1, ``lr`` is the rate in f64."""

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        param, *same, lr, step = types
        assert len(same) == 1 + self.slots, f"{self.name} takes {self.slots} slots"
        assert param.dtype.is_float and all(t == param for t in same), f"{self.name}: {param} and {same}"
        assert lr == TensorType(param.dtype, ()) and step == TensorType(DType.I64, ())
        return (*[param] * (1 + self.slots), TensorType(DType.B1, ()))

    def grad(self, node: Node, dys: Sequence[Value | None], b: Builder) -> Sequence[Value | None]:
        raise NoGradient("no gradient flows through an optimizer's step")

    def meaning(self, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
        p, g, *slots, lr, step = xs
        if "parts" in attrs:
            with np.errstate(all="ignore"):
                g = g / g.dtype.type(attrs["parts"])
        finite = np.isfinite(g)
        if not finite.all():
            g = np.where(finite, g, g.dtype.type(0))  # such an element counts as 0 in norms of the whole tensor
        with np.errstate(all="ignore"):
            new = self.updated(p, g, slots, float(lr), int(step) + 1, attrs)
        if finite.all():
            return *map(np.asarray, new), np.array(False)  # numpy turns rank 0 into scalars
        return *[np.where(finite, a, old) for a, old in zip(new, (p, *slots))], np.array(True)

    def cost(self, node: Node) -> Cost:
        elements = math.prod(node.types[0].ints)
        return Cost(self.flops * elements, sum(t.bytes for t in (*node.input_types, *node.types)))


def decayed(p: Array, g: Array, attrs: Mapping[str, Any]) -> Array:
    """The gradient plus weight decay as an L2 term of the loss."""
    return g + p.dtype.type(attrs["weight_decay"]) * p if attrs["weight_decay"] else g


class SgdUpdate(Update):
    """sgd_update(param, grad, lr, step): ``param - lr * (grad + weight_decay * param)``.

    Outputs: the new parameter, and a flag b1[]: true if a gradient was not finite. Attribute ``weight_decay``.
    """

    name = "sgd_update"
    slots = 0
    flops = 4

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        return (p - p.dtype.type(lr) * decayed(p, g, attrs),)


class SgdMomentumUpdate(Update):
    """sgd_momentum_update(param, grad, buf, lr, step): gradient descent with momentum (Sutskever et al. 2013).

    ``g = grad + weight_decay*param; buf' = momentum*buf + g``; the parameter decreases by ``lr * buf'``, or with
    ``nesterov`` by ``lr * (g + momentum*buf')``. Outputs: parameter, buf', flag. Attributes ``momentum``, ``nesterov``,
    ``weight_decay``. As in PyTorch without dampening; the buffer starts at 0, which is equivalent.
    """

    name = "sgd_momentum_update"
    slots = 1
    flops = 8

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        momentum = p.dtype.type(attrs["momentum"])
        g = decayed(p, g, attrs)
        buf = momentum * slots[0] + g
        return p - p.dtype.type(lr) * (g + momentum * buf if attrs["nesterov"] else buf), buf


class AdamUpdate(Update):
    """adam_update(param, grad, m, v, lr, step): Adam (Kingma and Ba 2015), or AdamW (Loshchilov and Hutter 2019).

    ``m' = m + (1 - beta1)*(g - m); v' = beta2*v + (1 - beta2)*g^2``, and with t = step + 1 the parameter decreases by
    ``lr/(1 - beta1^t) * m' / (sqrt(v')/sqrt(1 - beta2^t) + eps)``. Weight decay is added to the gradient, or if
    ``decoupled`` first scales the parameter by ``1 - lr*weight_decay``. The corrections are computed in f64 and rounded
    once. Outputs: parameter, m', v', flag. Attributes ``beta1``, ``beta2``, ``eps``, ``weight_decay``, ``decoupled``.
    """

    name = "adam_update"
    slots = 2
    flops = 16

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        inner, (m, v) = p.dtype.type, slots
        beta1, beta2 = attrs["beta1"], attrs["beta2"]
        if attrs["decoupled"]:
            p = p * inner(1 - lr * attrs["weight_decay"])
        else:
            g = decayed(p, g, attrs)
        m = m + inner(1 - beta1) * (g - m)
        v = inner(beta2) * v + inner(1 - beta2) * (g * g)
        below = np.sqrt(v) / inner(math.sqrt(1 - beta2**t)) + inner(attrs["eps"])
        return p - inner(lr / (1 - beta1**t)) * (m / below), m, v


sgd_update = register(SgdUpdate())
sgd_momentum_update = register(SgdMomentumUpdate())
adam_update = register(AdamUpdate())
