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
complete. If a gradient is not finite, the step changes nothing but the scale. The gradients are those of
``differentiate.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from dslc.compiler.ir.build import GRAD_SUM, SHARD, Build, ParamSpec, TrainSpec, UpdateSpec
from dslc.compiler.ir.graph import Attr, Graph, Input, Kind, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder, Op
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.optimizer.clip_norm import clip_by_global_norm, clip_by_value
from dslc.compiler.passes.lower.gradient.averages import averages
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling, Verdict
from dslc.runtime.artifact.reserved import LOSS_SUM
from dslc.runtime.artifact.slices import Piece, piece_name


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
    if build.train.shards > 1:
        if program.entry == "train_step":
            return dataclasses.replace(program, graph=_shard_graph(program.graph, build.train))
        return dataclasses.replace(program, graph=_update_graph(program.graph, build))
    whole = program.entry == "train_step"
    return dataclasses.replace(program, graph=_training_graph(program.graph, build.train, whole))


def _training_graph(graph: Graph, train: TrainSpec, whole: bool) -> Graph:
    """``whole``: this is the last micro-batch, which updates; otherwise the gradients are only accumulated."""
    assert any(spec.trained for spec in train.params), "the check refuses a model without a parameter that is trained"
    if len(train.updates) > 1:
        return _in_turn(graph, train)
    [update] = train.updates
    inputs = {i.name: i for i in graph.inputs}
    trained = _trained(train, update)
    tensors = [inputs[train.iterate(spec)] for spec in trained]
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, inputs)
    gradients = _gradients(graph, graph.outputs["loss"], tensors, None if scaling is None else scaling.seed)
    added: list[Input] = []
    updates = list(graph.updates)
    outputs = dict(graph.outputs)
    sums = [inputs[f"{spec.name}.{GRAD_SUM}"] for spec in trained] if train.accumulate > 1 else []
    if sums:
        if scaling is not None:
            gradients = _times(scaling.inverse(), gradients, tensors)
        gradients = [_builder(state)(OPS["add"], state.value, g) for state, g in zip(sums, gradients)]
    verdict = None if scaling is None else scaling.judge(gradients, graph.outputs["loss"])
    if verdict is not None:
        of_metrics = [u for u in updates if u[0].kind is Kind.OPTIMIZER]  # they count every step
        updates = [*verdict.kept([u for u in updates if u[0].kind is not Kind.OPTIMIZER]), *of_metrics]
    updates += zip(sums, map(_zeros, sums) if whole else gradients)
    if whole:
        if verdict is not None and not sums:
            gradients = _times(verdict.inverse(), gradients, tensors)
        found, flags = _step(train, update, inputs, added, gradients, scaling, verdict)
        updates += [*found, *averages(train, inputs, found, verdict)]
        outputs["nonfinite"] = _flags(flags) if verdict is None else verdict.flags
        if verdict is not None:
            updates += verdict.updates()
            outputs |= verdict.outputs()
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return continued_sums(merged_loops(Graph((*graph.inputs, *added), nodes, outputs, tuple(updates))))


def _shard_graph(graph: Graph, train: TrainSpec) -> Graph:
    """The graph of one shard: loss, metrics, gradients and new buffers as outputs, no update."""
    [update] = train.updates
    inputs = {i.name: i for i in graph.inputs}
    trained = _trained(train, update)
    seed = None if train.loss_scale is None else Scaling(train.loss_scale, inputs).seed
    gradients = _gradients(graph, graph.outputs["loss"], [inputs[train.iterate(spec)] for spec in trained], seed)
    outputs = dict(graph.outputs)
    outputs |= {f"{SHARD}{spec.name}": gradient for spec, gradient in zip(trained, gradients)}
    outputs |= {f"{SHARD}{buffer.name}": value for buffer, value in graph.updates}
    if seed is not None:
        outputs[f"{SHARD}{LOSS_SUM}"] = graph.outputs["loss"]
    return continued_sums(merged_loops(Graph(graph.inputs, order(outputs.values()), outputs)))


