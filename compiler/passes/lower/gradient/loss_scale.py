"""The loss scale of training in f16, inside the training step; a part of the autodiff pass.

Before, without it::

    %5 = full {dtype=float, shape=(), value=1.0} : []  # the gradient of the loss
    %9 = ...                                           # the gradient of %1
    update w = sgd_update %1, %9, ...
    update bn.running_mean = %7

After::

    %9 = ...                                           # as before, from %scale in place of 1
    %10 = nonfinite %9, %loss : b1[2]
    %14 = div %sound, %sound                           # 1, or nan where something is not finite
    %15 = mul %9, div(%14, %scale)
    update w = sgd_update %1, %15, ...                 # leaves alone what has a nan for a gradient
    update bn.running_mean = where %skip, %mean, %7
    update train.loss_scale = ...                      # halves, stays, or doubles

A step that overflows changes only the scale's own states, and the device decides it without the host. As with PyTorch's
GradScaler, which then does not call the optimizer, the optimizer's step count does not advance either: ``applied``.
Scales are powers of two, so scaled gradients equal the unscaled ones bit for bit as long as both stay in the range of
their dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.compiler.ir.build import LossScale
from dslc.compiler.ir.graph import Input, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.nonfinite import nonfinite
from dslc.runtime.artifact.reserved import GOOD_STEPS, LEAST_SCALE, LOSS_SCALE, SKIPPED_STEPS

Updates = list[tuple[Input, Value]]


class Scaling:
    """The scale's states in a graph."""

    def __init__(self, spec: LossScale, inputs: Mapping[str, Input]) -> None:
        self.spec = spec
        self.scale, self.good, self.skipped = (inputs[name] for name in (LOSS_SCALE, GOOD_STEPS, SKIPPED_STEPS))
        self.b = Builder(name="loss_scale", phase=Phase.UPDATE)

    @property
    def seed(self) -> Value:
        """The gradient of the loss with which differentiation starts: the scale."""
        return self.scale.value

    def inverse(self) -> Value:
        """The factor that unscales a gradient."""
        return self.b(OPS["div"], self._number(1.0), self.scale.value)

    def applied(self, step: Value) -> Value:
        """The number of steps before this one that were not skipped."""
        return self.b(OPS["sub"], step, self.skipped.value)

    def judge(self, tensors: Sequence[Value], loss: Value) -> Verdict:
        """Checks gradients (scaled or not, or their sums) and the loss."""
        return Verdict(self, tensors, loss)

    def _number(self, value: float, dtype: DType = DType.FLOAT) -> Value:
        return self.b(OPS["full"], value=value, dtype=dtype, shape=())


class Verdict:
    """The result of the check. ``flags``: u8[tensors], 1 for a tensor with a non-finite element. ``skip``: b1[],
    whether any tensor or the loss has one. ``sound``: 1, or nan if ``skip``."""

    def __init__(self, scaling: Scaling, tensors: Sequence[Value], loss: Value) -> None:
        self.scaling, b = scaling, scaling.b
        found = b(nonfinite, *tensors, loss)
        flags = b(OPS["slice"], found, starts=(0,), stops=(len(tensors),), steps=(1,))
        self.flags = b(OPS["cast"], flags, dtype=DType.U8)
        several = b(OPS["max"], b(OPS["cast"], found, dtype=DType.FLOAT), over=(0,), keep=False)
        self.skip = b(OPS["cast"], several, dtype=DType.B1)
        fine = b(OPS["sub"], scaling._number(1.0), several)
        self.sound = b(OPS["div"], fine, fine)
        self.skips = b(OPS["add"], scaling.skipped.value, b(OPS["cast"], self.skip, dtype=DType.I64))

    def inverse(self) -> Value:
        """The factor that unscales a gradient; nan if the step is skipped."""
        return self.scaling.b(OPS["div"], self.sound, self.scaling.scale.value)

    def outputs(self) -> dict[str, Value]:
        """``loss_scale``, the scale of this step, and ``skipped_steps``, including this one."""
        return {"loss_scale": self.scaling.scale.value, "skipped_steps": self.skips}

    def kept(self, updates: Sequence[tuple[Input, Value]]) -> Updates:
        """The updates; a skipped step keeps the old values."""
        return [
            (state, Builder(name=state.name, span=state.span, phase=Phase.UPDATE)(
                OPS["where"], self.skip, state.value, new)) for state, new in updates
        ]  # fmt: skip

    def updates(self) -> Updates:
        """The updates of the scale's own states."""
        own, b, spec, number = self.scaling, self.scaling.b, self.scaling.spec, self.scaling._number
        good = b(OPS["add"], own.good.value, number(1, DType.I32))
        grown = b(OPS["ge"], good, number(spec.interval, DType.I32))
        half = b(OPS["maximum"], b(OPS["mul"], own.scale.value, number(0.5)), number(LEAST_SCALE))
        twice = b(OPS["minimum"], b(OPS["mul"], own.scale.value, number(2.0)), number(spec.most))
        scale = b(OPS["where"], self.skip, half, b(OPS["where"], grown, twice, own.scale.value))
        again = b(OPS["logical_or"], self.skip, grown)
        return [
            (own.scale, scale),
            (own.good, b(OPS["where"], again, number(0, DType.I32), good)),
            (own.skipped, self.skips),
        ]
