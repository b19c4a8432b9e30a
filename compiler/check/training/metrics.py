"""The metrics of a train section: for each batch, or over the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dslc.compiler.check.calls.declared import check_public_name
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.reports import Reports
from dslc.compiler.check.scope import name_span
from dslc.compiler.check.training.update import tensor_of
from dslc.compiler.check.values import Problem
from dslc.compiler.epoch_metrics import epoch_states
from dslc.compiler.ir.graph import Graph, Node, Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.sizes import Dim
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.plan.step_block import MOST_FLOATS
from dslc.dsl import syntax
from dslc.dsl.span import Span
from dslc.runtime.artifact.reserved import EPOCH_STEPS

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander
    from dslc.compiler.check.training.section import TrainSection

#: fields in the lines of the run's log, which also have a field for each metric
LOG_FIELDS: Final = ("kind", "step", "epoch", "loss", "lr", "rows", "samples_per_s", "seconds", "of",
                     "loss_scale", "skipped")  # fmt: skip


def read_metrics(group: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    """The metrics of a group; those of ``metrics epoch`` are combined over an epoch."""
    assert group.entries is not None
    if group.label is not None and not found.epoch_metrics:
        if EPOCH_STEPS in frame.locals:
            raise Problem("E0103", f"`{EPOCH_STEPS}` is the number of steps of an epoch, which `metrics epoch` takes",
                          name_span(group, group.label), help="rename the other one")  # fmt: skip
        add_scalar(EPOCH_STEPS, 1.0, group.span, found, expander)
        expander.tensors.scalar("step", DType.I64)
    for entry in group.entries:
        with expander.report():
            name = entry.targets[0]
            if entry.value is None or len(entry.targets) != 1:
                raise Problem("E0504", "a metric is `NAME = expression`", entry.span)
            check_metric_name(name, name_span(entry, name))
            if name in found.metrics:
                raise Problem("E0103", f"the metric `{name}` is declared twice", entry.span)
            value = tensor_of(entry.value, frame, expander, "a metric")
            if value.type.rank != 0:
                help = "average it with `mean(...)`"
                raise Problem("E0504", f"a metric is a scalar, this is {value.type}", entry.value.span, help=help)
            if value.type.dtype is not DType.FLOAT:
                value = expander.emit(frame, entry.value.span, OPS["cast"], value, dtype=DType.FLOAT)
            found.metrics[name] = value
            if group.label is not None:
                found.epoch_metrics.append(name)


def check_epoch_metrics(found: TrainSection, graph: Graph, batch: Dim | None, reports: Reports) -> None:
    """E0504 unless the tensors that the metrics of ``metrics epoch`` keep have fixed sizes."""
    for name in found.epoch_metrics:
        value = graph.outputs.get(f"metric.{name}")
        kept = epoch_states(graph, [name], batch).values() if value is not None else ()
        for type in kept:
            if not all(isinstance(size, int) for size in type.shape):
                assert value is not None and isinstance(value.producer, Node) and value.producer.span is not None
                shape = ", ".join(map(str, type.shape))
                title = f"`{name}` would keep a tensor of [{shape}] over the epoch"
                reports.add(Problem("E0504", title, value.producer.span, "not a fixed size",
                                    help="reduce this axis too, or write `metrics { ... }`"))  # fmt: skip


def check_metric_name(name: str, place: Span) -> None:
    check_public_name(name, "a metric", place)
    if name in LOG_FIELDS:
        raise Problem("E0112", f"a metric cannot be named `{name}`", place,
                      "each line of the log has a field of this name", help="choose another name")  # fmt: skip


def add_scalar(name: str, default: float, span: Span, found: TrainSection, expander: Expander) -> Value:
    """A number of each step. E0209 if there are too many."""
    if len(found.scalars) == MOST_FLOATS:
        title = f"a train section has at most {MOST_FLOATS} float arguments, which are numbers of each step"
        help = f"make it a constant: `const {name} = ...`"
        raise Problem("E0209", title, span, "one too many", help=help)
    found.scalars[name] = default
    return expander.tensors.scalar(name, DType.FLOAT)
