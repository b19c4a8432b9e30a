"""Changes one thing of a JSON value at random."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    0, -1, 1, 63, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 0.0, 1.5, float("nan"), float("inf"), "", "x", "B",
    "B*B*B", "B//0", "((((", "9" * 300, "../../etc/passwd", "__class__", "None", "a\nb", "\ud800", None, True, False,
    [], {}, [[]], ["x"], {"x": 1},
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found, stack = [], [value]
    while stack:
        item = stack.pop()
        keys = list(item) if isinstance(item, dict) else list(range(len(item))) if isinstance(item, list) else []
        for key in keys:
            found.append((item, key))
            stack.append(item[key])
    return found


def mutate(value: Any, rng: random.Random) -> str:
    """Change one thing in place; its name."""
    holder, key = rng.choice(places(value))
    kind = rng.choice(("set", "set", "set", "near", "drop", "twice", "add", "swap"))
    if kind == "set":
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == "near" and type(holder[key]) is int:
        holder[key] += rng.choice((-64, -8, -1, 1, 3, 4, 64, 4096))
    elif kind == "drop":
        del holder[key]
    elif kind == "twice" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == "add" and isinstance(holder, dict):
        holder[rng.choice(("x", "offset", "__proto__", "path"))] = copy.deepcopy(rng.choice(VALUES))
    else:
        kind = "swap"
        other, there = rng.choice(places(value))
        holder[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(holder[key])
    return kind
