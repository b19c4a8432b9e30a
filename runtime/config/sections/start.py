"""The section ``start``: the weights to start from."""

from __future__ import annotations

from typing import Final

from dslc.runtime.config.maps import renaming
from dslc.runtime.config.readers import Field, boolean, number, text
from dslc.runtime.config.selectors import selectors

FIELDS: Final[tuple[Field, ...]] = (
    Field("start.weights", text, None, "a safetensors file to start from, instead of initial weights", text=True),
    Field("start.map", renaming, {}, "names in that file -> names here, or the name of a map, or a list of both"),
    Field("start.replace", selectors, (), "tensors of the model that keep their initial values: `[head]`"),
    Field(
        "start.partial",
        boolean,
        False,
        "tensors that the file lacks, or has in another shape, keep their initial values",
    ),
    Field("start.least", number(0.0, 1.0), 0.5, "the fraction of the weights' bytes that must come from the file"),
)
