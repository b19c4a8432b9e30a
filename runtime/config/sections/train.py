"""The section ``train``: length, seed, learning rate, schedules, faults."""

from __future__ import annotations

from typing import Any, Final

from dslc.runtime.config.policies import NanPolicy, early_stop, on_nan
from dslc.runtime.config.readers import (
    ANY_NUMBER,
    Field,
    Reader,
    duration,
    integer,
    mapping,
    number,
    refuse,
    shown,
    unknown,
)
from dslc.runtime.config.schedule import Duration, Schedule
from dslc.runtime.config.selectors import selector, selectors
from dslc.runtime.config.yaml import Value

_FACTOR = number(0.0, 1e9)


def _milestones(value: Value, name: str) -> tuple[Duration, ...]:
    if not isinstance(value.data, list) or not value.data:
        refuse(value, f"`{name}` is a list of durations, not {shown(value)}", "write `[30 epochs, 60 epochs]`")
    return tuple(duration()(item, name) for item in value.data)


_COMMON: Final[dict[str, Reader]] = {"base": ANY_NUMBER, "warmup": duration(zero=True)}
_SCHEDULES: Final[dict[str, dict[str, Reader]]] = {
    "constant": _COMMON,
    "cosine": {**_COMMON, "end": _FACTOR, "over": duration()},
    "linear": {**_COMMON, "end": _FACTOR, "over": duration()},
    "step": {**_COMMON, "factor": _FACTOR, "every": duration(), "at": _milestones},
}


def schedule(value: Value, name: str) -> Schedule:
    """A number (a constant base), a kind's name, or ``{kind: {...}}`` with exactly one kind."""
    data = value.data
    if isinstance(data, int | float) and not isinstance(data, bool):
        return Schedule(base=ANY_NUMBER(value, name))
    if isinstance(data, str) and data in _SCHEDULES:
        kind, inner = data, Value({}, value.mark)
    elif isinstance(data, dict) and len(data) == 1:
        kind, inner = next(iter(data.items()))
        if kind not in _SCHEDULES:
            unknown(inner, kind, _SCHEDULES, f"`{name}`")
    else:
        refuse(
            value,
            f"`{name}` is not a schedule: {shown(value)}",
            "write a number, `cosine`, or `{cosine: {warmup: 2 epochs}}`",
        )
    options = {} if inner.data is None else mapping(inner, f"{name}.{kind}")
    found: dict[str, Any] = {}
    for key, option in options.items():
        if key not in _SCHEDULES[kind]:
            unknown(option, key, _SCHEDULES[kind], f"`{name}.{kind}`")
        found[key] = _SCHEDULES[kind][key](option, f"{name}.{kind}.{key}")
    if kind == "step" and ("every" in found) == ("at" in found):
        refuse(value, f"`{name}.step` needs one of `every` and `at`", "write `{step: {every: 30 epochs, factor: 0.1}}`")
    return Schedule(kind=kind, **found)  # type: ignore[arg-type]  # a key of _SCHEDULES


def freeze(value: Value, name: str) -> tuple[str, ...]:
    """Names and patterns."""
    return tuple(pattern.text for pattern in selectors(value, name))


def lr_scale(value: Value, name: str) -> dict[str, float]:
    """``{"head.*": 10}``: names and patterns with factors of at least 0."""
    items = mapping(value, name)
    return {selector(key, item).text: _FACTOR(item, f"{name}.{key}") for key, item in items.items()}


FIELDS: Final[tuple[Field, ...]] = (
    Field("train.epochs", integer(1, 10**9), 1, "passes over the training data"),
    Field("train.seed", integer(0, 2**63 - 1), 0, "seed of initial weights, row order and random draws"),
    Field(
        "train.base_lr",
        number(0.0, 1e30),
        None,
        "base learning rate, instead of the model's",
    ),
    Field("train.lr", schedule, Schedule(), "learning rate as a number, or a schedule: a factor on the base rate"),
    Field("train.freeze", freeze, (), 'parameters that are not trained, by name or pattern: `["stage.*"]`'),
    Field("train.lr_scale", lr_scale, {}, "factors on the learning rate, by name or pattern: `{head: 10}`"),
    Field("train.schedules", schedule, {}, "schedules of train's float arguments, by name", open=True),
    Field("train.on_nan", on_nan, NanPolicy(), "`stop`, or `skip N` to tolerate N steps that are not finite"),
    Field("train.stop", early_stop, None, "early stop: `{metric: loss, patience: 5}`, counted in evaluations"),
    Field("train.log_every", duration(), Duration(50, "steps"), "how often a line is logged"),
    Field("train.eval_every", duration(), Duration(1, "epochs"), "how often to evaluate"),
)
