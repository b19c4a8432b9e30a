"""The `train NAME(...) { ... }` section: its inputs, loss, metrics, optimizer, averages, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check import callgraph
from dslc.compiler.check.arguments import take_arguments
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.scope import name_span
from dslc.compiler.check.signatures import check_input_name, check_public_name, input_type, static_argument
from dslc.compiler.check.values import Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.function import OPTIMIZERS, Optimizer
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.op import OPS, Mismatch
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.optimizer.clip_norm import check_limit
from dslc.compiler.passes.plan.memory import MOST_FLOATS
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label, did_you_mean
from dslc.dsl.other_names import argument_hint, nearest_hint
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: arguments of every optimizer in addition to its own
COMMON = {"weight_decay": 0.0, "clip_norm": None, "clip_value": None, "decay_on": "all"}

_MOST_MICRO_BATCHES: Final = 1 << 16

#: fields in the lines of the run's log, which also have a field for each metric
LOG_FIELDS: Final = ("kind", "step", "epoch", "loss", "lr", "rows", "samples_per_s", "seconds", "of",
                     "loss_scale", "skipped")  # fmt: skip


@dataclass
class TrainSection:
    """The contents of the section. ``args``: its arguments; ``scalars``: the floats among them, in order; ``ema``: the
    decay of the averaged weights, None without them; ``accumulate``: micro-batches per step."""

    loss: Value | None = None
    metrics: dict[str, Value] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    args: dict[str, Static] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    optimizer: Optimizer | None = None
    optimizer_args: dict[str, Any] = field(default_factory=dict)
    ema: float | None = None
    accumulate: int = 1
    span: Span | None = None
    loss_span: Span | None = None


def check_train(section: syntax.Section, frame: Frame, given: dict[str, Static], expander: Expander) -> TrainSection:
    """Evaluates a section in a frame with the model's inputs, arguments and results.

    ``given``: compile-time arguments from the command line or the configuration, already converted.
    """
    found = TrainSection(span=section.span)
    for param in section.params:
        with expander.report():
            _declare(param, frame, given, found, expander)
    seen: set[str] = set()
    for entry in section.entries:
        with expander.report():
            try:
                if entry.entries is not None:
                    if entry.targets != ("metrics",):
                        raise Problem("E0113", f"`{entry.targets[0]}` is not a group of `train`", entry.span,
                                      help="the only group is `metrics { ... }`")  # fmt: skip
                    _metrics(entry.entries, frame, found, expander)
                elif len(entry.targets) == 1 and entry.targets[0] in _RESERVED:
                    [name] = entry.targets
                    if name in seen:
                        raise Problem("E0103", f"`train` gives `{name}` twice", entry.span, "again here",
                                      help="keep one of them")  # fmt: skip
                    seen.add(name)
                    _RESERVED[name](entry, frame, found, expander)
                else:
                    assert entry.value is not None
                    _check_spelling(entry, section)
                    targets = tuple(syntax.Name(t, span=name_span(entry, t)) for t in entry.targets)
                    stmt = syntax.Assign(targets, entry.value, span=entry.span)
                    expander.statements.run((stmt,), frame)
            except (Problem, Poisoned):
                for target in entry.targets:
                    frame.locals[target] = Poison()
                raise
    if "loss" not in seen:
        expander.reports.add(
            Problem("E0501", "`train` has no loss", section.span, help="loss = cross_entropy(output, label)")
        )
    if "optimizer" not in seen:
        expander.reports.add(
            Problem("E0503", "`train` has no optimizer", section.span, help="optimizer = sgd(lr=0.1, momentum=0.9)")
        )
    return found


def _check_spelling(entry: syntax.Entry, section: syntax.Section) -> None:
    """E0113 for an unread variable whose name is similar to one that `train` reserves."""
    [name, *more] = entry.targets
    near = did_you_mean(name, _RESERVED)
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
        found.inputs.append(param.name)
        return
    if param.name in given:
        default: Static = given[param.name]
    elif param.default is not None:
        default = expander.evaluate(param.default, frame)
    else:
        raise Problem("E0201", f"`{param.name}` has no value", span, help=f"write a default, or -D {param.name}=VALUE")
    value_now = static_argument(param, default, param.span, "train")
    found.args[param.name] = value_now
    if isinstance(value_now, float):
        if len(found.scalars) == MOST_FLOATS:
            title = f"a train section has at most {MOST_FLOATS} float arguments, which are numbers of each step"
            help = f"make it a constant: `const {param.name} = ...`"
            raise Problem("E0209", title, span, "one too many", help=help)
        found.scalars[param.name] = value_now
        value_now = expander.tensors.scalar(param.name, DType.FLOAT)
    expander.statements.bind(param.name, value_now, span, frame)


def _loss(entry: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    assert entry.value is not None
    value = _tensor(entry.value, frame, expander, "the loss")
    if value.type.dtype is not DType.FLOAT:
        raise Problem("E0502", f"the loss is a float, this is {value.type}", entry.value.span, str(value.type))
    if value.type.rank == 1 and value.type.shape[0] == expander.batch:
        value = expander.emit(frame, entry.value.span, OPS["mean"], value, over=(0,), keep=False)
    if value.type.rank != 0:
        raise Problem(
            "E0502",
            f"the loss is a scalar or one value per row of the batch, this is {value.type}",
            entry.value.span,
            str(value.type),
            help="average it with `mean(...)`",
        )
    found.loss, found.loss_span = value, entry.value.span
    frame.locals["loss"] = value


def _metrics(entries: tuple[syntax.Entry, ...], frame: Frame, found: TrainSection, expander: Expander) -> None:
    for entry in entries:
        with expander.report():
            name = entry.targets[0]
            if entry.value is None or len(entry.targets) != 1:
                raise Problem("E0504", "a metric is `NAME = expression`", entry.span)
            check_public_name(name, "a metric", name_span(entry, name))
            if name in LOG_FIELDS:
                raise Problem("E0112", f"a metric cannot be named `{name}`", name_span(entry, name),
                              "each line of the log has a field of this name", help="choose another name")  # fmt: skip
            if name in found.metrics:
                raise Problem("E0103", f"the metric `{name}` is declared twice", entry.span)
            value = _tensor(entry.value, frame, expander, "a metric")
            if value.type.rank != 0:
                help = "average it with `mean(...)`"
                raise Problem("E0504", f"a metric is a scalar, this is {value.type}", entry.value.span, help=help)
            if value.type.dtype is not DType.FLOAT:
                value = expander.emit(frame, entry.value.span, OPS["cast"], value, dtype=DType.FLOAT)
            found.metrics[name] = value


def _tensor(expr: syntax.Expr, frame: Frame, expander: Expander, what: str) -> Value:
    outer = frame.node_prefix
    frame.node_prefix = "train"
    try:
        value = expander.evaluate(expr, frame)
    finally:
        frame.node_prefix = outer
    if isinstance(value, Poison):
        raise Poisoned
    if not isinstance(value, Value):
        code = "E0502" if what == "the loss" else "E0504"
        raise Problem(code, f"{what} is a tensor, this is {kind_of(value)}", expr.span, "does not depend on the data")
    return value


def _optimizer(entry: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    call = entry.value
    if not isinstance(call, syntax.Call) or not isinstance(call.function, syntax.Name):
        raise Problem("E0503", "the optimizer is a call", entry.span, help="optimizer = sgd(lr=0.1)")
    name = call.function.name
    optimizer = OPTIMIZERS.get(name)
    if optimizer is None:
        near = did_you_mean(name, OPTIMIZERS)
        title = f"unknown optimizer `{name}`" + (f"; did you mean `{near}`?" if near else "")
        help = "known are " + ", ".join(sorted(OPTIMIZERS))
        raise Problem("E0101", title, call.function.span, "not an optimizer", help=help)
    args: dict[str, Any] = {**COMMON, **optimizer.defaults}
    places: dict[str, Span] = {}
    for given in take_arguments(call.args, frame, expander):
        if given.name is None or given.name not in args:
            asked = given.name or ""
            help = argument_hint(asked, args) or nearest_hint(asked, args) or "it takes " + ", ".join(sorted(args))
            what = f"has no argument `{given.name}`" if given.name else "takes named arguments"
            raise Problem("E0201", f"`{name}` {what}", given.span, help=help)
        args[given.name] = _number(given.name, given.value, args[given.name], given.span)
        places[given.name] = given.span
    missing = [n for n, v in args.items() if v is None and n not in COMMON]
    if missing:
        raise Problem("E0201", f"`{name}` misses `{missing[0]}`", call.span, help=f"{name}({missing[0]}=0.01)")
    try:
        optimizer.slots(args)
        for key in ("clip_norm", "clip_value"):
            if args[key] is not None:
                check_limit(key, args[key])
    except Mismatch as wrong:
        place = next((span for key, span in places.items() if wrong.why.startswith(f"`{key}`")), call.span)
        raise Problem(wrong.code, f"{wrong.why}, as an argument of `{name}`", place, help=wrong.help) from None
    found.optimizer = optimizer
    found.optimizer_args = args


def _ema(entry: syntax.Entry, frame: Frame, found: TrainSection, expander: Expander) -> None:
    assert entry.value is not None
    decay = expander.evaluate(entry.value, frame)
    if not isinstance(decay, (int, float)) or isinstance(decay, bool):
        raise Problem("E0202", f"`ema` is a number, this is {kind_of(decay)}", entry.value.span, "does not fit",
                      help="ema = 0.999")  # fmt: skip
    if not 0 <= decay < 1:
        raise Problem("E0209", "`ema`, the decay of the averaged weights, is at least 0 and below 1", entry.value.span,
                      f"is {decay:g}", help="ema = 0.999 averages over about the last 1000 steps")  # fmt: skip
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
        _check_cuttable(entry, expander)
    found.accumulate = count


def _check_cuttable(entry: syntax.Entry, expander: Expander) -> None:
    """E0509 unless the rows of a step can be split into micro-batches."""
    batch = expander.batch
    if not isinstance(batch, Poly):
        raise Problem("E0509", "a step without a batch dim cannot be divided into micro-batches", entry.span,
                      "accumulates over rows", help="let the first axis of the model's first input be a dim: "
                      "`dim B in 1..512 = 64`")  # fmt: skip
    for given in expander.tensors.data.values():
        shape = given.value.type.shape
        inner = shape[1:] if shape and shape[0] == batch else shape
        if any(isinstance(size, Poly) and size.dims & batch.dims for size in inner):
            raise Problem("E0509", f"`{given.name}` {given.value.type} cannot be divided into micro-batches",
                          entry.span, f"needs {batch} as the first axis of each input, or not at all",
                          also=(Label(given.span, "this input"),) if given.span else (),
                          help="remove `accumulate`, or change the input")  # fmt: skip


#: names that `train` reserves; others are variables
_RESERVED: Final = {"loss": _loss, "optimizer": _optimizer, "ema": _ema, "accumulate": _accumulate}


def _number(name: str, value: Static, default: Any, span: Span) -> Any:
    if isinstance(default, bool):
        fits = isinstance(value, bool)
    elif isinstance(default, str):
        fits = value in ("all", "matrices") if name == "decay_on" else isinstance(value, str)
    elif isinstance(default, tuple):
        fits = isinstance(value, (tuple, list)) and len(value) == len(default)
        fits = fits and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)  # type: ignore[union-attr]
    else:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits:
        raise Problem("E0202", f"`{name}` cannot be {kind_of(value)}", span, "does not fit")
    if isinstance(default, tuple):
        return tuple(float(v) for v in value)  # type: ignore[union-attr, arg-type]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
