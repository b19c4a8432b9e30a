"""Names the origin of a configuration value in errors that name the value by its flag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dslc.base.errors import BuildError

if TYPE_CHECKING:
    from dslc.runtime.config.config import Config

#: The compiler knows each of its options by one name, that of the command line.
_FIELDS: Final = {
    "--target": "build.target",
    "--precision": "build.precision",
    "--providers": "build.providers",
    "--size": "build.sizes",
    "--name": "build.name",
    "--gpu": "build.gpu",
    "train.freeze": "train.freeze",
    "train.lr_scale": "train.lr_scale",
}


@contextmanager
def placed(config: Config | None) -> Iterator[None]:
    """Inside, a BuildError about ``-D classes`` or ``--target`` gets as its place the line of dslc.yaml, or the
    variable, that set the value; a value of the command line keeps its flag. None: all values are from the command
    line."""
    try:
        yield
    except BuildError as error:
        field = _field(error.place or "")
        for entry in config.entries if config is not None else ():
            if entry.name == field and entry.origin not in ("flag", "default"):
                error.place = entry.origin
        raise


def _field(place: str) -> str | None:
    if place.startswith("-D "):
        return f"args.{place.removeprefix('-D ').partition('=')[0]}"
    if place.startswith("build."):
        return ".".join(place.split(".")[:2])
    return _FIELDS.get(place)
