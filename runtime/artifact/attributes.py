"""Attributes of ops as JSON data. JSON has no infinity and no nan: ``{"float": "-inf"}`` stands for one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from dslc.base.errors import ArtifactError

_NAMES: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def plain_float(value: float) -> float | dict[str, str]:
    """A number as JSON data."""
    return value if math.isfinite(value) else {"float": repr(value)}


def attribute(data: Any, place: str) -> Any:
    """The attribute of JSON data, as the meanings of ops take it. ``place`` names the artifact and the instruction.

    Raises ArtifactError R301 for an object that is no number of ``plain_float``.
    """
    if isinstance(data, list):
        return [attribute(each, place) for each in data]
    if isinstance(data, Mapping):
        name = data.get("float") if len(data) == 1 else None
        if not isinstance(name, str) or name not in _NAMES:
            raise ArtifactError("R301", "an attribute of an op is neither a number, a text nor a list", place=place)
        return _NAMES[name]
    return data
