"""Muon (Jordan 2024): momentum, made orthogonal, for matrices; AdamW for the other parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dslc.compiler.ir.function import Optimizer, optimizer
from dslc.compiler.ir.graph import Phase, Value
from dslc.compiler.ir.op import Builder, Mismatch
from dslc.compiler.ir.types import TensorType
from dslc.compiler.ops.optimizer.checked import CheckedOptimizer, number
from dslc.compiler.ops.optimizer.emitted import Emitted
from dslc.compiler.ops.optimizer.optimizers import adamw

#: Of Jordan's quintic, which takes singular values from 0..1 to about 0.7..1.2 in five steps.
_COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
_EPS: Final = 1e-7  # the least norm, as in PyTorch
_MOST_STEPS: Final = 99
_MATRICES: Final = (2, 4)  # ranks: of a matrix, and of the weight of a convolution over two axes
#: The factor of the learning rate of a matrix of m rows and n columns.
_ADJUSTED: Final = {
    "original": lambda m, n: math.sqrt(max(1.0, m / n)),
    "match_rms_adamw": lambda m, n: 0.2 * math.sqrt(max(m, n)),
    "spectral_unclamped": lambda m, n: math.sqrt(m / n),
}


class Muon(CheckedOptimizer):
    """muon(lr=1e-3, momentum=0.95, weight_decay=0.1, adamw=[...], ...): orthogonal steps for matrices (Jordan 2024).

    A matrix moves by ``lr`` times its momentum, of which five steps of Newton and Schulz make all singular values about
    1: in the dtype of the model, as matrix products. Before that it shrinks by ``1 - lr*weight_decay``. The weight
    ``[out, in, k, k]`` of a convolution counts as a matrix of ``out`` rows. ``adjust_lr_fn`` scales the learning rate
    of a matrix of m rows and n columns: ``"original"`` by ``sqrt(max(1, m/n))``, ``"match_rms_adamw"`` by
    ``0.2*sqrt(max(m, n))``, so that learning rates of AdamW fit, ``"spectral_unclamped"`` by ``sqrt(m/n)``.

    ``adamw`` updates the other parameters, with ``adamw_lr``, ``betas`` and ``eps``, which keeps its ratio to ``lr``.
    It should also update embeddings and the last layer: name them, such as ``adamw=["embed", "head"]``, by patterns as
    in ``train.freeze``.
    """

    name = "muon"
    of_whole_tensors = True
    patterns = "adamw"
    defaults = {
        "lr": 1e-3, "momentum": 0.95, "nesterov": True, "ns_steps": 5, "adjust_lr_fn": "original", "adamw": (),
        "adamw_lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1,
    }  # fmt: skip

    def check(self, args: dict[str, Any]) -> None:
        number(args, "momentum", 1)
        steps = number(args, "ns_steps", _MOST_STEPS + 1)
        if steps != int(steps) or not steps:
            raise Mismatch(f"`ns_steps` is {steps:g}", f"a whole number from 1 to {_MOST_STEPS}", "E0209")
        if args["adjust_lr_fn"] not in _ADJUSTED:
            known = ", ".join(f'`"{name}"`' for name in _ADJUSTED)
            raise Mismatch(f"`adjust_lr_fn` is {str(args['adjust_lr_fn'])[:40]!r}", f"one of {known}", "E0209")
        if not args["lr"]:
            raise Mismatch("`lr` is 0, but `adamw_lr` is a multiple of it", "a number above 0", "E0209")
        number(args, "adamw_lr")
        adamw.check(args)

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def rule(self, args: dict[str, Any], param: TensorType, named: bool) -> tuple[Optimizer, dict[str, Any]]:
        if param.rank in _MATRICES and not named:
            return self, args
        own = {"lr": args["adamw_lr"], **{name: args[name] for name in ("betas", "eps", "weight_decay")}}
        return adamw, own

    def update(
        self, b: Builder, args: dict[str, Any], param: Value, grad: Value, slots: Sequence[Value], lr: Value,
        step: Value,
    ) -> tuple[Value, ...]:  # fmt: skip
        e, [buffer], shape = Emitted(b, param.type.dtype), slots, param.type.ints
        rows, columns = shape[0], math.prod(shape[1:])
        finite, g = e.known(grad)
        mean = e.toward(buffer, g, 1 - args["momentum"])
        way = e.toward(g, mean, args["momentum"]) if args["nesterov"] else mean
        matrix = e("reshape", way, shape=(rows, columns))
        move = e("reshape", orthogonal(e, matrix, int(args["ns_steps"])), shape=shape)
        pace = e("mul", lr, _ADJUSTED[args["adjust_lr_fn"]](rows, columns) if rows and columns else 1.0)
        moved = e("sub", e.shrunk(param, lr, float(args["weight_decay"])), e("mul", move, pace))
        return e("where", finite, moved, param), e("where", finite, mean, buffer), e.flag(grad)


def orthogonal(e: Emitted, matrix: Value, steps: int) -> Value:
    """The matrix with singular values of about 1, by steps of Newton and Schulz: ``X' = a*X + (b*A + c*A@A) @ X`` with
    ``A = X @ X^T``, from a matrix of norm 1; of a tall one the same from the right. The products are nodes of the
    backward pass, so they have the dtype in which the model computes."""
    a, b, c = _COEFFICIENTS
    x = e("div", matrix, e("maximum", e.norm(matrix), _EPS))
    tall = matrix.type.ints[0] > matrix.type.ints[1]
    e = Emitted(Builder(name=e.b.name, span=e.b.span, phase=Phase.BACKWARD), e.dtype)
    for _ in range(steps):
        gram = e("matmul", x, x, transpose_a=tall, transpose_b=not tall)
        square = e("matmul", gram, gram, transpose_a=False, transpose_b=False)
        power = e("add", e("mul", gram, b), e("mul", square, c))
        left, right = (x, power) if tall else (power, x)
        x = e("add", e("mul", x, a), e("matmul", left, right, transpose_a=False, transpose_b=False))
    return x


muon = optimizer(Muon())
