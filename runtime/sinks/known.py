"""Finds the sinks that a configuration names and checks their options, before a build, which takes longer.

A name that is not one of dslc's is an entry point of the group ``dslc.sinks`` of an installed package:
``open_sink(about, **options) -> Sink``. A configuration never names a module, and no server: that is said by the
packages' own variables, so a configuration by a stranger sends nothing to the stranger.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dslc.base.errors import DataError, DslcError, EnvironmentFault
from dslc.base.version import install_extra
from dslc.base.words import reason
from dslc.runtime.nearest import nearest
from dslc.runtime.sinks.sink import About, Sink

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dslc.runtime.config.config import SinkConfig

GROUP: Final = "dslc.sinks"
TENSORBOARD: Final = "tensorboard"


@dataclass(frozen=True)
class Known:
    """A sink of dslc itself. ``options``: the form of each. ``knows``: it knows itself which points it has, and gets
    all of them again when a run is resumed; the others get those after the ones that they took."""

    title: str
    module: str
    package: str
    extra: str
    options: Mapping[str, str] = field(default_factory=dict)
    knows: bool = True


OWN: Final[Mapping[str, Known]] = {
    TENSORBOARD: Known("TensorBoard", "dslc.runtime.sinks.tensorboard", "tensorboardX", "logs"),
    "wandb": Known(
        "W&B",
        "dslc.runtime.sinks.wandb",
        "wandb",
        "wandb",
        {
            **dict.fromkeys(("entity", "project", "name", "group", "notes"), "a text"),
            "tags": "a list of texts",
            "mode": "`online` or `offline`",
        },
    ),
    "trackio": Known(
        "trackio",
        "dslc.runtime.sinks.trackio",
        "trackio",
        "trackio",
        dict.fromkeys(("project", "group"), "a text"),
        knows=False,
    ),
    "mlflow": Known(
        "MLflow",
        "dslc.runtime.sinks.mlflow",
        "mlflow",
        "mlflow",
        {"experiment": "a text", "name": "a text", "tags": "a mapping of texts"},
    ),
}
_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "a text": lambda value: isinstance(value, str) and value != "",
    "a list of texts": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "a mapping of texts": lambda value: (
        isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    ),
    "`online` or `offline`": lambda value: value in ("online", "offline"),
}


def title_of(name: str) -> str:
    return OWN[name].title if name in OWN else name


def require_sinks(sinks: Mapping[str, SinkConfig]) -> None:
    """Check that each sink is there, its package is installed, and it takes the options. Imports none of dslc's
    packages but wandb, which asks for its key.

    Raises EnvironmentFault R205 for a missing package, DataError R101 for an unknown name, R104 for options."""
    for name, given in sinks.items():
        known = OWN.get(name)
        if known is None:
            _require_bound(name, given)
            continue
        for key, value in given.options.items():
            form = known.options.get(key)
            if form is None:
                _unknown(name, key, known.options, given.place)
            if not _FORMS[form](value):
                cause = f"`{key}` of `save.sinks.{name}` is {form}, not `{str(value)[:40]}`"
                raise DataError("R104", cause, place=given.place, help="write it as docs/runs.md shows")
        if not installed(known.package):
            raise EnvironmentFault(
                "R205", f"{known.title} needs {known.package}", place=given.place, help=install_extra(known.extra)
            )
        if name == "wandb":
            from dslc.runtime.sinks.wandb import require_login

            require_login(given.options.get("mode"), given.place)


def installed(package: str) -> bool:
    """True if a package can be imported; does not import it. A folder that only has its name, such as the one that
    W&B writes, is no package."""
    if package in sys.modules:
        return sys.modules[package] is not None
    found = find_spec(package)
    return found is not None and found.origin is not None


def opener(name: str) -> Callable[..., Sink]:
    """What opens a sink: ``open_sink(about, **options)``. Raises DataError R101."""
    if name in OWN:
        found: Callable[..., Sink] = import_module(OWN[name].module).open_sink
        return found
    point = _found(name)
    try:
        function = point.load()
    except DslcError:
        raise
    except Exception as error:  # noqa: BLE001  (the package's code may raise anything)
        cause = f"its package cannot be imported: {type(error).__name__}: {reason(error)}"
        _refuse(name, cause, f"the error is the package's: import {point.module} in Python", error)
    if not callable(function):
        _refuse(name, f"it is a {type(function).__name__}, not a function", "register a function that returns a sink")
    opens: Callable[..., Sink] = function
    return opens


def _require_bound(name: str, given: SinkConfig) -> None:
    """Check that the function of a package takes the options."""
    function = opener(name)
    about: About | None = None
    try:
        inspect.signature(function).bind(about, **given.options)
    except (TypeError, ValueError) as error:
        cause = f"the sink `{name}` does not take these options: {reason(error)}"
        raise DataError("R104", cause, place=given.place, help="its package says which it takes") from error


def _points() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _found(name: str) -> EntryPoint:
    found = [point for point in _points() if point.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        packages = sorted({point.dist.name if point.dist is not None else point.value for point in found})
        cause = f"{len(found)} installed packages use this name: {', '.join(packages)}"
        _refuse(name, cause, "remove one of them")
    known = sorted({*OWN, *(point.name for point in _points())})
    close = nearest(name, known)
    cause = f"no sink is called `{name[:60]}`, also none of an installed package (entry points of `{GROUP}`)"
    _refuse(name, cause, f"did you mean `{close}`?" if close else f"known are {', '.join(known)[:200]}")


def _unknown(name: str, key: str, known: Iterable[str], place: str) -> NoReturn:
    close = nearest(key, known)
    options = ", ".join(known)
    help = f"did you mean `{close}`?" if close else f"it takes {options}" if options else "it takes none: write `true`"
    raise DataError("R104", f"`save.sinks.{name}` has no option `{key[:40]}`", place=place, help=help)


def _refuse(name: str, cause: str, help: str, error: BaseException | None = None) -> NoReturn:
    raise DataError("R101", cause, place=f"save.sinks.{name}", help=help) from error
