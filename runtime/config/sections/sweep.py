"""The section ``sweep``: the trials of ``dslc sweep``."""

from __future__ import annotations

from typing import Final

from dslc.runtime.config.readers import Field, integer, refuse, shown
from dslc.runtime.config.space import Space, space
from dslc.runtime.config.yaml import Value

METHODS: Final = ("grid", "random", "optuna")
MOST_TRIALS: Final = 10_000


def method(value: Value, name: str) -> str:
    if not isinstance(value.data, str) or value.data not in METHODS:
        refuse(value, f"`{name}` is {shown(value)}", f"write one of {', '.join(METHODS)}")
    return value.data


def trials(value: Value, name: str) -> int | None:
    return None if value.data is None else int(integer(1, MOST_TRIALS)(value, name))


FIELDS: Final[tuple[Field, ...]] = (
    Field("sweep.method", method, "grid", "how the trials are chosen: `grid`, `random` or `optuna` (extra `sweep`)"),
    Field("sweep.trials", trials, None, "number of trials; a grid runs all its combinations"),
    Field("sweep.seed", integer(0, 2**63 - 1), 0, "seed of the trials that `random` and `optuna` choose"),
    Field("sweep.space", space, Space(), "values to try, by field: `{train.lr: [0.1, 0.01]}`"),
)
