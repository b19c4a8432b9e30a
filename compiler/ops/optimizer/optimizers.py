"""The optimizers of the language: sgd, adam, adamw, rmsprop with PyTorch's names, formulas, defaults; lamb, lars."""

from __future__ import annotations

from typing import Any

from dslc.compiler.ir.function import optimizer
from dslc.compiler.ir.op import Mismatch, Op
from dslc.compiler.ops.optimizer.checked import OfOneOp, number
from dslc.compiler.ops.optimizer.layerwise import lamb_update, lars_update
from dslc.compiler.ops.optimizer.optim import adam_update, sgd_momentum_update, sgd_update
from dslc.compiler.ops.optimizer.rmsprop import UPDATES as RMSPROP_UPDATES


class Sgd(OfOneOp):
    """sgd(lr, momentum=0, nesterov=false, weight_decay=0): gradient descent.

    ``g = grad + weight_decay*param; buf = momentum*buf + g; param -= lr * buf``, or with ``nesterov``
    ``param -= lr * (g + momentum*buf)``.
    """

    name = "sgd"
    defaults = {"lr": None, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        momentum = number(args, "momentum", 1)
        if args["nesterov"] and not momentum:
            raise Mismatch("`nesterov` without momentum", "`momentum=0.9`", "E0209")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if args["momentum"] else ()

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        if not args["momentum"]:
            return sgd_update, {}
        return sgd_momentum_update, {"momentum": float(args["momentum"]), "nesterov": bool(args["nesterov"])}


class Adam(OfOneOp):
    """adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0): Adam (Kingma and Ba 2015).

    The step is the running mean of the gradient over the root of the running mean of its square, both bias-corrected.
    Weight decay is added to the gradient; ``adamw`` decays the parameters themselves. The square of a gradient beyond
    1.8e19 is infinite in f32: that element never changes again.
    """

    name = "adam"
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    decoupled = False

    def check(self, args: dict[str, Any]) -> None:
        betas = args["betas"]
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise Mismatch(f"`betas` is {betas}", "two numbers, such as (0.9, 0.999)", "E0209")
        for beta in betas:
            number({"betas": beta}, "betas", 1)
        if "eps" in self.defaults:
            number(args, "eps")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        beta1, beta2 = args["betas"]
        attrs = {"beta1": float(beta1), "beta2": float(beta2), "eps": float(args["eps"]), "decoupled": self.decoupled}
        return adam_update, attrs


class AdamW(Adam):
    """adamw(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01): Adam with decoupled weight decay.

    Before each step the parameters shrink by ``1 - lr*weight_decay`` (Loshchilov and Hutter 2019); else as ``adam``.
    """

    name = "adamw"
    defaults = Adam.defaults | {"weight_decay": 0.01}
    decoupled = True


class RmsProp(OfOneOp):
    """rmsprop(lr=0.01, alpha=0.99, eps=1e-8, momentum=0, centered=false, weight_decay=0): RMSprop (Hinton 2012).

    Divides the gradient by the root of the running mean of its square, plus ``eps``; with ``centered`` by that of its
    running variance.
    """

    name = "rmsprop"
    defaults = {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "centered": False, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        number(args, "alpha", 1)
        number(args, "eps")
        number(args, "momentum", 1)

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        mean = ("grad_avg",) if args["centered"] else ()
        return ("square_avg", *mean, *(("momentum_buffer",) if args["momentum"] else ()))

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        attrs = {"alpha": float(args["alpha"]), "eps": float(args["eps"])}
        if args["momentum"]:
            attrs["momentum"] = float(args["momentum"])
        return RMSPROP_UPDATES[bool(args["centered"]), bool(args["momentum"])], attrs


class Lamb(Adam):
    """lamb(lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0): Adam scaled by the parameter's norm (LAMB).

    The step of Adam plus ``weight_decay * param``, scaled to ``lr`` times the norm of the parameter, one tensor at a
    time (You et al. 2020); for large batches.
    """

    name = "lamb"
    of_whole_tensors = True
    defaults = Adam.defaults | {"eps": 1e-6}

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        attrs = super().step(args)[1]
        return lamb_update, {name: attrs[name] for name in ("beta1", "beta2", "eps")}


class Lars(OfOneOp):
    """lars(lr, momentum=0.9, trust_coefficient=0.001, eps=1e-8, weight_decay=0): sgd scaled tensor by tensor (LARS).

    The decayed gradient is multiplied by ``trust_coefficient * |param| / (|grad| + weight_decay*|param| + eps)`` before
    the momentum (You, Gitman and Ginsburg 2017); for large batches.
    """

    name = "lars"
    of_whole_tensors = True
    defaults = {"lr": None, "momentum": 0.9, "trust_coefficient": 0.001, "eps": 1e-8, "weight_decay": 0.0}

    def check(self, args: dict[str, Any]) -> None:
        number(args, "momentum", 1)
        number(args, "trust_coefficient")
        number(args, "eps")

    def slot_names(self, args: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def step(self, args: dict[str, Any]) -> tuple[Op, dict[str, Any]]:
        return lars_update, {name: float(args[name]) for name in ("momentum", "trust_coefficient", "eps")}


sgd = optimizer(Sgd())
adam = optimizer(Adam())
adamw = optimizer(AdamW())
rmsprop = optimizer(RmsProp())
lamb = optimizer(Lamb())
lars = optimizer(Lars())
