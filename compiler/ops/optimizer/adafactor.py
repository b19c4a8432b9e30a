"""Adafactor (Shazeer and Stern 2018): the squares of a matrix's gradient are known by rows and columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.compiler.ir.function import Optimizer, optimizer
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.optimizer.checked import CheckedOptimizer, number
from dslc.compiler.ops.optimizer.emitted import Emitted


class Adafactor(CheckedOptimizer):
    """adafactor(lr=0.01, beta2_decay=-0.8, eps=(1.19e-7, 1e-3), d=1, weight_decay=0): Adam with little state.

    Of a tensor ``[..., m, n]`` it keeps the running means of squared gradients by row and by column, m + n numbers
    instead of Adam's 2*m*n (Shazeer and Stern 2018); of a vector, all of them. At step t the coefficient is
    ``1 - t^beta2_decay``. A step is the gradient over the root of its mean square as these estimate it, at least the
    first of ``eps``; its root mean square is limited to ``d``. It is multiplied by ``min(lr, 1/sqrt(t))`` and by the
    parameter's root mean square, at least the second of ``eps``. Before that the parameters shrink by
    ``1 - lr*weight_decay``. As in PyTorch, where the first of ``eps`` is that of the dtype.
    """

    name = "adafactor"
    of_whole_tensors = True
    defaults = {"lr": 1e-2, "beta2_decay": -0.8, "eps": (2.0**-23, 1e-3), "d": 1.0, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        decay = args["beta2_decay"]
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not -1e3 < decay <= 0:
            raise Mismatch(f"`beta2_decay` is {decay}", "a number of at most 0, such as -0.8", "E0209")
        eps = args["eps"]
        if not isinstance(eps, tuple | list) or len(eps) != 2:
            raise Mismatch(f"`eps` is {eps}", "two numbers, such as (1e-7, 1e-3)", "E0209")
        for each in eps:
            number({"eps": each}, "eps")
        for name, value in (("eps", eps[0]), ("d", args["d"])):
            if not number({name: value}, name):
                raise Mismatch(f"`{name}` is {args[name]}", "a divisor is above 0", "E0209")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("row_var", "col_var")

    def slot_type(self, slot: str, param: TensorType) -> TensorType:
        *before, rows, columns = param.shape
        return TensorType(param.dtype, (*before, rows, 1) if slot == "row_var" else (*before, 1, columns))

    def rule(self, args: dict[str, Any], param: TensorType, named: bool) -> tuple[Optimizer, dict[str, Any]]:
        return (self if param.rank > 1 else _OF_VECTORS), args

    def update(
        self, b: Builder, args: dict[str, Any], param: Value, grad: Value, slots: Sequence[Value], lr: Value,
        step: Value,
    ) -> tuple[Value, ...]:  # fmt: skip
        e = Emitted(b, param.type.dtype)
        finite, g = e.known(grad)
        t = e("add", e("cast", step, dtype=param.type.dtype), 1.0)
        new, square = self.squares(e, args, g, finite, slots, e("pow", t, args["beta2_decay"]))
        least, smallest = args["eps"]
        way = e("div", g, e("maximum", e("sqrt", square), least))
        length = e("maximum", e("div", e.size(way), args["d"]), 1.0)
        pace = e("minimum", lr, e("rsqrt", t))
        pace = e("div", e("mul", pace, e("maximum", e.size(param), smallest)), length)
        moved = e("sub", e.shrunk(param, lr, float(args["weight_decay"])), e("mul", way, pace))
        return e("where", finite, moved, param), *new, e.flag(grad)

    def squares(
        self, e: Emitted, args: dict[str, Any], g: Value, finite: Value, slots: Sequence[Value], share: Value
    ) -> tuple[list[Value], Value]:
        """The new slots, and the mean square of each element. ``share``: of the new gradient. Rows and columns with an
        element that is not finite keep their means."""
        rank, new = g.type.rank, []
        ok = e("cast", finite, dtype=e.dtype)
        for slot, axis in zip(slots, (rank - 1, rank - 2)):
            mean = e.toward(slot, e.mean_square(g, (axis,), keep=True), share)
            whole = e("cast", e("min", ok, over=(axis,), keep=True), dtype=DType.B1)
            new.append(e("where", whole, mean, slot))
        rows, columns = new
        of_rows = e("maximum", e("mean", rows, over=(rank - 2,), keep=True), args["eps"][0])
        return new, e("mul", e("div", rows, of_rows), columns)


class _OfVectors(Adafactor):
    """The part for parameters with one axis or none."""

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("variance",)

    def slot_type(self, slot: str, param: TensorType) -> TensorType:
        return param

    def squares(
        self, e: Emitted, args: dict[str, Any], g: Value, finite: Value, slots: Sequence[Value], share: Value
    ) -> tuple[list[Value], Value]:
        mean = e.toward(slots[0], e("mul", g, g), share)
        return [e("where", finite, mean, slots[0])], mean


_OF_VECTORS = _OfVectors()
adafactor = optimizer(Adafactor())
