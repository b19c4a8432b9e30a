"""The configuration of a run, from ``dslc.yaml``, the flags of the command line and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dslc.base.errors import DataError
from dslc.cli.options import (
    PRECISION_HELP,
    TARGET_HELP,
    define_option,
    lock_options,
    pairs,
    size_option,
    sizes,
    sizes_by_entry,
)

if TYPE_CHECKING:
    from dslc.runtime.config.config import Config
    from dslc.runtime.config.load import ConfigSource

F = TypeVar("F", bound=Callable[..., Any])


def config_options(f: F) -> F:
    """Adds the flags that change a configuration; ``read_config`` takes them as keyword arguments."""
    return _with(f, training=True)


def eval_options(f: F) -> F:
    """``config_options`` without the flags that only training reads."""
    return _with(f, training=False)


def _with(f: F, training: bool) -> F:
    only_training = (
        click.option("--epochs", metavar="N", help="Passes over the training data."),
        click.option("--lr", metavar="X", help="Base learning rate, instead of the model's."),
    )
    for option in reversed(
        (
            click.option("--config", "path", metavar="FILE", help="Read this file instead of ./dslc.yaml."),
            click.option("--model", metavar="FILE[:MODEL]", help="The model to use."),
            *(only_training if training else ()),
            click.option("--seed", metavar="N", help="Seed of weights, order and random draws."),
            click.option("--target", metavar="NAME", help=TARGET_HELP),
            click.option("--precision", metavar="NAME", help=PRECISION_HELP),
            define_option,
            size_option,
            lock_options,
            click.option(
                "--set",
                "fields",
                multiple=True,
                metavar="FIELD=VALUE",
                help="Set any field of the configuration, such as `save.keep=3`. Repeatable.",
            ),
        )
    ):
        f = option(f)
    return f


def read_config(**given: Any) -> Config:
    """The configuration of ``read_source``. Raises DataError R101 or R104, or a usage error."""
    return read_source(**given)[0].config()


def read_source(
    *,
    path: str | None = None,
    model: str | None = None,
    epochs: str | None = None,
    lr: str | None = None,
    seed: str | None = None,
    target: str | None = None,
    precision: str | None = None,
    defines: tuple[str, ...] = (),
    size: tuple[str, ...] = (),
    locked: bool = False,
    gpu: str | None = None,
    fields: tuple[str, ...] = (),
    start: Mapping[str, object] | None = None,
    sweep: Mapping[str, object] | None = None,
) -> tuple[ConfigSource, dict[str, object]]:
    """The origins of the configuration with the flags applied, and the flags by field name; ``start`` and ``sweep`` are
    fields of these sections. Raises DataError R101 or R104, or a usage error."""
    from dslc.runtime.config.load import config_source

    flags: dict[str, object] = {
        "model": model,
        "train.epochs": epochs,
        "train.base_lr": lr,
        "train.seed": seed,
        "build.target": target,
        "build.precision": precision,
        "build.locked": True if locked else None,
        "build.gpu": gpu,
    }
    flags.update({f"start.{name}": value for name, value in (start or {}).items()})
    flags.update({f"sweep.{name}": value for name, value in (sweep or {}).items()})
    flags.update({f"args.{name}": value for name, value in pairs(defines, "-D").items()})
    flags.update(_fields(fields))
    source = config_source(path, flags, os.environ)
    if size:
        flags["build.sizes"] = merged_sizes(source.config().build.get("sizes"), sizes(size))
        source = config_source(path, flags, os.environ)
    return source, flags


def default_config(instead: str, **flags: Any) -> Config:
    """``read_config`` of ./dslc.yaml for a command without --config: ``instead`` names the argument to give instead."""
    from dslc.runtime.config.load import DEFAULT_FILE

    try:
        return read_config(**flags)
    except DataError as error:
        if error.code == "R101" and error.place == DEFAULT_FILE:
            error.help = f"{instead}; or `dslc new NAME` makes a project"
        raise


def _fields(texts: tuple[str, ...]) -> dict[str, str]:
    from dslc.runtime.config.fields import FIELDS
    from dslc.runtime.config.readers import identifier
    from dslc.runtime.nearest import nearest

    known = {field.name: field for field in FIELDS}
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        above, _, key = name.rpartition(".")
        whole = name in known and not known[name].open
        inside = above in known and known[above].open and identifier(key)
        if not equals or not (whole or inside):
            close = nearest(name, known)
            advice = f"did you mean {close}?" if close else "`dslc config` lists the fields"
            raise click.BadParameter(f"{text!r} is not FIELD=VALUE; {advice}", param_hint="--set")
        found[name] = value
    return found


def merged_sizes(from_file: object, from_flags: Mapping[str, Mapping[str, list[int]]]) -> dict[str, Any]:
    """``build: {sizes: ...}`` with the flags applied.

    A flag without an entry sets the training size; the sizes of eval and predict are then derived from it as if the
    file did not set them. Several values without an entry apply to eval and predict.
    """
    written = sizes_by_entry(from_file) if isinstance(from_file, Mapping) else {}
    if from_file is not None and not (
        isinstance(from_file, Mapping) and all(isinstance(v, Mapping) for v in written.values())
    ):
        raise DataError(
            "R104",
            "`build.sizes` maps entries to sizes of dims",
            place="build.sizes",
            help="write `sizes: {train: {B: 64}}`",
        )
    found: dict[str, Any] = {entry: dict(dims) for entry, dims in written.items()}
    for entry, dims in sorted(from_flags.items()):
        for dim, values in dims.items():
            value = values[0] if len(values) == 1 else values
            if not entry:
                for name in ("eval", "predict"):
                    found.get(name, {}).pop(dim, None)
            for name in [entry] if entry else (["train"] if len(values) == 1 else ["eval", "predict"]):
                found.setdefault(name, {})[dim] = value
    return {name: dims for name, dims in found.items() if dims}