def _update_graph(graph: Graph, build: Build) -> Graph:
    """The graph that updates the state from the sums over all shards, which are its inputs ``shard.NAME``.

    Each piece of a parameter is updated like a parameter of its own, so a process may update its pieces alone."""
    assert build.train is not None
    train = build.train
    [update] = train.updates
    whole = {i.name: i for i in graph.inputs}
    added: list[Input] = []
    sums = {name.removeprefix(SHARD): i for name, i in whole.items() if name.startswith(SHARD)}
    totals = {name: i.value for name, i in sums.items() if name != LOSS_SUM}
    names = [spec.name for spec in _trained(train, update)]
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, whole)
    verdict = None
    if scaling is not None:
        verdict = scaling.judge([totals[name] for name in names], sums[LOSS_SUM].value)
    cut = build.pieces if train.slice_reads else {}
    pieces = {name: cut[name] for name in names if len(cut.get(name, ())) > 1}
    train, inputs = _with_pieces(train, whole, pieces)
    [update] = train.updates
    b = Builder(name="shards", phase=Phase.UPDATE)
    count = b(OPS["full"], value=float(train.shards * train.accumulate), dtype=DType.FLOAT, shape=())

    def means(of: Mapping[str, Value], there: Mapping[str, Input]) -> dict[str, Value]:
        if verdict is not None:
            unscaled = _times(verdict.inverse(), list(of.values()), [there[train.iterate_of(name)] for name in of])
            of = dict(zip(of, unscaled))
        return {name: b(OPS["div"], total, count) for name, total in of.items()}

    gradients = {name: totals[name] for name in names}
    if update.clip_norm is None:
        gradients = means(_cut(gradients, pieces), inputs)
    else:  # the norm is that of whole tensors
        clipped = _clipped(update, list(means(gradients, whole).values()))
        gradients = _cut(dict(zip(names, clipped)), pieces)
        update = dataclasses.replace(update, clip_norm=None, clip_value=None)
    found, flags = _step(train, update, inputs, added, list(gradients.values()), scaling, verdict)
    buffers = {name: total for name, total in totals.items() if whole[name].kind is Kind.BUFFER}
    updates = [(whole[name], b(OPS["div"], total, count)) for name, total in buffers.items()]
    updates = updates if verdict is None else verdict.kept(updates)
    updates += [*found, *averages(train, inputs, found, verdict)]
    of_piece = iter(flags)
    each = [[next(of_piece) for _ in pieces.get(name, (name,))] for name in names]
    outputs = {"nonfinite": _flags([_any(own) for own in each]) if verdict is None else verdict.flags}
    if verdict is not None:
        updates += verdict.updates()
        outputs |= verdict.outputs()
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return Graph((*inputs.values(), *added), nodes, outputs, tuple(updates))


def _with_pieces(
    train: TrainSpec, inputs: Mapping[str, Input], pieces: Mapping[str, tuple[Piece, ...]]
) -> tuple[TrainSpec, dict[str, Input]]:
    """The section and the inputs with the pieces of each of these parameters and its slots instead of the whole."""
    [update] = train.updates
    slots = ["", *(f".{slot}" for slot in train.slots(update))]
    found = dict(inputs)
    for name, parts in pieces.items():
        for slot in slots:
            source = found.pop(f"{name}{slot}")
            for piece in parts:
                type = TensorType(source.value.type.dtype, (piece.stop - piece.start,))
                named = piece_name(name, piece) + slot
                found[named] = Input(named, source.kind, type, source.span)
    each = {spec.name: [piece_name(spec.name, p) for p in pieces[spec.name]] for spec in train.params
            if spec.name in pieces}  # fmt: skip
    params = [
        dataclasses.replace(spec, name=name) for spec in train.params for name in each.get(spec.name, [spec.name])
    ]
    trained = [name for whole in update.trained for name in each.get(whole, [whole])]
    update = dataclasses.replace(update, trained=tuple(trained))
    return dataclasses.replace(train, updates=(update,), params=tuple(params)), found


def _cut(gradients: Mapping[str, Value], pieces: Mapping[str, tuple[Piece, ...]]) -> dict[str, Value]:
    """The gradients of parameters and of pieces, by name."""
    found: dict[str, Value] = {}
    for name, value in gradients.items():
        if name not in pieces:
            found[name] = value
            continue
        b = Builder(name=name, phase=Phase.UPDATE)
        flat = b(OPS["reshape"], value, shape=(prod(value.type.ints),))
        for piece in pieces[name]:
            part = b(OPS["slice"], flat, starts=(piece.start,), stops=(piece.stop,), steps=(1,))
            found[piece_name(name, piece)] = part
    return found


def _any(flags: Sequence[Value]) -> Value:
    """Whether one of the flags b1[] is set."""
    found, *more = flags
    for flag in more:
        found = Builder(name="nonfinite", phase=Phase.UPDATE)(OPS["logical_or"], found, flag)
    return found


