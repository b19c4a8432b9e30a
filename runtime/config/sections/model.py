"""The fields ``model``, ``args`` and ``build``."""

from __future__ import annotations

from typing import Final

from dslc.runtime.config.readers import Field, anything, argument, text

FIELDS: Final[tuple[Field, ...]] = (
    Field("model", text, None, "the model's file, or FILE:MODEL", text=True),
    Field("args", argument, {}, "the model's arguments, by name", open=True),
    Field("build", anything, {}, "build options, by name", open=True),
)
