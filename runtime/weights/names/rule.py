"""One rule of a map: which names of a file it takes, which names of the model they get, and what happens to the values.

A place in braces that lists texts, as ``{p:query|key|value}``, means: in both names, that the n-th text becomes the
n-th; only in the old name, that these tensors are joined to one; only in the new name, that one tensor is split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.runtime.weights.names.pattern import STAR, BadRule, Match, Part, Pattern, Place, parse, places
from dslc.runtime.weights.names.rearrange import Rearrange

OPTIONS: Final = ("to", "rearrange", "sizes", "axis", "parts", "in_order")
_MOST_AXES: Final = 16
_MOST_SHARE: Final = 2**31


@dataclass(frozen=True)
class Rule:
    """``target`` None: the tensors are ignored. ``rearrange`` acts on each tensor of the file; then ``join`` or
    ``split``, if any, along ``axis``; ``parts`` are the relative sizes of a split. ``in_order``: the pattern of the
    model's layers that the file's layers become, in the order of their numbers."""

    pattern: Pattern
    target: tuple[Part, ...] | None
    join: Place | None = None
    split: Place | None = None
    rearrange: Rearrange | None = None
    axis: int = 0
    parts: tuple[int, ...] = ()
    in_order: Pattern | None = None

    @classmethod
    def of(cls, old: str, new: object) -> Rule:
        """``new``: a name, None, or a mapping with ``OPTIONS``. Raises BadRule."""
        if new is None:
            return cls(Pattern(old), None)
        options = dict(new) if isinstance(new, Mapping) else {"to": new}
        if unknown := sorted(str(key) for key in options if key not in OPTIONS):
            raise BadRule(f"`{unknown[0][:40]}` is not known in a rule", f"known are {', '.join(OPTIONS)}")
        target = options.get("to")
        if not isinstance(target, str):
            raise BadRule(f"the rule for `{old[:60]}` has no new name", "write `old: new`, or `old: {to: new}`")
        if "in_order" in options:
            return cls._ordered(old, target, options)
        parts = parse(target)
        moved = frozenset(place.name for place in places(parts) if place.add is not None)
        pattern = Pattern(old, moved)
        join, split = _roles(pattern, parts)
        return cls(pattern, parts, join, split, _rearrange(options), **_cut(options, join, split))

    @classmethod
    def _ordered(cls, old: str, new: str, options: Mapping[str, object]) -> Rule:
        if options["in_order"] is not True or set(options) != {"to", "in_order"}:
            raise BadRule("`in_order: true` has no other options than `to`", "leave it out to use others")
        pattern, target = Pattern(old), Pattern(new)
        if pattern.stars or target.stars:
            raise BadRule("`*` cannot be used with `in_order`", "write `{i}` for each part")
        return cls(pattern, target.parts, in_order=target)

    def taken(self, name: Sequence[str]) -> Match | None:
        """The match with the parts of a name; None also if a new name would have a negative number."""
        found = self.pattern.match(name)
        if found is None or self.target is None or self.in_order is not None:
            return found
        negative = any(int(found.taken[p.name]) + p.add < 0 for p in places(self.target) if p.add is not None)
        return None if negative else found

    def names(self, found: Match) -> tuple[str, ...]:
        """The new name, or the names of the parts into which the tensor is split."""
        count = len(self.split.texts) if self.split is not None and self.split.texts is not None else 1
        return tuple(self._name(found, index) for index in range(count))

    def member(self, found: Match) -> int:
        """The position of this tensor among those that are joined."""
        assert self.join is not None and self.join.texts is not None
        return self.join.texts.index(found.taken[self.join.name])

    def _name(self, found: Match, index: int) -> str:
        assert self.target is not None
        old = {place.name: place for place in self.pattern.places}
        said = []
        for part in self.target:
            if isinstance(part, str):
                said.append(found.taken[STAR] if part == STAR else part)
                continue
            text = ""
            for piece in part:
                if isinstance(piece, str):
                    text += piece
                elif piece.texts is None:
                    taken = found.taken[piece.name]
                    text += taken if piece.add is None else str(int(taken) + piece.add)
                elif self.split is not None and piece.name == self.split.name:
                    text += piece.texts[index]
                else:
                    listed = old[piece.name].texts
                    assert listed is not None
                    text += piece.texts[listed.index(found.taken[piece.name])]
            said.append(text)
        return ".".join(said) + found.rest


def _roles(pattern: Pattern, target: tuple[Part, ...]) -> tuple[Place | None, Place | None]:
    """The places along which tensors are joined and split. BadRule unless each place of one name has its counterpart,
    so that no two tensors get the same name."""
    old = {place.name: place for place in pattern.places}
    new = {place.name for place in places(target)}
    splits: dict[str, Place] = {}
    for place in places(target):
        before = old.get(place.name)
        if before is None:
            if place.texts is None or place.name in splits:
                raise BadRule(f"the new name has `{{{place.name}}}`, the old one does not", "use it in both names")
            splits[place.name] = place
        elif place.texts is not None and len(place.texts) != len(before.texts or ()):
            cause = f"`{{{place.name}}}` does not list as many texts in both names"
            raise BadRule(cause, "write `{p:query|key|value}` and `{p:q|k|v}`")
        elif place.add is not None and before.texts is not None:
            raise BadRule(f"`{{{place.name}{place.add:+d}}}` is not an integer", "list the new texts instead")
    joins = [place for name, place in old.items() if name not in new]
    for place in joins:
        if place.texts is None:
            raise BadRule(f"the new name lacks `{{{place.name}}}`", "use it, or several tensors would get one name")
    stars = sum(part == STAR for part in target)
    if stars != pattern.stars:
        raise BadRule("`*` is in one of the names only", 'use it once in both: `model.*: "*"`')
    if len(joins) + len(splits) > 1:
        raise BadRule("a rule joins or splits along one place", "use `rearrange`, or convert the file in two steps")
    return next(iter(joins), None), next(iter(splits.values()), None)


def _rearrange(options: Mapping[str, Any]) -> Rearrange | None:
    text, sizes = options.get("rearrange"), options.get("sizes")
    if text is None:
        if sizes is not None:
            raise BadRule("`sizes` belongs to `rearrange`", 'write `rearrange: "(a b) -> b a"` and `sizes: {a: 3}`')
        return None
    if not isinstance(text, str):
        raise BadRule("`rearrange` is a text", "write `rearrange: i o -> o i`")
    if sizes is not None and not isinstance(sizes, Mapping):
        raise BadRule("`sizes` is a mapping", "write `sizes: {h: 12}`")
    return Rearrange.of(text, sizes or {})


def _cut(options: Mapping[str, Any], join: Place | None, split: Place | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "axis" in options:
        axis = options["axis"]
        if join is None and split is None:
            raise BadRule("`axis` is that of a join or a split", "list texts in one name: `{p:q|k|v}`")
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < _MOST_AXES:
            raise BadRule(f"`axis` is an integer from 0 to {_MOST_AXES - 1}", "write `axis: 0`")
        found["axis"] = axis
    if "parts" in options:
        parts = options["parts"]
        count = len(split.texts) if split is not None and split.texts is not None else 0
        right = isinstance(parts, list | tuple) and len(parts) == count and count > 0
        if not right or any(isinstance(p, bool) or not isinstance(p, int) or not 0 < p < _MOST_SHARE for p in parts):
            raise BadRule("`parts` is a list of one positive integer for each part of a split", "write `parts: [4, 1]`")
        found["parts"] = tuple(parts)
    return found
