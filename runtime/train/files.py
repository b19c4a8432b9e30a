"""Checks that the files named in a configuration exist, before a build, which takes longer."""

from __future__ import annotations

from pathlib import Path

from dslc.base.errors import WeightsMissing
from dslc.base.words import meant_path
from dslc.runtime.config.config import Config
from dslc.runtime.data.names import format_of
from dslc.runtime.data.source import Source, files


def require_data(config: Config, *, training: bool) -> None:
    """Check the evaluation data, and with ``training`` the training data. Raises DataError R101 for a missing file."""
    data = config.data
    both = training or data.split is not None  # a split evaluates a part of the training data
    for section, sources in (("train", data.train if both else {}), ("eval", data.eval)):
        for name, source in sources.items():
            require_source(source, f"data.{section}.{name}")


def require_source(source: Source, field: str) -> None:
    """Raises DataError R101 if the data of a source, or a part of it, is missing; reads none of it."""
    for each in files(source, lambda text: None, field):
        format_of(each).require(each)


def require_weights(path: Path | None) -> None:
    """Check the weights to start from, if configured. Raises WeightsMissing R304."""
    if path is not None and not path.exists():
        raise WeightsMissing("R304", "there is no such file", place=str(path), help=meant_path(path, "check the path"))
