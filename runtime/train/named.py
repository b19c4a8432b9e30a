"""Checks what a configuration names against a model: inputs, metrics, arguments of the train section. Reads no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dslc.base.errors import BuildError, DataError
from dslc.runtime.artifact.interface import Interface, Train
from dslc.runtime.artifact.reserved import EPOCH_STEPS
from dslc.runtime.config.config import Config
from dslc.runtime.config.policies import Best
from dslc.runtime.data.augment.inputs import check_mix
from dslc.runtime.nearest import nearest
from dslc.runtime.train.open_dataset import refuse_unknown


def require_names(config: Config, interface: Interface) -> None:
    """Raises BuildError E0605 (the model has no train section), DataError R102 (an input that it lacks) and R104 (a
    metric or argument that it lacks, or fields that exclude each other)."""
    section = train_section(interface)
    scalar_schedules(config, section)
    _check_metric(config.save.best, "save.best", section)
    _check_metric(config.train.stop.metric if config.train.stop else None, "train.stop.metric", section)
    wanted = {tensor.name: tensor for tensor in interface.train_inputs}
    data = config.data
    for place, names in (("data.train", data.train), ("data.eval", data.eval), ("data.augment", data.augment)):
        refuse_unknown(names, wanted, place)
    if data.mix is not None:
        check_mix(data.mix, interface, data.train)
    if data.split is not None and data.eval:
        cause = "`data.split` and `data.eval` exclude each other"
        raise DataError("R104", cause, place="data.split", help="remove one of them")


def train_section(interface: Interface) -> Train:
    if interface.train is None:
        raise BuildError(
            "E0605",
            f"`{interface.model}` has no train section",
            place=interface.name,
            help=f"add `train {interface.model}(...) {{ ... }}` to the model's file",
        )
    return interface.train


def scalar_schedules(config: Config, section: Train) -> dict[str, float]:
    """The base value of each scheduled float argument."""
    found: dict[str, float] = {}
    for name, schedule in config.train.schedules.items():
        arguments = {n: v for n, v in section.scalars.items() if n != EPOCH_STEPS or not section.epoch_metrics}
        if name not in arguments:
            _no_such(f"train.schedules.{name}", f"train has no float argument `{name}`", name, arguments)
        found[name] = section.scalars[name] if schedule.base is None else schedule.base
    return found


def _check_metric(best: Best | None, place: str, section: Train) -> None:
    if best is not None and best.metric not in ("loss", *section.metrics):
        _no_such(place, f"there is no metric `{best.metric}`", best.metric, ("loss", *section.metrics))


def _no_such(place: str, cause: str, name: str, known: Mapping[str, Any] | tuple[str, ...]) -> NoReturn:
    close = nearest(name, known)
    help = f"did you mean `{close}`?" if close else f"known here: {', '.join(known) or 'none'}"
    raise DataError("R104", cause, place=place, help=help)