def _in_turn(graph: Graph, train: TrainSpec) -> Graph:
    """The graph of a step with several updates: the loss of each is computed with the parameters that the updates
    before it have changed. What these do not change is computed once. With a loss scale, all updates are computed, and
    none is kept if a gradient or loss of any of them is not finite."""
    assert train.accumulate == 1, "refused by the check"
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
        trained = _trained(train, update)
        tensors = [inputs[train.iterate(spec)] for spec in trained]
        gradients = _gradients(graph, loss, tensors, None if scaling is None else scaling.seed)
        if scaling is not None:
            scaled |= {spec.name: gradient for spec, gradient in zip(trained, gradients)}
            gradients = _times(scaling.inverse(), gradients, tensors)
        found, own = _step(train, update, inputs, added, gradients, scaling)
        updates += found
        iterates = {train.iterate(spec) for spec in trained}
        changed |= {
            state.value: _builder(state)(OPS["stop_gradient"], value)  # not through the update itself
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
        outputs["nonfinite"] = _flags([flags[name] for name in names])
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


def _trained(train: TrainSpec, update: UpdateSpec) -> list[ParamSpec]:
    mine = frozenset(update.trained)
    return [spec for spec in train.params if spec.name in mine]


def _gradients(graph: Graph, loss: Value, of: Sequence[Input], seed: Value | None) -> list[Value]:
    found = differentiate(graph, loss, [i.value for i in of], seed)
    missed = [tensor.name for tensor in of if tensor.value not in found]
    assert not missed, f"the check says which parameters the loss does not reach, but not {missed}"
    return [found[i.value] for i in of]


def _step(
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
    gradients = _clipped(update, gradients)
    lr = _scalar(inputs, added, "lr", DType.FLOAT)
    step = _scalar(inputs, added, "step", DType.I64)
    if scaling is not None:
        step = scaling.applied(step)
    pace = None if train.ema is None else _pace(train.ema, step)
    updates: list[tuple[Input, Value]] = []
    flags: list[Value] = []
    for spec, gradient in zip(_trained(train, update), gradients):
        new, flag = _update(inputs[train.iterate(spec)], update, spec, inputs, gradient, lr, step)
        updates += new
        flags.append(flag)
        if pace is not None:
            average, b = inputs[spec.name], _builder(inputs[spec.name])
            away = b(OPS["sub"], new[0][1], average.value)
            moved = (average, b(OPS["add"], average.value, b(OPS["mul"], pace, away)))
            updates += [moved] if verdict is None else verdict.kept([moved])
    return updates, flags


def _clipped(update: UpdateSpec, gradients: list[Value]) -> list[Value]:
    if update.clip_value is not None:
        b = Builder(name="clip_value", phase=Phase.UPDATE)
        gradients = clip_by_value(b, gradients, update.clip_value)
    if update.clip_norm is not None:
        b = Builder(name="clip_norm", phase=Phase.UPDATE)
        gradients = clip_by_global_norm(b, gradients, update.clip_norm)
    return gradients


def _pace(ema: float, step: Value) -> Value:
    """The fraction of the distance to the new weights by which this step moves the averages."""
    b = Builder(name="ema", phase=Phase.UPDATE)

    def number(value: float) -> Value:
        return b(OPS["full"], value=value, dtype=DType.FLOAT, shape=())

    warming = b(OPS["div"], number(9.0), b(OPS["add"], number(11.0), b(OPS["cast"], step, dtype=DType.FLOAT)))
    return b(OPS["maximum"], number(1 - ema), warming)


def _builder(of: Input) -> Builder:
    return Builder(name=of.name, span=of.span, phase=Phase.UPDATE)


def _times(factor: Value, gradients: Sequence[Value], of: Sequence[Input]) -> list[Value]:
    return [_builder(tensor)(OPS["mul"], gradient, factor) for tensor, gradient in zip(of, gradients)]


def _zeros(of: Input) -> Value:
    return _builder(of)(OPS["full"], value=0.0, dtype=of.value.type.dtype, shape=of.value.type.shape)


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
    b = _builder(param)

    def emit(op: Op, *values: Value, **attrs: Attr) -> tuple[Value, ...]:
        return b.node(op, *values, **attrs).outputs

    if spec.lr_factor != 1.0:
        factor = b(OPS["full"], value=spec.lr_factor, dtype=lr.type.dtype, shape=())
        lr = b(OPS["mul"], lr, factor)
    args: dict[str, Any] = {**update.args, "weight_decay": spec.weight_decay}
    slots = [inputs[f"{spec.name}.{slot}"] for slot in update.optimizer.slots(args)]
    outputs = update.optimizer.update(emit, args, param.value, gradient, [s.value for s in slots], lr, step)
    *new, flag = outputs
    assert len(new) == 1 + len(slots), f"{update.optimizer.name} gives {len(new)} new tensors"
    return list(zip([param, *slots], new)), flag


def _flags(flags: Sequence[Value]) -> Value:
    """u8[P] from P values b1[]."""
    b = Builder(name="nonfinite", phase=Phase.UPDATE)
    rows = [b(OPS["reshape"], flag, shape=(1,)) for flag in flags]
    return b(OPS["cast"], rows[0] if len(rows) == 1 else b(OPS["concat"], *rows, axis=0), dtype=DType.U8)
