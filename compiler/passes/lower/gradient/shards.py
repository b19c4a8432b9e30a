"""A batch that is divided into shards: the graph of one shard, and the graph that updates from the sums over all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dslc.compiler.ir.build import SHARD, TrainSpec, UpdateSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.lower.gradient.averages import averages
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling, Verdict
from dslc.compiler.passes.lower.gradient.optimizer_step import (
    clipped,
    every_flag,
    gradients_of,
    optimizer_step,
    scaled_by,
    trained_by,
)
from dslc.compiler.passes.lower.gradient.pieces import Cut
from dslc.runtime.artifact.reserved import LOSS_SUM
from dslc.runtime.artifact.slices import Piece


def shard_graph(graph: Graph, train: TrainSpec) -> Graph:
    """The graph of one shard: loss, metrics, gradients and new buffers as outputs, no update."""
    [update] = train.updates
    inputs = {i.name: i for i in graph.inputs}
    trained = trained_by(train, update)
    seed = None if train.loss_scale is None else Scaling(train.loss_scale, inputs).seed
    gradients = gradients_of(graph, graph.outputs["loss"], [inputs[train.iterate(spec)] for spec in trained], seed)
    outputs = dict(graph.outputs)
    outputs |= {f"{SHARD}{spec.name}": gradient for spec, gradient in zip(trained, gradients)}
    outputs |= {f"{SHARD}{buffer.name}": value for buffer, value in graph.updates}
    if seed is not None:
        outputs[f"{SHARD}{LOSS_SUM}"] = graph.outputs["loss"]
    return continued_sums(merged_loops(Graph(graph.inputs, order(outputs.values()), outputs)))


def update_graph(graph: Graph, train: TrainSpec, pieces: Mapping[str, tuple[Piece, ...]]) -> Graph:
    """The graph that updates the state from the sums over all shards, which are its inputs ``shard.NAME``.

    ``pieces``: of each parameter. Each is updated like a parameter of its own, so a process may update its pieces
    alone."""
    [update] = train.updates
    whole = {i.name: i for i in graph.inputs}
    names = [spec.name for spec in trained_by(train, update)]
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, whole)
    verdict = None
    if scaling is not None:
        verdict = scaling.judge([whole[SHARD + name].value for name in names], whole[SHARD + LOSS_SUM].value)
    alone = update.clip_norm is None and verdict is None  # nothing reads a whole sum
    cut = Cut({name: pieces[name] for name in names if len(pieces.get(name, ())) > 1}, of_sums=alone)
    section, inputs, mean = cut.section(train), cut.inputs(train, whole), _Mean(train, verdict)
    gradients, limits = _gradients(section, names, whole, inputs, cut, mean)
    added: list[Input] = []
    found, flags = optimizer_step(section, limits, inputs, added, gradients, scaling, verdict)
    updates = [*_new_buffers(whole, mean, verdict), *found, *averages(section, inputs, found, verdict)]
    if verdict is None:
        outputs = {"nonfinite": every_flag(train, names, cut.flags(names, flags))}
    else:
        updates += verdict.updates()
        outputs = {"nonfinite": verdict.flags, **verdict.outputs()}
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return Graph((*inputs.values(), *added), nodes, outputs, tuple(updates))


class _Mean:
    """The means over all runs of a step, from their sums."""

    def __init__(self, train: TrainSpec, verdict: Verdict | None) -> None:
        self._train, self._verdict = train, verdict
        self._b = Builder(name="shards", phase=Phase.UPDATE)
        runs = float(train.shards * train.accumulate)
        self._count = self._b(OPS["full"], value=runs, dtype=DType.FLOAT, shape=())

    def __call__(self, total: Value) -> Value:
        return self._b(OPS["div"], total, self._count)

    def gradients(self, totals: Mapping[str, Value], inputs: Mapping[str, Input]) -> dict[str, Value]:
        """Those of gradients, without the loss scale. ``inputs``: those of the tensors that they update."""
        unscaled = list(totals.values())
        if self._verdict is not None:
            of = [inputs[self._train.iterate_of(name)] for name in totals]
            unscaled = scaled_by(self._verdict.inverse(), unscaled, of)
        return dict(zip(totals, map(self, unscaled)))


def _gradients(
    section: TrainSpec,
    names: Sequence[str],
    whole: Mapping[str, Input],
    inputs: Mapping[str, Input],
    cut: Cut,
    mean: _Mean,
) -> tuple[list[Value], UpdateSpec]:
    """The mean gradients of parameters and of pieces, and the update with the limits that they do not yet obey."""
    [update] = section.updates
    if cut.of_sums:
        parts = {p: inputs[s].value for name in names for p, s in zip(cut.names(name), cut.sum_names(name))}
        return list(mean.gradients(parts, inputs).values()), update
    totals = {name: whole[SHARD + name].value for name in names}
    if update.clip_norm is None:
        return list(mean.gradients(cut.values(totals), inputs).values()), update
    within = clipped(update, list(mean.gradients(totals, whole).values()))  # the norm is that of whole tensors
    pieces = cut.values(dict(zip(names, within)))
    return list(pieces.values()), dataclasses.replace(update, clip_norm=None, clip_value=None)


def _new_buffers(whole: Mapping[str, Input], mean: _Mean, verdict: Verdict | None) -> list[tuple[Input, Value]]:
    """The buffers' new values: the means of those of all runs."""
    names = [key.removeprefix(SHARD) for key in whole if key.startswith(SHARD)]
    buffers = [whole[name] for name in names if name != LOSS_SUM and whole[name].kind is Kind.BUFFER]
    updates = [(buffer, mean(whole[SHARD + buffer.name].value)) for buffer in buffers]
    return updates if verdict is None else verdict.kept(updates)
