"""What makes the tensors of a file fit those that are expected: the next step that an error R305 names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: dtype and shape of a tensor.
Typed = tuple[str, tuple[int, ...]]
_FLOATS: Final = frozenset({"f16", "bf16", "f32", "f64"})


def next_step(pairs: Iterable[tuple[Typed, Typed]], *, missing: int, expected: int) -> str | None:
    """The step if one holds for all tensors that differ, else None. ``pairs``: what the file has and what is expected
    for each name that both have, where they differ; ``missing`` of the ``expected`` names are not in the file."""
    pairs = tuple(pairs)
    if missing == expected > 0:
        return "`dslc weights map FILE NET.nn` proposes a map of the names; `dslc weights convert --map` applies it"
    if missing or not pairs:
        return None
    if all(a[1] == b[1] and {a[0], b[0]} <= _FLOATS for a, b in pairs):
        return f"convert them: dslc weights convert FILE NEW --dtype {pairs[0][1][0]}"
    if all(a[0] == b[0] and len(a[1]) == 2 and a[1] == b[1][::-1] for a, b in pairs):
        return 'a map transposes a matrix: `NAME: {to: NAME, rearrange: "a b -> b a"}`'
    return None
