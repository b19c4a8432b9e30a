"""RMSprop (Hinton 2012) as ops: plain or centered (Graves 2013), with or without momentum; eps as in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dslc.compiler.ir.op import register
from dslc.compiler.ops.lazy import np
from dslc.compiler.ops.optimizer.optim import Update, decayed

if TYPE_CHECKING:
    from dslc.compiler.ir.op import Array


class Rmsprop(Update):
    """Slots: the mean square; if ``centered`` the mean; with ``momentum`` the buffer."""

    centered: ClassVar[bool] = False
    momentum: ClassVar[bool] = False

    def updated(
        self, p: Array, g: Array, slots: Sequence[Array], lr: float, t: int, attrs: Mapping[str, Any]
    ) -> tuple[Array, ...]:
        inner = p.dtype.type
        g = decayed(p, g, attrs)
        square = inner(attrs["alpha"]) * slots[0] + inner(1 - attrs["alpha"]) * (g * g)
        new, spread = [square], square
        if self.centered:
            mean = slots[1] + inner(1 - attrs["alpha"]) * (g - slots[1])
            spread = np.maximum(square - mean * mean, inner(0))  # rounding may leave it below 0
            new.append(mean)
        move = g / (np.sqrt(spread) + inner(attrs["eps"]))
        if self.momentum:
            move = inner(attrs["momentum"]) * slots[-1] + move
            new.append(move)
        return p - inner(lr) * move, *new


class RmspropUpdate(Rmsprop):
    """rmsprop_update(param, grad, square, lr, step): RMSprop (Hinton 2012), with eps as in PyTorch.

    ``square' = alpha*square + (1 - alpha)*g^2``; the parameter decreases by ``lr * g / (sqrt(square') + eps)``, where g
    has ``weight_decay * param`` added. Outputs: parameter, square', flag. Attributes ``alpha``, ``eps``,
    ``weight_decay``.
    """

    name = "rmsprop_update"
    slots = 1
    flops = 11


class RmspropMomentumUpdate(Rmsprop):
    """rmsprop_momentum_update(param, grad, square, buf, lr, step): RMSprop with momentum.

    As ``rmsprop_update``, but ``buf' = momentum*buf + g / (sqrt(square') + eps)`` and the parameter decreases by
    ``lr * buf'``. Outputs: parameter, square', buf', flag. Attributes as there, and ``momentum``.
    """

    name = "rmsprop_momentum_update"
    slots = 2
    flops = 13
    momentum = True


class RmspropCenteredUpdate(Rmsprop):
    """rmsprop_centered_update(param, grad, square, mean, lr, step): RMSprop with an estimate of the variance.

    As ``rmsprop_update``, with ``mean' = mean + (1 - alpha)*(g - mean)`` and ``square' - mean'^2``, at least 0, under
    the root. Outputs: parameter, square', mean', flag. Attributes as there.
    """

    name = "rmsprop_centered_update"
    slots = 2
    flops = 17
    centered = True


class RmspropCenteredMomentumUpdate(Rmsprop):
    """rmsprop_centered_momentum_update(param, grad, square, mean, buf, lr, step): centered RMSprop with momentum.

    The step of ``rmsprop_centered_update`` in the buffer of ``rmsprop_momentum_update``. Outputs: parameter, square',
    mean', buf', flag. Attributes as there.
    """

    name = "rmsprop_centered_momentum_update"
    slots = 3
    flops = 19
    centered = True
    momentum = True


rmsprop_update = register(RmspropUpdate())
rmsprop_momentum_update = register(RmspropMomentumUpdate())
rmsprop_centered_update = register(RmspropCenteredUpdate())
rmsprop_centered_momentum_update = register(RmspropCenteredMomentumUpdate())

#: (centered, with momentum) -> op
UPDATES = {(op.centered, op.momentum): op for op in (
    rmsprop_update, rmsprop_momentum_update, rmsprop_centered_update, rmsprop_centered_momentum_update
)}  # fmt: skip
