"""The optimizer of a train section, and its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check.calls.convert import of_each_step
from dslc.compiler.check.calls.given import take_arguments
from dslc.compiler.check.calls.meant import number_in_quotes
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, Static, kind_of, require_finite
from dslc.compiler.ir.function import OPTIMIZERS, Optimizer
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ops.constants.known import number_or
from dslc.compiler.ops.optimizer.clip_norm import check_limit
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.other_names import argument_hint, key_of, nearest_hint
from dslc.dsl.paper_names import RULES
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: arguments of every optimizer in addition to its own
COMMON = {"weight_decay": 0.0, "clip_norm": None, "clip_value": None, "decay_on": "all"}


#: What weight decay acts on: all parameters, or those with two axes or more.
DECAY_ON: Final = ("all", "matrices")


def read_optimizer(entry: syntax.Entry, frame: Frame, expander: Expander) -> tuple[Optimizer, dict[str, Any]]:
    """The optimizer of an entry ``optimizer = adam(lr=0.1)``, and its arguments with defaults for those not given.
    E0503 if it is no call, E0101 if it is unknown, E0201 and others for its arguments."""
    call = entry.value
    if not isinstance(call, syntax.Call) or not isinstance(call.function, syntax.Name):
        written = call.name if isinstance(call, syntax.Name) else call.value if isinstance(call, syntax.String) else ""
        near = written if written in OPTIMIZERS else did_you_mean(written, OPTIMIZERS)
        raise Problem("E0503", "the optimizer is a call", entry.span, help=f"optimizer = {near or 'sgd'}(lr=0.01)")
    name = call.function.name
    optimizer = OPTIMIZERS.get(name)
    if optimizer is None:
        near = None if key_of(name) in RULES else did_you_mean(name, OPTIMIZERS)
        title = f"unknown optimizer `{name}`" + (f"; did you mean `{near}`?" if near else "")
        help = "known are " + ", ".join(sorted(OPTIMIZERS))
        if near is None:
            help += '; docs/cookbook.md, "An optimizer of your own", shows how to write another rule'
        raise Problem("E0101", title, call.function.span, "not an optimizer", help=help)
    args: dict[str, Any] = {**COMMON, **optimizer.defaults}
    places: dict[str, Span] = {}
    for given in take_arguments(call.args, frame, expander):
        if given.name is None or given.name not in args:
            asked = given.name or ""
            hint = argument_hint(asked, args, given.written, given.value) or nearest_hint(asked, args)
            if not given.name and "lr" not in places and isinstance(given.value, (int, float)):
                hint = f"write `lr={given.written}`"
            help = hint or "it takes " + ", ".join(sorted(args))
            what = f"has no argument `{given.name}`" if given.name else "takes named arguments"
            raise Problem("E0201", f"`{name}` {what}", given.span, help=help)
        require_finite(given.value, f"`{given.name}` of `{name}`", given.span)
        args[given.name] = _number(given.name, given.value, args[given.name], given.span)
        places[given.name] = given.span
    missing = [n for n, v in args.items() if v is None and n not in COMMON]
    if missing:
        raise Problem("E0201", f"`{name}` misses `{missing[0]}`", call.span, help=f"add `{missing[0]}=0.01`")
    try:
        optimizer.slots(args)
        for key in ("clip_norm", "clip_value"):
            if args[key] is not None:
                check_limit(key, args[key])
    except Mismatch as wrong:
        place = next((span for key, span in places.items() if wrong.why.startswith(f"`{key}`")), call.span)
        raise Problem(wrong.code, f"{wrong.why}, as an argument of `{name}`", place, help=wrong.help) from None
    return optimizer, args


def _number(name: str, value: Static, default: Any, span: Span) -> Any:
    value = number_or(value)
    if isinstance(default, bool):
        fits = isinstance(value, bool)
    elif isinstance(default, str):
        fits = value in DECAY_ON if name == "decay_on" else isinstance(value, str)
    elif default == ():
        value = (value,) if isinstance(value, str) else value
        fits = isinstance(value, (tuple, list)) and all(isinstance(v, str) for v in value)
    elif isinstance(default, tuple):
        fits = isinstance(value, (tuple, list)) and len(value) == len(default)
        fits = fits and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)  # type: ignore[union-attr]
    else:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits:
        title, help = f"`{name}` cannot be {kind_of(value)}", of_each_step(value)
        if name == "decay_on":
            title, help = "`decay_on` is a word", f'write `decay_on="{DECAY_ON[0]}"` or `decay_on="{DECAY_ON[1]}"`'
        elif default == ():
            help = f'write a text or a list of texts, such as `{name}=["embed", "head"]`'
        elif isinstance(value, str):
            help = number_in_quotes(value[:40])
        raise Problem("E0202", title, span, "does not fit", help=help)
    if default == ():
        return tuple(value)  # type: ignore[arg-type]
    if isinstance(default, tuple):
        return tuple(float(v) for v in value)  # type: ignore[union-attr, arg-type]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
