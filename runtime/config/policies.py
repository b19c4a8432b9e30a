"""Policies of a run as values of ``dslc.yaml``: faults that it tolerates, the best checkpoint, early stop."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dslc.runtime.config.readers import Reader, integer, mapping, number, refuse, shown, unknown
from dslc.runtime.config.yaml import Value

_NAN_SKIP = re.compile(r"skip ([0-9]{1,9})\Z")
_BEST = re.compile(r"(?:(highest|lowest) +)?([A-Za-z_][A-Za-z0-9_]{0,63})\Z")


@dataclass(frozen=True)
class NanPolicy:
    """``stop`` at the first step with a NaN or Inf (skip = 0), or continue after up to ``skip`` of them."""

    skip: int = 0

    def __str__(self) -> str:
        return f"skip {self.skip}" if self.skip else "stop"


@dataclass(frozen=True)
class BadPolicy:
    """``error`` at the first sample that cannot be read (skip = 0), or continue after up to ``skip`` of them."""

    skip: int = 0

    def __str__(self) -> str:
        return f"skip {self.skip}" if self.skip else "error"


@dataclass(frozen=True)
class Best:
    """The evaluation metric that selects the best checkpoint, and its direction."""

    metric: str
    highest: bool

    def better(self, new: float, old: float | None) -> bool:
        """True if ``new`` beats ``old``; a NaN never does, and a tie goes to the earlier one."""
        if new != new:
            return False
        return old is None or (new > old if self.highest else new < old)

    def __str__(self) -> str:
        return f"{'highest' if self.highest else 'lowest'} {self.metric}"


@dataclass(frozen=True)
class EarlyStop:
    """Stop after ``patience`` evaluations in a row that did not beat the best by more than ``change``."""

    metric: Best
    patience: int
    change: float = 0.0

    def better(self, new: float, old: float | None) -> bool:
        """True if ``new`` counts as progress; a NaN never does."""
        if old is None:
            return new == new
        return self.metric.better(new, old + self.change if self.metric.highest else old - self.change)

    def __str__(self) -> str:
        return f"{self.metric}, patience {self.patience}"


def on_nan(value: Value, name: str) -> NanPolicy:
    if value.data == "stop":
        return NanPolicy()
    found = _NAN_SKIP.match(value.data) if isinstance(value.data, str) else None
    if found is None or int(found[1]) == 0:
        refuse(value, f"`{name}` cannot be {shown(value)}", "write `stop`, or `skip 10` to tolerate ten such steps")
    return NanPolicy(int(found[1]))


def on_bad(value: Value, name: str) -> BadPolicy:
    if value.data == "error":
        return BadPolicy()
    found = _NAN_SKIP.match(value.data) if isinstance(value.data, str) else None
    if found is None or int(found[1]) == 0:
        refuse(value, f"`{name}` cannot be {shown(value)}", "write `error`, or `skip 10` to tolerate ten bad samples")
    return BadPolicy(int(found[1]))


def best(value: Value, name: str) -> Best | None:
    if value.data is None:
        return None
    found = _BEST.match(value.data) if isinstance(value.data, str) else None
    if found is None:
        help = "write a metric's name, `highest accuracy` or `lowest loss`"
        refuse(value, f"`{name}` cannot be {shown(value)}", help)
    highest = found[1] == "highest" if found[1] else found[2] != "loss"
    return Best(found[2], highest)


def early_stop(value: Value, name: str) -> EarlyStop | None:
    """``{metric: loss, patience: 5}``; ``change`` is the smallest difference that counts as better."""
    if value.data is None:
        return None
    options: dict[str, Reader] = {"metric": best, "patience": integer(1, 10**6), "change": number(0.0, 1e30)}
    found: dict[str, Any] = {}
    for key, option in mapping(value, name).items():
        if key not in options:
            unknown(option, key, options, f"`{name}`")
        found[key] = options[key](option, f"{name}.{key}")
    if found.get("metric") is None or "patience" not in found:
        refuse(value, f"`{name}` needs `metric` and `patience`", "write `stop: {metric: loss, patience: 5}`")
    return EarlyStop(**found)
