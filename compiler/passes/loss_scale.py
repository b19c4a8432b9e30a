"""A loss scale that follows what gradients of f16 can hold (Micikevicius et al. 2018, mixed precision training).

The gradients are those of ``scale * loss``, so that small ones do not become 0 on their way; before the update they are
divided by the scale again, in f32. A step whose gradients are not all finite is not taken, and the scale halves; after
2,000 steps in a row that were, it doubles. All of it is arithmetic of the step itself, on two tensors of the state: the
host neither waits nor decides. Scales are powers of two, so they change no bit but where 16 bits do not reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dslc.compiler.ir.build import GOOD_STEPS, LOSS_SCALE
from dslc.compiler.ir.graph import Input, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType

GROW_AFTER: Final = 2000.0  # steps
LARGEST: Final = 2.0**24
_SMALLEST: Final = 1.0
_FINITE: Final = 3.0e38  # what is finite in f32 is below


def _builder() -> Builder:
    return Builder(name="loss_scale", phase=Phase.UPDATE)


def _number(value: float) -> Value:
    return _builder()(OPS["full"], value=value, dtype=DType.FLOAT, shape=())


def unscaled(inputs: Mapping[str, Input], gradients: Sequence[Value]) -> tuple[list[Value], Value]:
    """The gradients of the loss itself, and whether all of them are finite, b1[]; where one is not, all are nan, which
    no update takes."""
    b = _builder()
    finite = b(OPS["lt"], b(OPS["global_norm"], *gradients), _number(_FINITE))
    zero = _number(0.0)
    share = b(OPS["where"], finite, _number(1.0), zero)
    by = b(OPS["div"], share, b(OPS["where"], finite, inputs[LOSS_SCALE].value, zero))  # 1/scale, else 0/0
    return [b(OPS["mul"], gradient, by) for gradient in gradients], finite


def next_scale(inputs: Mapping[str, Input], finite: Value) -> list[tuple[Input, Value]]:
    """The updates of the scale, and of the number of steps that went well with it."""
    b = _builder()
    scale, good = inputs[LOSS_SCALE], inputs[GOOD_STEPS]
    count = b(OPS["add"], good.value, _number(1.0))
    grows = b(OPS["ge"], count, _number(GROW_AFTER))
    larger = b(OPS["minimum"], b(OPS["mul"], scale.value, _number(2.0)), _number(LARGEST))
    smaller = b(OPS["maximum"], b(OPS["mul"], scale.value, _number(0.5)), _number(_SMALLEST))
    kept = b(OPS["where"], grows, larger, scale.value)
    counted = b(OPS["where"], grows, _number(0.0), count)
    return [
        (scale, b(OPS["where"], finite, kept, smaller)),
        (good, b(OPS["where"], finite, counted, _number(0.0))),
    ]


def reported(b: Builder, flags: Value, scale: Value) -> Value:
    """The flags b1[P] of gradients that are not finite, where no smaller scale could mend that."""
    return b(OPS["logical_and"], flags, b(OPS["le"], scale, _number(_SMALLEST)))
