"""A batch that is divided into shards: the graph of one shard, and the graph that updates from the sums over all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import prod

from dslc.compiler.ir.build import SHARD, TrainSpec
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.scan_merge import merged_loops
from dslc.compiler.ir.scan_sums import continued_sums
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.passes.lower.gradient.averages import averages
from dslc.compiler.passes.lower.gradient.loss_scale import Scaling
from dslc.compiler.passes.lower.gradient.optimizer_step import (
    clipped,
    every_flag,
    gradients_of,
    optimizer_step,
    scaled_by,
    trained_by,
)
from dslc.runtime.artifact.reserved import LOSS_SUM
from dslc.runtime.artifact.slices import Piece, piece_name


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


def update_graph(graph: Graph, train: TrainSpec, cut: Mapping[str, tuple[Piece, ...]]) -> Graph:
    """The graph that updates the state from the sums over all shards, which are its inputs ``shard.NAME``.

    ``cut``: the pieces of each parameter. Each is updated like a parameter of its own, so a process may update its
    pieces alone."""
    section = train
    [update] = train.updates
    whole = {i.name: i for i in graph.inputs}
    added: list[Input] = []
    sums = {name.removeprefix(SHARD): i for name, i in whole.items() if name.startswith(SHARD)}
    totals = {name: i.value for name, i in sums.items() if name != LOSS_SUM}
    names = [spec.name for spec in trained_by(train, update)]
    scaling = None if train.loss_scale is None else Scaling(train.loss_scale, whole)
    verdict = None
    if scaling is not None:
        verdict = scaling.judge([totals[name] for name in names], sums[LOSS_SUM].value)
    pieces = {name: cut[name] for name in names if len(cut.get(name, ())) > 1}
    alone = update.clip_norm is None and verdict is None  # nothing reads a whole sum
    train, inputs = _with_pieces(train, whole, pieces, sums=alone)
    [update] = train.updates
    b = Builder(name="shards", phase=Phase.UPDATE)
    count = b(OPS["full"], value=float(train.shards * train.accumulate), dtype=DType.FLOAT, shape=())

    def means(of: Mapping[str, Value], there: Mapping[str, Input]) -> dict[str, Value]:
        if verdict is not None:
            unscaled = scaled_by(verdict.inverse(), list(of.values()), [there[train.iterate_of(name)] for name in of])
            of = dict(zip(of, unscaled))
        return {name: b(OPS["div"], total, count) for name, total in of.items()}

    gradients = {name: totals[name] for name in names}
    if alone:
        of_pieces = {name: [piece_name(name, p) for p in pieces[name]] for name in pieces}
        parts = {
            part: inputs[f"{SHARD}{name}" if part == name else _sum_name(name, number, pieces)].value
            for name in names
            for number, part in enumerate(of_pieces.get(name, [name]))
        }
        gradients = means(parts, inputs)
    elif update.clip_norm is None:
        gradients = means(_cut(gradients, pieces), inputs)
    else:  # the norm is that of whole tensors
        within = clipped(update, list(means(gradients, whole).values()))
        gradients = _cut(dict(zip(names, within)), pieces)
        update = dataclasses.replace(update, clip_norm=None, clip_value=None)
    found, flags = optimizer_step(train, update, inputs, added, list(gradients.values()), scaling, verdict)
    buffers = {name: total for name, total in totals.items() if whole[name].kind is Kind.BUFFER}
    updates = [(whole[name], b(OPS["div"], total, count)) for name, total in buffers.items()]
    updates = updates if verdict is None else verdict.kept(updates)
    updates += [*found, *averages(train, inputs, found, verdict)]
    of_piece = iter(flags)
    each = [_any([next(of_piece) for _ in pieces.get(name, (name,))]) for name in names]
    outputs = {"nonfinite": every_flag(section, names, each) if verdict is None else verdict.flags}
    if verdict is not None:
        updates += verdict.updates()
        outputs |= verdict.outputs()
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return Graph((*inputs.values(), *added), nodes, outputs, tuple(updates))


def _sum_name(name: str, number: int, pieces: Mapping[str, tuple[Piece, ...]]) -> str:
    """The input for the sum of a piece, by its number: ``shard.w.16``, whose first element has this number."""
    return f"{SHARD}{name}.{pieces[name][number].start}"


def _with_pieces(
    train: TrainSpec, inputs: Mapping[str, Input], pieces: Mapping[str, tuple[Piece, ...]], sums: bool
) -> tuple[TrainSpec, dict[str, Input]]:
    """The section and the inputs with the pieces of each of these parameters and its slots instead of the whole; and of
    its sum, in the sum's place, if ``sums``."""
    [update] = train.updates
    found: dict[str, Input] = {}
    for key, source in inputs.items():
        name = key.removeprefix(SHARD)
        if not sums or key == name or name not in pieces:
            found[key] = source
            continue
        for number, piece in enumerate(pieces[name]):
            named = _sum_name(name, number, pieces)
            type = TensorType(source.value.type.dtype, (piece.stop - piece.start,))
            found[named] = Input(named, source.kind, type, source.span)
    for name, parts in pieces.items():
        for slot in ("", *(f".{each}" for each in train.slots(update, name))):
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
