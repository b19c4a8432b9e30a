"""The `train NAME(...) { ... }` section: its inputs, updates, metrics, averages, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dslc.base.words import of_percentage
from dslc.compiler.check.calls import callgraph
from dslc.compiler.check.calls.declared import check_input_name, input_type
from dslc.compiler.check.calls.signatures import refuse_list, static_argument
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.scope import name_span
from dslc.compiler.check.training.metrics import add_scalar, check_metric_name, read_metrics
from dslc.compiler.check.training.update import Update, read_update
from dslc.compiler.check.values import Poison, Poisoned, Problem, Static, kind_of, require_finite
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.sizes import Poly
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

_MOST_MICRO_BATCHES: Final = 1 << 16
MOST_SHARDS: Final = 1 << 10


@dataclass
class TrainSection:
    """The contents of the section. ``args``: its arguments; ``scalars``: the floats among them, in order; ``updates``:
    what a step does, in order; ``loss``: the sum of their losses; ``epoch_metrics``: the metrics that are combined over
    the steps of an epoch; ``ema``: the decay of the averaged weights, None
    without them; ``accumulate``: micro-batches per step; ``shards``: the parts of equal size into which `mesh` divides
    the batch of each step."""

    loss: Value | None = None
    metrics: dict[str, Value] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    args: dict[str, Static] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    epoch_metrics: list[str] = field(default_factory=list)
    ema: float | None = None
    accumulate: int = 1
    shards: int = 1
    span: Span | None = None


def check_train(section: syntax.Section, frame: Frame, given: dict[str, Static], expander: Expander) -> TrainSection:
    """Evaluates a section in a frame with the model's inputs, arguments and results; it also sees its parameters.

    ``given``: compile-time arguments from the command line or the configuration, already converted.
    """
    found = TrainSection(span=section.span)
    for param in section.params:
        with expander.report():
            try:
                _declare(param, frame, given, found, expander)
            except (Problem, Poisoned):
                frame.locals.setdefault(param.name, Poison())
                raise
    several = any(entry.entries is not None and entry.targets == ("step",) for entry in section.entries)
    only = Update(place=section.span)
    seen: set[str] = set()
    for entry in section.entries:
        with expander.report():
            try:
                _entry(entry, section, only, seen, frame, found, expander)
            except (Problem, Poisoned):
                for target in entry.targets:
                    frame.locals[target] = Poison()
                raise
    if several:
        _join(found, only, section, frame, expander)
    else:
        only.require("`train`", expander.reports)
        found.updates.append(only)
        found.loss = only.loss
    return found


def _entry(
    entry: syntax.Entry,
    section: syntax.Section,
    only: Update,
    seen: set[str],
    frame: Frame,
    found: TrainSection,
    expander: Expander,
) -> None:
    name = entry.targets[0]
    if entry.entries is not None:
        if name == "metrics" and entry.label in (None, "epoch"):
            read_metrics(entry, frame, found, expander)
        elif name == "step" and entry.label is not None:
            _add_step(entry, section, frame, found, expander)
        else:
            help = "its groups are `metrics { ... }`, `metrics epoch { ... }` and `step NAME { ... }`"
            raise Problem("E0113", f"`{name}` is not a group of `train`", entry.span, help=help)
    elif len(entry.targets) == 1 and name in RESERVED:
        if name in seen:
            raise Problem("E0103", f"`train` gives `{name}` twice", entry.span, "again here",
                          help="keep one of them")  # fmt: skip
        seen.add(name)
        if name in _OF_UPDATE:
            read_update(entry, only, frame, expander)
        else:
            _OF_SECTION[name](entry, frame, found, expander)
    else:
        _variable(entry, section, frame, expander)


def _variable(entry: syntax.Entry, section: syntax.Section, frame: Frame, expander: Expander) -> None:
    assert entry.value is not None
    _check_spelling(entry, section)
    targets = tuple(syntax.Name(t, span=name_span(entry, t)) for t in entry.targets)
    expander.statements.run((syntax.Assign(targets, entry.value, span=entry.span),), frame)


def _add_step(
    entry: syntax.Entry, section: syntax.Section, frame: Frame, found: TrainSection, expander: Expander
) -> None:
    """A group ``step NAME { params = ...; loss = ...; optimizer = ... }``; its loss is also the metric NAME."""
    assert entry.entries is not None and entry.label is not None
    name, place = entry.label, name_span(entry, entry.label)
    check_metric_name(name, place)
    if name in found.metrics or name in frame.locals:
        raise Problem("E0103", f"there is another `{name}` in `train`", place, "again here", help="rename one")
    update = Update(name=name, place=place)
    found.updates.append(update)
    seen: set[str] = set()
    for each in entry.entries:
        with expander.report():
            target = each.targets[0]
            if each.entries is None and len(each.targets) == 1 and target in (*_OF_UPDATE, "params"):
                if target in seen:
                    raise Problem("E0103", f"`step {name}` gives `{target}` twice", each.span, "again here",
                                  help="keep one of them")  # fmt: skip
                seen.add(target)
                read_update(each, update, frame, expander)
            elif each.entries is None and target not in RESERVED:
                _variable(each, section, frame, expander)
            else:
                raise Problem("E0113", f"`{target}` does not belong to a step", each.span,
                              help="a step has `params`, `loss`, `optimizer` and variables")  # fmt: skip
    update.require(f"`step {name}`", expander.reports)
    if "params" not in seen:
        help = f'params = "{name}" for all parameters of that layer'
        raise Problem("E0510", f"`step {name}` does not say which parameters it trains", place, help=help)
    frame.locals[name] = Poison() if update.loss is None else update.loss
    if update.loss is not None:
        found.metrics[name] = update.loss


def _join(found: TrainSection, only: Update, section: syntax.Section, frame: Frame, expander: Expander) -> None:
    """Checks what cannot stand next to steps, and adds up their losses."""
    for name, place in (("loss", only.loss_span), ("optimizer", only.optimizer_span)):
        if place is not None:
            expander.reports.add(Problem("E0113", f"`{name}` stands next to steps", place, "belongs into a step",
                                         help="move it into one of them"))  # fmt: skip
    rates = [update.optimizer_args["lr"] for update in found.updates if update.optimizer is not None]
    if any(rates) and not rates[0]:
        expander.reports.add(Problem("E0209", "the first step's learning rate is 0, but others are multiples of it",
                                     found.updates[0].optimizer_span or section.span))  # fmt: skip
    losses = [update.loss for update in found.updates]
    total = None
    for loss in losses:
        if loss is None:
            return
        total = loss if total is None else expander.emit(frame, section.span, OPS["add"], total, loss)
    found.loss = total


def _check_spelling(entry: syntax.Entry, section: syntax.Section) -> None:
    """E0113 for an unread variable whose name is similar to one that `train` reserves."""
    [name, *more] = entry.targets
    if name == "metrics" and not more:
        help = "write `metrics { NAME = value }`: each metric has a name"
        raise Problem("E0113", "`metrics` is a group of `train`", name_span(entry, name), help=help)
    near = did_you_mean(name, RESERVED)
    if (
        near
        and not more
        and name not in {n.name for n in callgraph.walk(section.entries) if isinstance(n, syntax.Name)}
    ):
        raise Problem("E0113", f"`train` has no entry `{name}`, and nothing reads this name", name_span(entry, name),
                      help=f"did you mean `{near}`?")  # fmt: skip


def _declare(
    param: syntax.Param, frame: Frame, given: dict[str, Static], found: TrainSection, expander: Expander
) -> None:
    span = name_span(param, param.name)
    check_input_name(param.name, span)
    if param.name in frame.locals:
        raise Problem("E0103", f"`{param.name}` is the name of a result, input or argument of the model", span, "again")
    if isinstance(param.type, syntax.TensorTypeExpr):
        value = expander.tensors.add_data(param.name, input_type(param.type, frame, expander), param.span)
        expander.statements.bind(param.name, value, span, frame)
        frame.params[param.name] = param
        found.inputs.append(param.name)
        return
    refuse_list(param, "train")
    if param.name in given:
        default: Static = given[param.name]
    elif param.default is not None:
        default = expander.evaluate(param.default, frame)
    else:
        raise Problem("E0201", f"`{param.name}` has no value", span, help=f"write a default, or -D {param.name}=VALUE")
    require_finite(default, f"`{param.name}`, an argument of `train`,", param.span)
    value_now = static_argument(param, default, param.span, "train")
    found.args[param.name] = value_now
    if isinstance(value_now, float):
        value_now = add_scalar(param.name, value_now, span, found, expander)
    expander.statements.bind(param.name, value_now, span, frame)


def _ema(entry: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    assert entry.value is not None
    decay = expander.evaluate(entry.value, frame)
    if not isinstance(decay, (int, float)) or isinstance(decay, bool):
        raise Problem("E0202", f"`ema` is a number, this is {kind_of(decay)}", entry.value.span, "does not fit",
                      help="ema = 0.999")  # fmt: skip
    if not 0 <= decay < 1:
        raise Problem("E0209", "`ema`, the decay of the averaged weights, is at least 0 and below 1", entry.value.span,
                      f"is {decay:g}", help=of_percentage(decay, below=True)
                      or "ema = 0.999 averages over about the last 1000 steps")  # fmt: skip
    found.ema = float(decay)


def _accumulate(entry: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    assert entry.value is not None
    count = expander.evaluate(entry.value, frame)
    if type(count) is not int:
        raise Problem("E0202", f"`accumulate` is an int, this is {kind_of(count)}", entry.value.span, "does not fit",
                      help="accumulate = 4")  # fmt: skip
    if not 1 <= count <= _MOST_MICRO_BATCHES:
        raise Problem("E0209", f"`accumulate`, the micro-batches of a step, is 1 to {_MOST_MICRO_BATCHES}",
                      entry.value.span, f"is {count}")  # fmt: skip
    if count > 1:
        _check_cuttable(entry, expander, "accumulate", "micro-batches")
    found.accumulate = count


def divide_into_shards(found: TrainSection, count: int, entry: syntax.Entry, expander: Expander) -> None:
    """Sets ``shards``; E0509 for a section whose steps cannot be divided. ``entry``: that of `mesh`."""
    found.shards = count
    if count == 1:
        return
    _check_cuttable(entry, expander, "mesh", "shards")
    if found.epoch_metrics:
        title = "a step with metrics over the epoch cannot be divided into shards"
        help = "write `metrics { ... }`, which the evaluation combines over all rows, or remove `mesh`"
        raise Problem("E0509", title, entry.span, "a shard changes no state", help=help)


def _check_cuttable(entry: syntax.Entry, expander: Expander, by: str, parts: str) -> None:
    """E0509 unless the rows of a step can be split into these parts, which ``by`` asks for."""
    batch = expander.batch
    if not isinstance(batch, Poly):
        why = "accumulates over rows" if by == "accumulate" else "divides the rows"
        help = "let the first axis of the model's first input be a dim: `dim B in 1..512 = 64`"
        title = f"a step without a batch dim cannot be divided into {parts}"
        raise Problem("E0509", title, entry.span, why, help=help)
    for name, state in expander.tensors.states.items():
        title = f"the state `{name}` cannot be divided into {parts}"
        raise Problem("E0509", title, entry.span, "each would need a state of its own",
                      also=(Label(state.span, "this state"),), help=f"remove `{by}`")  # fmt: skip
    for given in expander.tensors.data.values():
        shape = given.value.type.shape
        inner = shape[1:] if shape and shape[0] == batch else shape
        if any(isinstance(size, Poly) and size.dims & batch.dims for size in inner):
            raise Problem("E0509", f"`{given.name}` {given.value.type} cannot be divided into {parts}",
                          entry.span, f"needs {batch} as the first axis of each input, or not at all",
                          also=(Label(given.span, "this input"),) if given.span else (),
                          help=f"remove `{by}`, or change the input")  # fmt: skip


#: what an update consists of: the only one of `train`, or a step
_OF_UPDATE: Final = ("loss", "optimizer")
_OF_SECTION: Final = {"ema": _ema, "accumulate": _accumulate}
#: names that `train` reserves; others are variables
RESERVED: Final = (*_OF_UPDATE, *_OF_SECTION)
