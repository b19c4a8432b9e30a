"""Metrics over an epoch of training: their reductions over the batch are combined over all steps, as in evaluation.

Before, in the checked model::

    metric.f1 = 2 * tp / (2 * tp + wrong)      with sums tp and wrong over the batch

After: ``train.epoch.0`` and ``train.epoch.1`` in the state hold the sums since the first step of the epoch::

    first        = step % epoch_steps == 0
    train.epoch.0 <- where(first, tp, train.epoch.0 + tp)
    metric.f1     = the same expression of the new sums

Of a step with micro-batches, each adds its own reductions. ``train.epoch.parts`` counts them, and only the first one of
a step can begin an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dslc.compiler.eval_partials import split_at_batch
from dslc.compiler.ir.graph import Graph, Input, Kind, Node, Value, order
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.sizes import Dim
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.reserved import EPOCH_STEPS, OF_EPOCH

#: The number of micro-batches of the present step that were added.
_PARTS: Final = f"{OF_EPOCH}parts"
_COMBINED: Final = {"sum": "add", "max": "maximum", "min": "minimum"}


def epoch_states(graph: Graph, names: Sequence[str], batch: Dim | None, parts: int = 1) -> Mapping[str, TensorType]:
    """The tensors of the state that these metrics need, which start at 0, by name. Sizes may have dims, which the check
    refuses. ``parts``: the micro-batches of a step."""
    if not names:
        return {}
    step, _ = split_at_batch(_metrics(graph, names), batch)
    counted = {_PARTS: TensorType(DType.I64, ())} if parts > 1 else {}
    return {_state(output): value.type for output, value in step.outputs.items()} | counted


def over_epochs(graph: Graph, names: Sequence[str], batch: Dim | None, parts: int = 1) -> Graph:
    """The graph of a step that updates these tensors, and whose metrics are computed from their new values.

    It has the scalars ``step`` and ``epoch_steps``, the steps of an epoch: a multiple starts a new epoch. With several
    ``parts`` it is the graph of a micro-batch.
    """
    if not names:
        return graph
    inputs = {i.name: i for i in graph.inputs}
    step, finish = split_at_batch(_metrics(graph, names), batch)
    b = Builder(name="train.epoch")
    steps = b(OPS["cast"], inputs[EPOCH_STEPS].value, dtype=DType.I64)
    zero = b(OPS["full"], value=0, dtype=DType.I64, shape=())
    first = b(OPS["eq"], b(OPS["mod"], inputs["step"].value, steps), zero)
    states: list[Input] = []
    totals: dict[str, Value] = {}
    counted: list[tuple[Input, Value]] = []
    if parts > 1:
        count = Input(_PARTS, Kind.OPTIMIZER, TensorType(DType.I64, ()))
        first = b(OPS["logical_and"], first, b(OPS["eq"], count.value, zero))
        one, all = (b(OPS["full"], value=number, dtype=DType.I64, shape=()) for number in (1, parts))
        counted.append((count, b(OPS["mod"], b(OPS["add"], count.value, one), all)))
    for output, value in step.outputs.items():
        family, number, *how = output.split(".")
        states.append(Input(_state(output), Kind.OPTIMIZER, value.type))
        combined = b(OPS[_COMBINED[how[0] if how else "sum"]], states[-1].value, value)
        totals[f"{family}.{number}"] = b(OPS["where"], first, value, combined)
    new = {i.value: totals[i.name] for i in finish.inputs if i.name in totals}
    for node in finish.nodes:
        read = tuple(new.get(v, v) for v in node.inputs)
        name = node.name if node.name.startswith("train") else b.name
        made = Node(node.op, read, node.types, node.attrs, name=name, span=node.span, phase=node.phase)
        new.update(zip(node.outputs, made.outputs))
    metrics = {name: new.get(value, value) for name, value in finish.outputs.items()}
    outputs = {name: metrics.get(name, value) for name, value in graph.outputs.items()}
    updates = (*graph.updates, *((state, totals[_total(state.name)]) for state in states), *counted)
    nodes = order([*outputs.values(), *(v for _, v in updates)])
    return Graph((*graph.inputs, *states, *(state for state, _ in counted)), nodes, outputs, updates)


def _metrics(graph: Graph, names: Sequence[str]) -> Graph:
    wanted = {f"metric.{name}": graph.outputs[f"metric.{name}"] for name in names}
    return Graph(graph.inputs, order(wanted.values()), wanted)


def _state(output: str) -> str:
    """``partial.0.sum`` -> ``train.epoch.0``, ``count.0`` -> ``train.epoch.0.count``."""
    family, number, *_ = output.split(".")
    return f"{OF_EPOCH}{number}" + (".count" if family == "count" else "")


def _total(state: str) -> str:
    number, _, count = state.removeprefix(OF_EPOCH).partition(".")
    return f"{count or 'partial'}.{number}"
