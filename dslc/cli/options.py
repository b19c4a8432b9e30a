"""Options that several commands share, and the conversion of their texts to values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard, TypeVar

import click

from dslc.base.words import BYTE_UNITS

F = TypeVar("F", bound=Callable[..., Any])

TARGET_HELP: Final = "cpu, or a GPU architecture such as sm_90; separate several by commas: cpu,sm_90."
PRECISION_HELP: Final = "Compute in f32, f64, bf16, f16 or, on GPUs, tf32."

_SOURCE: Final = re.compile(r".*\.nn(:.*)?", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_BYTES = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?P<unit>[A-Za-z]{1,3})", re.ASCII)
_SIZED: Final = ("train", "eval", "predict")
_SIZE = re.compile(r"(?:(?P<entry>train|eval|predict):)?(?P<dim>[A-Za-z_]\w{0,63})=(?P<sizes>[0-9,_ ]+)", re.ASCII)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """``k=v`` texts as a dict; a text without ``=`` or a repeated name is a usage error."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


def sizes(texts: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """``B=64`` (all entries), ``train:B=64``, ``predict:B=1,64`` as {entry or "": {dim: sizes}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.replace(" ", ""))
        values = [] if match is None else [v.replace("_", "") for v in match["sizes"].split(",")]
        if match is None or not all(values) or any(len(v) > 19 for v in values):
            raise click.BadParameter(
                f"{text!r} is not DIM=SIZE, for example B=64, train:B=64 or predict:B=1,64", param_hint="--size"
            )
        entry = found.setdefault(match["entry"] or "", {})
        if match["dim"] in entry:
            raise click.BadParameter(f"{match['dim']!r} is given twice", param_hint="--size")
        entry[match["dim"]] = [int(v) for v in values]
    return found


def sizes_by_entry(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """``{S: 160, predict: {B: [1, 8]}}`` as dims by entry.

    A dim without an entry is a size to train with, from which those of eval and predict are derived; several sizes are
    those of eval and predict. A size below an entry replaces it there.
    """
    found: dict[str, Any] = {}
    for name, value in sizes.items():
        if name not in _SIZED and not isinstance(value, Mapping):
            several = isinstance(value, list | tuple) and len(value) > 1
            for entry in ("eval", "predict") if several else ("train",):
                found.setdefault(entry, {})[name] = value
    for name, value in sizes.items():
        if name in _SIZED or isinstance(value, Mapping):
            found[name] = {**found.get(name, {}), **value} if isinstance(value, Mapping) else value
    return found


def byte_count(text: str) -> int | None:
    """``20 GiB``, ``512MiB`` as bytes; None for any other text."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or match["unit"] not in BYTE_UNITS:
        return None
    return int(float(match["number"]) * BYTE_UNITS[match["unit"]])


def names_source(text: str | None) -> TypeGuard[str]:
    """True if an argument that may name an artifact names a model's source: ``FILE.nn`` or ``FILE.nn:MODEL``."""
    return text is not None and _SOURCE.fullmatch(text) is not None


def define_option(f: F) -> F:
    """-D, for arguments of the model."""
    return click.option(
        "-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set an argument of the model. Repeatable."
    )(f)


def size_option(f: F) -> F:
    """--size, for dims."""
    return click.option(
        "--size",
        "size",
        multiple=True,
        metavar="[ENTRY:]DIM=SIZE",
        help="Build for this size of a dim; ENTRY is train, eval or predict. Repeatable.",
    )(f)


def gpu_option(f: F) -> F:
    """--gpu, for each command that looks at what a build for a GPU gives."""
    return click.option(
        "--gpu",
        metavar="NAME",
        help="Obey measurements of this GPU, if the lock holds several; for several targets: A100,H200.",
    )(f)


def lock_options(f: F) -> F:
    """--locked and --gpu, for each command that builds for a GPU."""
    f = gpu_option(f)
    return click.option(
        "--locked", is_flag=True, help="On a GPU, obey only measurements of dslc.lock; if one is missing, fail."
    )(f)


def trust_option(f: F) -> F:
    """--trust, for each command that runs the artifact of ./dslc.yaml."""
    return click.option(
        "--trust", is_flag=True, help="Run the artifact in build/ even if none of your builds made it."
    )(f)


def source_options(target_help: str, size_help: str) -> Callable[[F], F]:
    """The build options of a FILE, for a command that also accepts an artifact: --target, --precision, --providers, -D,
    --size."""

    def add(f: F) -> F:
        f = click.option("--size", "size", multiple=True, metavar="DIM=SIZE", help=f"{size_help} Repeatable.")(f)
        f = define_option(f)
        f = click.option("--providers", metavar="NAME", help="FILE: as in `dslc build`.")(f)
        f = click.option("--precision", metavar="NAME", help="FILE: as in `dslc build`.")(f)
        return click.option("--target", metavar="NAME", help=f"FILE: {target_help}.")(f)

    return add
