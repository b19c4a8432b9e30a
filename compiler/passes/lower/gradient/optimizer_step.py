"""What every training graph is built of: gradients of parameters, clipping, the new values, the flags of non-finite
gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.compiler.ir.build import ParamSpec, TrainSpec, UpdateSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.optimizer.clip_norm import clip_by_global_norm, clip_by_value
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling, Verdict


def trained_by(train: TrainSpec, update: UpdateSpec) -> list[ParamSpec]:
    """The parameters that an update trains, in the order of the section."""
    mine = frozenset(update.trained)
    return [spec for spec in train.params if spec.name in mine]


def gradients_of(graph: Graph, loss: Value, of: Sequence[Input], seed: Value | None) -> list[Value]:
    """The gradient of the loss for each of these inputs. ``seed``: the gradient of the loss itself, 1 for None."""
    found = differentiate(graph, loss, [i.value for i in of], seed)
    missed = [tensor.name for tensor in of if tensor.value not in found]
    assert not missed, f"the check says which parameters the loss does not reach, but not {missed}"
    return [found[i.value] for i in of]


def optimizer_step(
    train: TrainSpec,
    update: UpdateSpec,
    inputs: dict[str, Input],
    added: list[Input],
    gradients: list[Value],
    scaling: Scaling | None,
    verdict: Verdict | None = None,
) -> tuple[list[tuple[Input, Value]], list[Value]]:
    """The new values of an update's parameters, of their slots and averages, and the flag b1[] of each parameter's
    gradient.

    ``scaling``: with a loss scale, which counts the steps that were not skipped. ``verdict``: the result of checking
    the gradients; its updates keep the old value if one is not finite.
    """
    if train.accumulate > 1 and train.shards == 1:
        b = Builder(name="accumulate", phase=Phase.UPDATE)
        count = b(OPS["full"], value=float(train.accumulate), dtype=DType.FLOAT, shape=())
        if verdict is not None:
            count = b(OPS["mul"], count, verdict.sound)
        gradients = [b(OPS["div"], gradient, count) for gradient in gradients]
    gradients = clipped(update, gradients)
    lr = _scalar(inputs, added, "lr", DType.FLOAT)
    step = _scalar(inputs, added, "step", DType.I64)
    if scaling is not None:
        step = scaling.applied(step)
    pace = None if train.ema is None else _pace(train.ema, step)
    updates: list[tuple[Input, Value]] = []
    flags: list[Value] = []
    for spec, gradient in zip(trained_by(train, update), gradients):
        new, flag = _update(inputs[train.iterate(spec)], update, spec, inputs, gradient, lr, step)
        updates += new
        flags.append(flag)
        if pace is not None:
            average, b = inputs[spec.name], builder_of(inputs[spec.name])
            away = b(OPS["sub"], new[0][1], average.value)
            moved = (average, b(OPS["add"], average.value, b(OPS["mul"], pace, away)))
            updates += [moved] if verdict is None else verdict.kept([moved])
    return updates, flags


def clipped(update: UpdateSpec, gradients: list[Value]) -> list[Value]:
    """The gradients within the limits that the update sets: first of each element, then of their common norm."""
    if update.clip_value is not None:
        b = Builder(name="clip_value", phase=Phase.UPDATE)
        gradients = clip_by_value(b, gradients, update.clip_value)
    if update.clip_norm is not None:
        b = Builder(name="clip_norm", phase=Phase.UPDATE)
        gradients = clip_by_global_norm(b, gradients, update.clip_norm)
    return gradients


def _pace(ema: float, step: Value) -> Value:
    """The fraction of the distance to the new weights by which this step moves the averages: ``1 - ema``, but at first
    more, so that averages soon forget the initial weights: the decay of step n (from 0) is at most (2 + n) / (11 + n),
    the (1 + n) / (10 + n) of TensorFlow's ``ExponentialMovingAverage``, whose steps count from 1."""
    b = Builder(name="ema", phase=Phase.UPDATE)

    def number(value: float) -> Value:
        return b(OPS["full"], value=value, dtype=DType.FLOAT, shape=())

    warming = b(OPS["div"], number(9.0), b(OPS["add"], number(11.0), b(OPS["cast"], step, dtype=DType.FLOAT)))
    return b(OPS["maximum"], number(1 - ema), warming)


def _scalar(inputs: dict[str, Input], added: list[Input], name: str, dtype: DType) -> Value:
    """A run-time scalar of the step block, added to the graph if it does not exist yet."""
    if name not in inputs:
        inputs[name] = Input(name, Kind.SCALAR, TensorType(dtype, ()))
        added.append(inputs[name])
    return inputs[name].value


def _update(
    param: Input,
    update: UpdateSpec,
    spec: ParamSpec,
    inputs: dict[str, Input],
    gradient: Value,
    lr: Value,
    step: Value,
) -> tuple[list[tuple[Input, Value]], Value]:
    """The new values of one parameter and its slots, and the flag b1[] of its gradient."""
    b = builder_of(param)
    if spec.lr_factor != 1.0:
        factor = b(OPS["full"], value=spec.lr_factor, dtype=lr.type.dtype, shape=())
        lr = b(OPS["mul"], lr, factor)
    optimizer, given = update.rule(spec.name)
    args: dict[str, Any] = {**given, "weight_decay": spec.weight_decay}
    slots = [inputs[f"{spec.name}.{slot}"] for slot in optimizer.slots(args)]
    *new, flag = optimizer.update(b, args, param.value, gradient, [s.value for s in slots], lr, step)
    assert len(new) == 1 + len(slots), f"{optimizer.name} gives {len(new)} new tensors"
    return list(zip([param, *slots], new)), flag


def scaled_by(factor: Value, gradients: Sequence[Value], of: Sequence[Input]) -> list[Value]:
    """Each gradient times the factor; the nodes belong to the inputs ``of``."""
    return [builder_of(tensor)(OPS["mul"], gradient, factor) for tensor, gradient in zip(of, gradients)]


def builder_of(of: Input) -> Builder:
    """Builds nodes of the update that belong to this input."""
    return Builder(name=of.name, span=of.span, phase=Phase.UPDATE)


def every_flag(train: TrainSpec, own: Sequence[str], flags: Sequence[Value]) -> Value:
    """u8[P] for all P trained parameters, from the flags b1[] of an update's ``own``; those of others are 0."""
    found = dict(zip(own, flags, strict=True))
    b = Builder(name="nonfinite", phase=Phase.UPDATE)
    names = [spec.name for spec in train.params if spec.trained]
    return joined_flags([found.get(n) or b(OPS["full"], value=False, dtype=DType.B1, shape=()) for n in names])


def joined_flags(flags: Sequence[Value]) -> Value:
    """u8[P] from P values b1[]."""
    b = Builder(name="nonfinite", phase=Phase.UPDATE)
    rows = [b(OPS["reshape"], flag, shape=(1,)) for flag in flags]
    return b(OPS["cast"], rows[0] if len(rows) == 1 else b(OPS["concat"], *rows, axis=0), dtype=DType.U8)
