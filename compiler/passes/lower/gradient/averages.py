"""The new values of layers that are running averages of others, part of the autodiff pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.compiler.ir.build import TrainSpec
from dslc.compiler.ir.graph import Input, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.gradient.loss_scale import Verdict


def averages(
    train: TrainSpec, inputs: Mapping[str, Input], updates: Sequence[tuple[Input, Value]], verdict: Verdict | None
) -> list[tuple[Input, Value]]:
    """``average + (1 - decay) * (source - average)`` for each average, with the source after its ``updates``.

    With a ``verdict`` of loss scaling, a step that is skipped leaves the averages alone, too.
    """
    new = {state.name: value for state, value in updates}
    iterates = {spec.name: train.iterate(spec) for spec in train.params}
    found: list[tuple[Input, Value]] = []
    for spec in train.params:
        if spec.averages is None:
            continue
        source, decay = spec.averages
        average, name = inputs[spec.name], iterates[source]
        b = Builder(name=average.name, span=average.span, phase=Phase.UPDATE)
        away = b(OPS["sub"], new.get(name, inputs[name].value), average.value)
        pace = b(OPS["full"], value=1 - decay, dtype=DType.FLOAT, shape=())
        found.append((average, b(OPS["add"], average.value, b(OPS["mul"], pace, away))))
    return found if verdict is None else verdict.kept(found)
