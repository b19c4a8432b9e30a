"""The closed schema of ``dslc.yaml`` as data: every field with its kind, default and meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from dslc.runtime.data.augment import Crop, Flip, Normalize, Step
from dslc.runtime.data.names import HELP, split
from dslc.runtime.train.readers import (
    Field,
    Reader,
    anything,
    argument,
    boolean,
    duration,
    integer,
    mapping,
    number,
    refuse,
    shown,
    text,
    unknown,
)
from dslc.runtime.train.schedule import Duration, Schedule
from dslc.runtime.train.yaml import Value

_NAN_SKIP = re.compile(r"skip ([0-9]{1,9})\Z")
_PATH = re.compile(r"[A-Za-z0-9_.]{1,400}\Z")
_BEST = re.compile(r"(?:(highest|lowest) +)?([A-Za-z_][A-Za-z0-9_]{0,63})\Z")


@dataclass(frozen=True)
class NanPolicy:
    """``stop`` at the first step with a NaN or Inf (skip = 0), or continue after up to ``skip`` of them."""

    skip: int = 0

    def __str__(self) -> str:
        return f"skip {self.skip}" if self.skip else "stop"


@dataclass(frozen=True)
class BadPolicy:
    """``error`` at the first sample that cannot be read (skip = 0), or continue after up to ``skip`` of them."""

    skip: int = 0

    def __str__(self) -> str:
        return f"skip {self.skip}" if self.skip else "error"


@dataclass(frozen=True)
class Best:
    """The evaluation metric that selects the best checkpoint, and its direction."""

    metric: str
    highest: bool

    def better(self, new: float, old: float | None) -> bool:
        """True if ``new`` beats ``old``; a NaN never does, and a tie goes to the earlier one."""
        if new != new:
            return False
        return old is None or (new > old if self.highest else new < old)

    def __str__(self) -> str:
        return f"{'highest' if self.highest else 'lowest'} {self.metric}"


@dataclass(frozen=True)
class EarlyStop:
    """Stop after ``patience`` evaluations in a row that did not beat the best by more than ``change``."""

    metric: Best
    patience: int
    change: float = 0.0

    def better(self, new: float, old: float | None) -> bool:
        """True if ``new`` counts as progress; a NaN never does."""
        if old is None:
            return new == new
        return self.metric.better(new, old + self.change if self.metric.highest else old - self.change)

    def __str__(self) -> str:
        return f"{self.metric}, patience {self.patience}"


def on_nan(value: Value, name: str) -> NanPolicy:
    if value.data == "stop":
        return NanPolicy()
    found = _NAN_SKIP.match(value.data) if isinstance(value.data, str) else None
    if found is None or int(found[1]) == 0:
        refuse(value, f"`{name}` cannot be {shown(value)}", "write `stop`, or `skip 10` to tolerate ten such steps")
    return NanPolicy(int(found[1]))


def best(value: Value, name: str) -> Best | None:
    if value.data is None:
        return None
    found = _BEST.match(value.data) if isinstance(value.data, str) else None
    if found is None:
        help = "write a metric's name, `highest accuracy` or `lowest loss`"
        refuse(value, f"`{name}` cannot be {shown(value)}", help)
    highest = found[1] == "highest" if found[1] else found[2] != "loss"
    return Best(found[2], highest)


def data_source(value: Value, name: str) -> str:
    source = text(value, name)
    try:
        split(source)
    except ValueError as error:
        refuse(value, f"`{name}` is not an array in a file: {shown(value)}: {error}", HELP)
    return source


def on_bad(value: Value, name: str) -> BadPolicy:
    if value.data == "error":
        return BadPolicy()
    found = _NAN_SKIP.match(value.data) if isinstance(value.data, str) else None
    if found is None or int(found[1]) == 0:
        refuse(value, f"`{name}` cannot be {shown(value)}", "write `error`, or `skip 10` to tolerate ten bad samples")
    return BadPolicy(int(found[1]))


def fraction(value: Value, name: str) -> float | None:
    """A number between 0 and 1, both excluded, or null."""
    if value.data is None:
        return None
    found: float = number(0.0, 1.0)(value, name)
    if found in (0.0, 1.0):
        refuse(value, f"`{name}` = {found:g} leaves nothing to train or to evaluate", "write a fraction such as 0.1")
    return found


def _by_channel(value: Value, name: str) -> tuple[float, ...]:
    items = value.data if isinstance(value.data, list) else [value]
    if not items:
        refuse(value, f"`{name}` is empty", "write a number, or one for each channel")
    return tuple(_BASE(item, name) for item in items)


def _normalize(value: Value, name: str) -> Normalize:
    options = {"mean": _by_channel, "std": _by_channel, "scale": _BASE}
    found: dict[str, Any] = {}
    for key, option in mapping(value, name).items():
        if key not in options:
            unknown(option, key, options, f"`{name}`")
        found[key] = options[key](option, f"{name}.{key}")
    if "mean" not in found or "std" not in found:
        refuse(value, f"`{name}` needs `mean` and `std`", "write `{normalize: {mean: [0.5], std: [0.2], scale: 255}}`")
    if 0.0 in found["std"] or found.get("scale") == 0.0:
        refuse(value, f"`{name}` would divide by zero", "write the standard deviation of the data")
    return Normalize(**found)


def _crop(value: Value, name: str) -> Crop:
    options = mapping(value, name)
    for key, option in options.items():
        if key != "pad":
            unknown(option, key, ("pad",), f"`{name}`")
    if "pad" not in options:
        refuse(value, f"`{name}` needs `pad`", "write `{crop: {pad: 4}}`, in pixels")
    return Crop(integer(1, 4096)(options["pad"], f"{name}.pad"))


_STEPS: Final[dict[str, Reader]] = {
    "flip": lambda value, name: Flip(number(0.0, 1.0)(value, name)),
    "crop": _crop,
    "normalize": _normalize,
}


def augmentation(value: Value, name: str) -> tuple[Step, ...]:
    help = "write `[{flip: 0.5}, {crop: {pad: 2}}]`"
    if not isinstance(value.data, list) or not 0 < len(value.data) <= 16:
        refuse(value, f"`{name}` is a list of 1 to 16 steps, not {shown(value)}", help)
    found: list[Step] = []
    for item in value.data:
        if not isinstance(item.data, dict) or len(item.data) != 1:
            refuse(item, f"a step of `{name}` is one name with its value, not {shown(item)}", help)
        [(kind, inner)] = item.data.items()
        if kind not in _STEPS:
            unknown(inner, kind, _STEPS, f"`{name}`")
        found.append(_STEPS[kind](inner, f"{name}.{kind}"))
    return tuple(found)


def early_stop(value: Value, name: str) -> EarlyStop | None:
    """``{metric: loss, patience: 5}``; ``change`` is the smallest difference that counts as better."""
    if value.data is None:
        return None
    options: dict[str, Reader] = {"metric": best, "patience": integer(1, 10**6), "change": number(0.0, 1e30)}
    found: dict[str, Any] = {}
    for key, option in mapping(value, name).items():
        if key not in options:
            unknown(option, key, options, f"`{name}`")
        found[key] = options[key](option, f"{name}.{key}")
    if found.get("metric") is None or "patience" not in found:
        refuse(value, f"`{name}` needs `metric` and `patience`", "write `stop: {metric: loss, patience: 5}`")
    return EarlyStop(**found)


def renaming(value: Value, name: str) -> dict[str, str]:
    """``{layer1: stage.0}``: names, or prefixes up to a dot, in the file and in the model."""
    found: dict[str, str] = {}
    for key, item in mapping(value, name).items():
        new = text(item, f"{name}.{key}")
        for part in (key, new):
            if not _PATH.match(part):
                refuse(item, f"`{part[:60]}` cannot be the name of a tensor", "write `layer1.0: stage.0`")
        found[key] = new
    return found


_FACTOR = number(0.0, 1e9)
_BASE = number(-1e30, 1e30)


def _milestones(value: Value, name: str) -> tuple[Duration, ...]:
    if not isinstance(value.data, list) or not value.data:
        refuse(value, f"`{name}` is a list of durations, not {shown(value)}", "write `[30 epochs, 60 epochs]`")
    return tuple(duration()(item, name) for item in value.data)


_COMMON: Final[dict[str, Reader]] = {"base": _BASE, "warmup": duration(zero=True)}
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
        return Schedule(base=_BASE(value, name))
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


FIELDS: Final[tuple[Field, ...]] = (
    Field("model", text, None, "the model's file, or FILE:MODEL", text=True),
    Field("args", argument, {}, "the model's arguments, by name", open=True),
    Field("build", anything, {}, "build options, by name", open=True),
    Field("data.train", data_source, {}, "file of each input of the model and of train", text=True, open=True),
    Field("data.eval", data_source, {}, "the same for evaluation", text=True, open=True),
    Field("data.split", fraction, None, "fraction of the training rows reserved for evaluation, instead of data.eval"),
    Field("data.augment", augmentation, {}, "augmentation steps of an input: flip, crop, normalize", open=True),
    Field(
        "data.workers", integer(0, 256), 0, "number of processes that read large files ahead; images need at least one"
    ),
    Field("data.on_bad", on_bad, BadPolicy(), "`error`, or `skip N` to tolerate N unreadable images or lines"),
    Field("data.shuffle", boolean, True, "a new order of the training rows each epoch"),
    Field("data.check_finite", boolean, True, "refuse NaN and Inf in the data when it is opened"),
    Field("train.epochs", integer(1, 10**9), 1, "passes over the training data"),
    Field("train.seed", integer(0, 2**63 - 1), 0, "seed of initial weights, row order and random draws"),
    Field("train.base_lr", number(0.0, 1e30), None, "base learning rate, instead of the model's"),
    Field("train.lr", schedule, Schedule(), "schedule of the learning rate: a factor on the base rate"),
    Field("train.schedules", schedule, {}, "schedules of train's float arguments, by name", open=True),
    Field("train.on_nan", on_nan, NanPolicy(), "`stop`, or `skip N` to tolerate N steps that are not finite"),
    Field("train.stop", early_stop, None, "early stop: `{metric: loss, patience: 5}`, counted in evaluations"),
    Field("train.log_every", duration(), Duration(50, "steps"), "how often a line is logged"),
    Field("train.eval_every", duration(), Duration(1, "epochs"), "how often to evaluate"),
    Field("save.dir", text, None, "folder of the run; default runs/NAME next to the configuration", text=True),
    Field("save.every", duration(), Duration(1, "epochs"), "how often a checkpoint is written"),
    Field("save.keep", integer(2, 10**6), 2, "number of newest checkpoints to keep (at least 2)"),
    Field("save.best", best, None, "the metric that selects the best checkpoint, which is kept and published"),
    Field("save.plot", boolean, True, "draw loss and metrics into plot.svg of the run's folder, each epoch"),
    Field("save.tensorboard", boolean, False, "write events for TensorBoard into the run's folder (extra `logs`)"),
    Field("start.weights", text, None, "a safetensors file to start from, instead of initial weights", text=True),
    Field("start.map", renaming, {}, "names in that file -> names here; also prefixes up to a dot"),
    Field(
        "start.partial",
        boolean,
        False,
        "tensors that the file lacks, or has in another shape, keep their initial values",
    ),
)
