"""The section ``start``: the weights to start from."""

from __future__ import annotations

import re
from typing import Final

from dslc.runtime.config.readers import Field, boolean, mapping, refuse, text
from dslc.runtime.config.yaml import Value

_PATH = re.compile(r"[A-Za-z0-9_.]{1,400}\Z")


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


FIELDS: Final[tuple[Field, ...]] = (
    Field("start.weights", text, None, "a safetensors file to start from, instead of initial weights", text=True),
    Field("start.map", renaming, {}, "names in that file -> names here; also prefixes up to a dot"),
    Field(
        "start.partial",
        boolean,
        False,
        "tensors that the file lacks, or has in another shape, keep their initial values",
    ),
)
