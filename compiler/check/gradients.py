"""Finds the parameters that the loss reaches, and checks that it is differentiable, before a training step would."""

from __future__ import annotations

from dslc.compiler.check.reports import Reports
from dslc.compiler.check.tensors import ParamInfo, Tensors
from dslc.compiler.check.train import TrainSection
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.graph import Graph, Kind, order
from dslc.compiler.ir.sizes import Dim
from dslc.compiler.passes.lower.autodiff import NotDifferentiable, differentiate
from dslc.dsl.diagnostics import Label


def unreached(train: TrainSection, tensors: Tensors, dims: tuple[Dim, ...], reports: Reports) -> frozenset[str]:
    """The names of the trainable parameters on which the loss does not depend: they keep their values. W008 for each
    call that creates such parameters; E0505 if none is to be trained, E0506 if the loss reaches none, E0507 for an
    operation on the way without a gradient.

    The gradient is computed for the default sizes; the set of reached parameters does not depend on them.
    """
    assert train.loss is not None and train.span is not None and train.loss_span is not None
    wanted = {n: p for n, p in tensors.stored.items() if p.input.kind is Kind.PARAM and not p.groups.freeze}
    if not wanted:
        why = "all are frozen" if any(p.groups.freeze for p in tensors.stored.values()) else "the model has none"
        help = (
            "remove `@freeze` from one of them"
            if why.startswith("all")
            else "a layer such as `linear(10)` has parameters"
        )
        reports.add(Problem("E0505", f"no parameter is trained: {why}", train.span, "nothing to train", help=help))
        return frozenset()
    graph = Graph(tensors.inputs, order([train.loss]), {"loss": train.loss})
    graph = graph.bind({dim.name: dim.default for dim in dims})
    tensor_of = {i.name: i.value for i in graph.inputs if i.name in wanted}
    try:
        reached = differentiate(graph, graph.outputs["loss"], list(tensor_of.values()))
    except NotDifferentiable as wrong:
        reports.add(Problem("E0507", wrong.message, wrong.span or train.loss_span, "on the path to the loss",
                            help=wrong.help))  # fmt: skip
        return frozenset()
    missed = {name: info for name, info in wanted.items() if tensor_of[name] not in reached}
    if len(missed) == len(wanted):
        title = "the loss depends on no trained parameter"
        help = "comparisons, `argmax`, `accuracy` and `stop_gradient` let no gradient through"
        reports.add(Problem("E0506", title, train.loss_span, "nothing to learn from", help=help))
        return frozenset()
    _warn(missed, train, reports)
    return frozenset(missed)


def _warn(missed: dict[str, ParamInfo], train: TrainSection, reports: Reports) -> None:
    by_call: dict[tuple[str, int], list[str]] = {}
    for name, info in missed.items():
        by_call.setdefault((info.span.source.path, info.span.start), []).append(name)
    assert train.loss_span is not None
    for names in by_call.values():
        shown = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        reports.warn(
            "W008",
            f"the loss does not depend on {shown}: training leaves {'it' if len(names) == 1 else 'them'} alone",
            missed[names[0]].span,
            "makes no difference to the loss",
            help="use its result in the loss, remove it, or mark it with `@freeze`",
            also=(Label(train.loss_span, "the loss"),),
        )  # fmt: skip
