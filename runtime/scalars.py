"""Writing the step block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.dtypes import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write_scalars(views: Mapping[str, NDArray[Any]], values: Mapping[str, int | float], place: str) -> None:
    """A value for each of ``views``, arrays of one element. ``seed`` is u64, stored as its bits.

    ArtifactError R301 for a scalar that nothing gives, InputError R105 for a value that its dtype cannot hold.
    """
    for name, view in views.items():
        if name not in values:
            raise ArtifactError("R301", f"nothing gives the scalar `{name}`", place=place)
        value = values[name]
        if view.dtype.kind != "f":
            wraps = name == "seed" and int(value) >= 1 << 63
            view[...] = int(value) - (1 << 64) if wraps else value
            continue
        with np.errstate(over="ignore"):
            view[...] = value
        if not np.isfinite(view):
            raise InputError(
                "R105", f"`{name}` = {value} does not fit {name_of(view.dtype)}[]", place=place, help="pass less"
            )
