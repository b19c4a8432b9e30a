"""``i o -> o i``: the axes of a tensor in another order, merged, split or without those of size 1."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslc.runtime.weights.names.pattern import BadRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST: Final = 256  # characters
_MOST_AXES: Final = 16
_LARGEST: Final = 2**31
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,63}|1|\(|\))")
_HELP: Final = "write `i o -> o i`, or `o c h w -> o (c h w)`; an axis of size 1 is written 1"

_Axes: TypeAlias = "tuple[tuple[str, ...], ...]"  # of each axis: the names that it merges, none for an axis of size 1


@dataclass(frozen=True)
class Rearrange:
    """A bijection of a tensor's elements. ``sizes``: of axes that the tensor's shape does not determine."""

    old: _Axes
    new: _Axes
    sizes: Mapping[str, int]
    text: str

    @classmethod
    def of(cls, text: str, sizes: Mapping[str, int]) -> Rearrange:
        """Raises BadRule for a text whose two sides do not have the same axes."""
        left, arrow, right = text.partition("->")
        if not arrow or len(text) > _LONGEST:
            raise BadRule(f"`{text[:60]}` does not rearrange axes", _HELP)
        old, new = _side(left, text), _side(right, text)
        names = [name for axis in old for name in axis]
        if sorted(names) != sorted(name for axis in new for name in axis) or len(set(names)) < len(names):
            raise BadRule(f"`{text[:60]}` does not name each axis once on each side", _HELP)
        for name, size in sizes.items():
            if name not in names:
                raise BadRule(f"`{text[:60]}` has no axis `{name[:40]}`", "`sizes` gives sizes of its axes")
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST:
                raise BadRule(f"the size of `{name}` is not an integer of at least 1", "write `sizes: {h: 12}`")
        for axis in old:
            if len([name for name in axis if name not in sizes]) > 1:
                help = f"give all but one: `sizes: {{{axis[0]}: 3}}`"
                raise BadRule(f"the sizes of `{' '.join(axis)}` are not known", help)
        return cls(old, new, dict(sizes), text)

    def known(self, shape: Sequence[int]) -> dict[str, int] | None:
        """The size of each axis in a tensor of this shape; None if it does not fit."""
        if len(shape) != len(self.old):
            return None
        found = dict(self.sizes)
        for axis, size in zip(self.old, shape, strict=True):
            open = [name for name in axis if name not in self.sizes]
            given = prod(self.sizes[name] for name in axis if name in self.sizes)
            if size % given or (not open and size != given):
                return None
            found |= {name: size // given for name in open}
        return found

    def shape(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The new shape of a tensor of this shape; None if it does not fit."""
        sizes = self.known(shape)
        return None if sizes is None else tuple(prod(sizes[name] for name in axis) for axis in self.new)

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """The rearranged array, whose shape must fit; a view if possible."""
        sizes = self.known(array.shape)
        assert sizes is not None
        old = [name for axis in self.old for name in axis]
        new = [name for axis in self.new for name in axis]
        split = array.reshape([sizes[name] for name in old])
        merged = [prod(sizes[name] for name in axis) for axis in self.new]
        return split.transpose([old.index(name) for name in new]).reshape(merged)


def _side(text: str, whole: str) -> _Axes:
    axes: list[tuple[str, ...]] = []
    inner: list[str] | None = None
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadRule(f"`{whole[:60]}` is not understood at `{text[at : at + 20].strip()}`", _HELP)
        at, token = found.end(), found[1]
        if token in "()":
            if (token == "(") != (inner is None):
                raise BadRule(f"`{whole[:60]}` has brackets that do not match", _HELP)
            if inner is not None:
                axes.append(tuple(inner))
            inner = [] if token == "(" else None
        elif inner is not None:
            inner += [] if token == "1" else [token]
        else:
            axes.append(() if token == "1" else (token,))
    if inner is not None or len(axes) > _MOST_AXES or sum(map(len, axes)) > _MOST_AXES:
        raise BadRule(f"`{whole[:60]}` has brackets that do not match, or more than {_MOST_AXES} axes", _HELP)
    return tuple(axes)
