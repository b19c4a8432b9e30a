"""Finds the parameters that the loss reaches, and checks that it and the tensors whose ``gradient`` is taken are
differentiable, before a program would."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dslc.compiler.check.reports import Reports
from dslc.compiler.check.selection import selected
from dslc.compiler.check.tensors import ParamInfo, Tensors
from dslc.compiler.check.training.section import TrainSection
from dslc.compiler.check.training.update import Update
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.fault import PackageFault
from dslc.compiler.ir.graph import Graph, Kind, Node, order
from dslc.compiler.ir.pull_back import NotDifferentiable
from dslc.compiler.ir.sizes import Dim
from dslc.compiler.ops.compound.gradient import gradient
from dslc.compiler.passes.lower.gradient.differentiate import differentiate
from dslc.compiler.passes.lower.gradient.gradients import with_gradients
from dslc.dsl.diagnostics import Label
from dslc.dsl.span import Span
from dslc.runtime.weights.names.pattern import BadRule


def unreached(train: TrainSection, tensors: Tensors, dims: tuple[Dim, ...], reports: Reports) -> frozenset[str]:
    """The names of the trainable parameters that no update changes: they keep their values. W008 for each call that
    creates such parameters; E0505 if none is to be trained, E0506 if a loss reaches none, E0507 for an operation on the
    way without a gradient, E0510 if steps select no parameter, or one twice.

    Notes in each update which parameters it trains. The gradient is computed for the default sizes; the set of reached
    parameters does not depend on them.
    """
    assert train.span is not None
    wanted = {n: p for n, p in tensors.stored.items() if p.input.kind is Kind.PARAM and p.groups.trainable}
    if not wanted:
        why = "the model has none"
        if any(not p.groups.trainable for p in tensors.stored.values()):
            why = "all are frozen or averages"
        help = (
            "remove `@freeze` from one of them"
            if why.startswith("all")
            else "a layer such as `linear(10)` has parameters"
        )
        reports.add(Problem("E0505", f"no parameter is trained: {why}", train.span, "nothing to train", help=help))
        return frozenset()
    missed = dict(wanted)
    for update, mine in divided(train.updates, tensors.stored, reports):
        reached = _reached(update, mine, tensors, dims, reports)
        if reached is None:
            return frozenset()
        update.trained = tuple(name for name in mine if name in reached)
        missed = {name: info for name, info in missed.items() if name not in reached}
    _warn(missed, train, reports)
    return frozenset(missed)


def divided(
    updates: Sequence[Update], stored: Mapping[str, ParamInfo], reports: Reports
) -> Iterator[tuple[Update, Mapping[str, ParamInfo]]]:
    """Each update with the parameters that it may train, without frozen ones. E0510 if a pattern selects none, or if
    two updates have the same."""
    params = {name: info for name, info in stored.items() if info.input.kind is Kind.PARAM}
    owners: dict[str, Update] = {}
    for update in updates:
        names = set(params)
        if update.name:
            assert update.patterns_span is not None
            try:
                names = {name for text in update.patterns for name in selected(text, params)}
            except BadRule as bad:
                reports.add(Problem("E0510", str(bad), update.patterns_span, help=bad.help))
                continue
        twice = [name for name in params if name in names and name in owners]
        if twice:
            first = owners[twice[0]]
            assert update.patterns_span is not None and first.patterns_span is not None
            reports.add(Problem("E0510", f"two steps train `{twice[0]}`", update.patterns_span, "again here",
                                also=(Label(first.patterns_span, "first here"),),
                                help="let each parameter belong to one step"))  # fmt: skip
            continue
        try:
            named_by_patterns(update, params)
        except BadRule as bad:
            assert update.optimizer is not None and update.optimizer_span is not None
            title = f"{bad}, as an argument of `{update.optimizer.name}`"
            reports.add(Problem("E0209", title, update.optimizer_span, help=bad.help))
            continue
        owners |= dict.fromkeys(names, update)
        yield update, {n: info for n, info in params.items() if n in names and info.groups.trainable}


def named_by_patterns(update: Update, params: Mapping[str, ParamInfo]) -> Collection[str]:
    """The names that the patterns of an optimizer's argument select; none without such an argument. BadRule for one
    that selects none."""
    argument = None if update.optimizer is None else update.optimizer.patterns
    texts = () if argument is None else update.optimizer_args[argument]
    names = [name for name, info in params.items() if info.input.kind is Kind.PARAM]
    return {name for text in texts for name in selected(text, names)}


def _reached(
    update: Update, mine: Mapping[str, ParamInfo], tensors: Tensors, dims: tuple[Dim, ...], reports: Reports
) -> Collection[str] | None:
    """The names of those parameters of ``mine`` on which the update's loss depends; None after an error."""
    assert update.loss is not None and update.loss_span is not None
    graph = Graph(tensors.inputs, order([update.loss]), {"loss": update.loss})
    graph = graph.bind({dim.name: dim.default for dim in dims})
    with _reported(reports, update.loss_span, "on the path to the loss") as fine:
        graph = with_gradients(graph)
        tensor_of = {i.name: i.value for i in graph.inputs if i.name in mine}
        found = differentiate(graph, graph.outputs["loss"], list(tensor_of.values()))
    if not fine:
        return None
    reached = [name for name, value in tensor_of.items() if value in found]
    if not reached:
        title = "the loss depends on no trained parameter"
        help = "comparisons, `argmax`, `accuracy` and `stop_gradient` let no gradient through"
        reports.add(Problem("E0506", title, update.loss_span, "nothing to learn from", help=help))
        return None
    return reached


