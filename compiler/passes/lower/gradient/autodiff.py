"""Gradients and optimizer updates: the training step becomes one graph.

Before::

    %3 = mul %0, %1 : [4]  # a m.nn:3:1 forward
    %4 = mean %3 {keep=false, over=(0,)} : []  # loss m.nn:4:1 forward
    output loss = %4

After (``%1`` is the parameter ``w``)::

    %5 = full {dtype=float, shape=(), value=1.0} : []  # loss m.nn:4:1 backward
    ...
    %9 = mul %8, %0 : [4]  # a m.nn:3:1 backward
    %10, %11 = sgd_update %1, %9, %2 {...} : [4], b1[]  # w update
    output nonfinite = %13
    update w = %10

With a loss scale (``loss_scale.py``), the seed 1.0 becomes the scale, and the step unscales each gradient once it is
complete. If a gradient is not finite, the step changes nothing but the scale.

``differentiate.py`` has the gradients, ``optimizer_step.py`` the new values, ``shards.py`` the graphs of a batch that
is divided into shards, ``updates_in_turn.py`` the step with several updates.
"""

from __future__ import annotations

import dataclasses

from dslc.compiler.ir.build import GRAD_SUM, Build, TrainSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Value, order
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.passes.lower.gradient.averages import averages
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling
from dslc.compiler.passes.lower.gradient.optimizer_step import (
    builder_of,
    every_flag,
    gradients_of,
    optimizer_step,
    scaled_by,
    trained_by,
)
from dslc.compiler.passes.lower.gradient.shards import shard_graph, update_graph
from dslc.compiler.passes.lower.gradient.updates_in_turn import updates_in_turn


def autodiff(program: Program, build: Build) -> Program:
    """The pass: adds gradients, clipping, updates and the output ``nonfinite`` to ``train_step``.

    If a step has several micro-batches, ``accumulate_step`` only adds gradients to their sums. ``train_step``, the last
    one, applies the mean and resets the sums to 0. With averaged weights, each parameter follows its trained weight
    after the update: ``param + max(1 - ema, 9/(10 + t)) * (raw - param)``, with t the step number from 1. Early steps
    count more than the decay says, min(ema, (1 + t)/(10 + t)) as in TensorFlow's ExponentialMovingAverage, so the
    average soon forgets its initial value.

    If the batch is divided into shards, ``train_step`` returns the gradients and the new buffers of one of them, or of
    one of its micro-batches, as outputs ``shard.NAME``, and changes nothing. ``update_step`` reads their sums and
    applies the means: of the gradients as an update does, of the buffers as their new values. With a loss scale the
    gradients are scaled ones, and the sum of the losses is added, too, so that one verdict holds for all shards.

    ``nonfinite``: u8[P], one element per trained parameter in the order of ``build.train.params``, 1 if its gradient
    has a non-finite element. With a loss scale, the outputs also include ``loss_scale``, the scale of this step, and
    ``skipped_steps``, i64[], the number of steps skipped so far. ``build.train`` trains the parameters that the loss
    reaches: the check has already found the others and refused a loss without a gradient.
    """
    if program.entry not in ("train_step", "accumulate_step", "update_step") or build.train is None:
        return program
    train = build.train.in_turn(program.turn)
    if train.shards > 1:
        if program.entry == "train_step":
            return dataclasses.replace(program, graph=shard_graph(program.graph, train))
        pieces = build.pieces if build.train.slice_reads else {}
        return dataclasses.replace(program, graph=update_graph(program.graph, train, pieces))
    whole = program.entry == "train_step"
    return dataclasses.replace(program, graph=_training_graph(program.graph, train, whole))


def _training_graph(graph: Graph, train: TrainSpec, whole: bool) -> Graph:
    """``whole``: this is the last micro-batch, which updates; otherwise the gradients are only accumulated."""
    assert any(spec.trained for spec in train.params), "the check refuses a model without a parameter that is trained"
    if len(train.updates) > 1:
        return updates_in_turn(graph, train)
    [update] = train.updates
    inputs = {i.name: i for i in graph.inputs}
    trained = trained_by(train, update)
    tensors = [inputs[train.iterate(spec)] for spec in trained]
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, inputs)
    gradients = gradients_of(graph, graph.outputs["loss"], tensors, None if scaling is None else scaling.seed)
    added: list[Input] = []
    updates = list(graph.updates)
    outputs = dict(graph.outputs)
    sums = [inputs[f"{spec.name}.{GRAD_SUM}"] for spec in trained] if train.accumulate > 1 else []
    if sums:
        if scaling is not None:
            gradients = scaled_by(scaling.inverse(), gradients, tensors)
        gradients = [builder_of(state)(OPS["add"], state.value, g) for state, g in zip(sums, gradients)]
    verdict = None if scaling is None else scaling.judge(gradients, graph.outputs["loss"])
    if verdict is not None:
        of_metrics = [u for u in updates if u[0].kind is Kind.OPTIMIZER]  # they count every step
        updates = [*verdict.kept([u for u in updates if u[0].kind is not Kind.OPTIMIZER]), *of_metrics]
    updates += zip(sums, map(_zeros, sums) if whole else gradients)
    if whole:
        if verdict is not None and not sums:
            gradients = scaled_by(verdict.inverse(), gradients, tensors)
        found, flags = optimizer_step(train, update, inputs, added, gradients, scaling, verdict)
        updates += [*found, *averages(train, inputs, found, verdict)]
        own = [spec.name for spec in trained]
        outputs["nonfinite"] = every_flag(train, own, flags) if verdict is None else verdict.flags
        if verdict is not None:
            updates += verdict.updates()
            outputs |= verdict.outputs()
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return continued_sums(merged_loops(Graph((*graph.inputs, *added), nodes, outputs, tuple(updates))))


def _zeros(of: Input) -> Value:
    return builder_of(of)(OPS["full"], value=0.0, dtype=of.value.type.dtype, shape=of.value.type.shape)
