"""The closed schema of ``dslc.yaml`` as data: every field with its kind, default and meaning."""

from __future__ import annotations

from typing import Final

from dslc.runtime.config.readers import Field
from dslc.runtime.config.sections import data, model, save, start, sweep, train

FIELDS: Final[tuple[Field, ...]] = (
    *model.FIELDS,
    *data.FIELDS,
    *train.FIELDS,
    *save.FIELDS,
    *start.FIELDS,
    *sweep.FIELDS,
)