def check_gradients(graph: Graph, dims: tuple[Dim, ...], reports: Reports) -> None:
    """Checks each call of ``gradient`` for the default sizes: E0507 for an operation on the way without a gradient,
    E0511 if the first tensor does not depend on the second."""

    def missed(node: Node) -> None:
        assert node.span is not None
        title = "this gradient is always 0: the first tensor is not computed from the second"
        help = "compute it from this very tensor; `stop_gradient`, comparisons and `argmax` let no gradient through"
        reports.add(Problem("E0511", title, node.span, help=help))

    first = next((node for node in graph.nodes if node.op is gradient), None)
    if first is not None:
        assert first.span is not None
        with _reported(reports, first.span, "on the path of a `gradient`"):
            with_gradients(graph.bind({dim.name: dim.default for dim in dims}), missed)


@contextmanager
def _reported(reports: Reports, place: Span, text: str) -> Iterator[list[bool]]:
    """Reports an operation without a gradient, or a package's fault; ``place`` if it has none. Gives a list that is
    empty after an error."""
    fine = [True]
    try:
        yield fine
    except NotDifferentiable as wrong:
        reports.add(Problem("E0507", wrong.message, wrong.span or place, text, help=wrong.help))
        fine.clear()
    except PackageFault as fault:
        reports.add(Problem("E0115", fault.message, fault.span or place, "needs its gradient", help=fault.help))
        fine.clear()


def _warn(missed: dict[str, ParamInfo], train: TrainSection, reports: Reports) -> None:
    by_call: dict[tuple[str, int], list[str]] = {}
    for name, info in missed.items():
        by_call.setdefault((info.span.source.path, info.span.start), []).append(name)
    losses = tuple(Label(update.loss_span, "the loss") for update in train.updates if update.loss_span is not None)
    loss = "the loss does not depend" if len(losses) == 1 else "no step trains with a loss that depends"
    for names in by_call.values():
        shown = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        reports.warn(
            "W008",
            f"{loss} on {shown}: training leaves {'it' if len(names) == 1 else 'them'} alone",
            missed[names[0]].span,
            "makes no difference to the loss",
            help="use its result in the loss, remove it, or mark it with `@freeze`",
            also=losses,
        )  # fmt: skip
