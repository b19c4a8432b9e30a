"""A training step with several updates, such as those of a generator and a discriminator, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.compiler.ir.build import TrainSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.passes.lower.gradient.averages import averages
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling
from dslc.compiler.passes.lower.gradient.optimizer_step import (
    builder_of,
    gradients_of,
    joined_flags,
    optimizer_step,
    scaled_by,
    trained_by,
)


def updates_in_turn(graph: Graph, train: TrainSpec) -> Graph:
    """The graph of a step with several updates: the loss of each is computed with the parameters that the updates
    before it have changed. What these do not change is computed once. With a loss scale, all updates are computed, and
    none is kept if a gradient or loss of any of them is not finite."""
    assert not train.turns, "each turn has one update"
    inputs = {i.name: i for i in graph.inputs}
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, inputs)
    added: list[Input] = []
    updates, outputs = list(graph.updates), dict(graph.outputs)
    changed: dict[Value, Value] = {}  # a parameter's value at the start of the step -> its present one
    flags: dict[str, Value] = {}
    scaled: dict[str, Value] = {}
    losses: list[Value] = []
    for update in train.updates:
        name = f"metric.{update.name}"
        loss = _reading(graph.inputs, graph.outputs[name], changed)
        trained = trained_by(train, update)
        tensors = [inputs[train.iterate(spec)] for spec in trained]
        gradients = gradients_of(graph, loss, tensors, None if scaling is None else scaling.seed)
        if scaling is not None:
            scaled |= {spec.name: gradient for spec, gradient in zip(trained, gradients)}
            gradients = scaled_by(scaling.inverse(), gradients, tensors)
        found, own = optimizer_step(train, update, inputs, added, gradients, scaling)
        updates += found
        iterates = {train.iterate(spec) for spec in trained}
        changed |= {
            state.value: builder_of(state)(OPS["stop_gradient"], value)  # not through the update itself
            for state, value in found
            if state.name in iterates
        }
        flags |= {spec.name: flag for spec, flag in zip(trained, own)}
        outputs[name] = loss
        losses.append(loss)
    updates += averages(train, inputs, updates, None)
    outputs["loss"] = _sum(losses)
    names = [spec.name for spec in train.params if spec.trained]
    if scaling is None:
        outputs["nonfinite"] = joined_flags([flags[name] for name in names])
    else:
        verdict = scaling.judge([scaled[name] for name in names], outputs["loss"])
        of_metrics = [u for u in graph.updates if u[0].kind is Kind.OPTIMIZER]  # they count every step
        updates = [*verdict.kept([u for u in updates if u not in of_metrics]), *of_metrics, *verdict.updates()]
        outputs |= {"nonfinite": verdict.flags, **verdict.outputs()}
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return continued_sums(merged_loops(Graph((*graph.inputs, *added), nodes, outputs, tuple(updates))))


def _reading(inputs: tuple[Input, ...], value: Value, instead: Mapping[Value, Value]) -> Value:
    """A value that is computed from other values of the inputs."""
    if not instead:
        return value
    graph = Graph(inputs, order([value]), {"value": value})
    changed = graph.rewrite(lambda node: node.reading(instead))
    return changed.outputs["value"]


def _sum(losses: Sequence[Value]) -> Value:
    total, *more = losses
    for loss in more:
        b = Builder(name="loss", phase=Phase.UPDATE)
        total = b(OPS["add"], total, loss)
    return total
