"""Optimizers of the language whose update is a formula of ``rules.py``."""

from __future__ import annotations

from typing import Any

from dslc.compiler.ir.function import optimizer
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ops.optimizer.checked import OfOneOp, number
from dslc.compiler.ops.optimizer.optimizers import Adam
from dslc.compiler.ops.optimizer.rules import (
    adadelta_update,
    adagrad_update,
    adamax_update,
    lion_update,
    nadam_update,
    radam_update,
    rprop_update,
)


def _betas(args: dict[str, Any]) -> dict[str, Any]:
    beta1, beta2 = args["betas"]
    return {"beta1": float(beta1), "beta2": float(beta2)}


class Lion(Adam):
    """lion(lr=1e-4, betas=(0.9, 0.99), weight_decay=0): the sign of the momentum (Lion, Chen et al. 2023).

    Each element moves by ``lr`` against the sign of ``beta1*m + (1 - beta1)*grad``, where ``m`` is the running mean of
    the gradient with ``beta2``. Before that the parameters shrink by ``1 - lr*weight_decay``. One tensor of state for
    each parameter, where ``adamw`` has two. Its learning rate is three to ten times smaller than that of ``adamw``, and
    its weight decay as many times larger.
    """

    name = "lion"
    defaults = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg",)

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return lion_update, _betas(args)


class Adagrad(OfOneOp):
    """adagrad(lr=0.01, lr_decay=0, eps=1e-10, weight_decay=0): Adagrad (Duchi, Hazan and Singer 2011).

    Divides the gradient by the root of the sum of all its squares so far, plus ``eps``. The learning rate is divided by
    ``1 + step*lr_decay``. For gradients that are mostly 0, as those of rare words are.
    """

    name = "adagrad"
    defaults = {"lr": 1e-2, "lr_decay": 0.0, "eps": 1e-10, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        number(args, "lr_decay")
        number(args, "eps")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("sum",)

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return adagrad_update, {"lr_decay": float(args["lr_decay"]), "eps": float(args["eps"])}


class Adadelta(OfOneOp):
    """adadelta(lr=1, rho=0.9, eps=1e-6, weight_decay=0): Adadelta (Zeiler 2012).

    Multiplies the gradient by the root of the running mean of squared steps over that of squared gradients, each plus
    ``eps``.
    """

    name = "adadelta"
    defaults = {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        number(args, "rho", 1)
        number(args, "eps")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return adadelta_update, {"rho": float(args["rho"]), "eps": float(args["eps"])}


class Adamax(Adam):
    """adamax(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0): Adam by the infinity norm (Kingma and Ba 2015).

    The step is the running mean of the gradient over the greatest of its sizes, which shrink by ``beta2`` a step.
    """

    name = "adamax"
    defaults = Adam.defaults | {"lr": 2e-3}

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return adamax_update, {**_betas(args), "eps": float(args["eps"])}


class RAdam(Adam):
    """radam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, ...): rectified Adam.

    Adam that scales its first steps by how well it knows the variance of the gradient, and does not divide by it at
    all in the first five (Liu et al. 2020). With ``decoupled_weight_decay`` the parameters shrink as in ``adamw``.
    """

    name = "radam"
    defaults = Adam.defaults | {"decoupled_weight_decay": False}

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return radam_update, _of_adam(args)


class NAdam(Adam):
    """nadam(lr=2e-3, betas=(0.9, 0.999), momentum_decay=4e-3, ...): Adam with Nesterov's momentum (Dozat 2016).

    The step looks one step ahead of the running mean. Its coefficient is ``beta1 * (1 - 0.96^(t*momentum_decay) / 2)``
    at step t. With ``decoupled_weight_decay`` the parameters shrink as in ``adamw``.
    """

    name = "nadam"
    defaults = Adam.defaults | {"lr": 2e-3, "momentum_decay": 4e-3, "decoupled_weight_decay": False}

    def check(self, args: dict[str, Any]) -> None:
        super().check(args)
        number(args, "momentum_decay")

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return nadam_update, {**_of_adam(args), "momentum_decay": float(args["momentum_decay"])}


def _of_adam(args: dict[str, Any]) -> dict[str, Any]:
    return {**_betas(args), "eps": float(args["eps"]), "decoupled": bool(args["decoupled_weight_decay"])}


class Rprop(OfOneOp):
    """rprop(lr=0.01, etas=(0.5, 1.2), step_sizes=(1e-6, 50), weight_decay=0): steps by the gradient's sign alone.

    Resilient backpropagation (Riedmiller and Braun 1993), for batches of all the data. Each element has a step size,
    at first ``lr``, which is multiplied by the second of ``etas`` while the gradient keeps its sign, and by the first
    where it changes, within ``step_sizes``. A schedule of ``lr`` changes nothing after the
    first step, unless to 0, which stops the parameters.
    """

    name = "rprop"
    defaults = {"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0), "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        shrink, grow = _two(args, "etas")
        if not 0 < shrink < 1 < grow:
            raise Mismatch(f"`etas` is {args['etas']}", "a number below 1 and one above 1, such as (0.5, 1.2)", "E0209")
        least, most = _two(args, "step_sizes")
        if not 0 < least <= most:
            raise Mismatch(f"`step_sizes` is {args['step_sizes']}", "a least and a greatest, above 0", "E0209")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("prev", "step_size")

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        (shrink, grow), (least, most) = args["etas"], args["step_sizes"]
        attrs = {"shrink": float(shrink), "grow": float(grow), "least": float(least), "most": float(most)}
        return rprop_update, attrs


def _two(args: dict[str, Any], name: str) -> tuple[float, float]:
    value = args[name]
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Mismatch(f"`{name}` is {value}", "two numbers", "E0209")
    return float(value[0]), float(value[1])


lion = optimizer(Lion())
adagrad = optimizer(Adagrad())
adadelta = optimizer(Adadelta())
adamax = optimizer(Adamax())
radam = optimizer(RAdam())
nadam = optimizer(NAdam())
rprop = optimizer(Rprop())
