"""Patterns in ``dslc.yaml`` that select tensors of the model by name."""

from __future__ import annotations

from typing import Final

from dslc.runtime.config.readers import refuse, shown, text
from dslc.runtime.config.yaml import Value
from dslc.runtime.weights.names.pattern import BadRule, Pattern

_MOST: Final = 100
_MOST_STARS: Final = 4


def selector(key: str, value: Value) -> Pattern:
    """A name, the beginning of names up to a dot, or a pattern with ``*``."""
    try:
        return Pattern(key, stars=_MOST_STARS)
    except BadRule as bad:
        refuse(value, str(bad), bad.help)


def selectors(value: Value, name: str) -> tuple[Pattern, ...]:
    """A pattern, or a list of them."""
    items = value.data if isinstance(value.data, list) else [value]
    if len(items) > _MOST:
        refuse(value, f"`{name}` has more than {_MOST} patterns", "use `*`")
    if not all(isinstance(item.data, str) for item in items):
        refuse(value, f"`{name}` is a list of names, not {shown(value)}", f"write `{name.rpartition('.')[2]}: [head]`")
    return tuple(selector(text(item, name), item) for item in items)
