"""Patterns of tensor names, with named places and integer arithmetic.

A name consists of parts between dots. In a pattern, ``{i}`` as a whole part stands for any one part; next to other
characters, or if arithmetic is done on it, for an integer without leading zeros. ``{p:q|k|v}`` stands for one of the
listed texts (the longest one that fits), ``*`` as a whole part for one or more parts. Without ``*``, a pattern also
matches names that continue with a dot after it.

Matching is linear in the length of the name: each place takes what it can and is never tried again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

LONGEST: Final = 1024  # characters of a pattern, as of a name in a file
_MOST_PLACES: Final = 16
_MOST_TEXTS: Final = 256
_INTEGER: Final = r"(?>0|[1-9][0-9]{0,8}(?![0-9]))"
_PLACE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63})(?:([+-])([0-9]{1,9})|:(.*))?\Z", re.DOTALL)
STAR: Final = "*"

_HELP: Final = "write a pattern like `layer{s}.{u}.conv{c}`"


class BadRule(ValueError):
    """A malformed pattern or rule: the cause, and one line of help."""

    def __init__(self, cause: str, help: str) -> None:
        super().__init__(cause)
        self.help = help


@dataclass(frozen=True)
class Place:
    """``{name}``, ``{name+add}``, or ``{name:text|text}``."""

    name: str
    add: int | None = None
    texts: tuple[str, ...] | None = None


Part: TypeAlias = "str | tuple[str | Place, ...]"  # a literal (`*` stands for parts), or literals and places in turn


@dataclass(frozen=True)
class Match:
    """What a pattern found in a name. ``taken``: the text of each place, and of ``*``. ``rest``: the name's remainder,
    empty or with its dot. ``rank``: whether the pattern says the name's end, and how many characters of it."""

    taken: Mapping[str, str]
    rest: str
    rank: tuple[bool, int]


def parse(text: str) -> tuple[Part, ...]:
    """The parts of a pattern. Raises BadRule."""
    if not text or len(text) > LONGEST:
        raise BadRule(f"a name has 1 to {LONGEST:,} characters, this one {len(text):,}", _HELP)
    if bad := next((c for c in text if not c.isprintable() or c == " "), None):
        raise BadRule(f"a name of a tensor has no {bad!a}", _HELP)
    parts = tuple(_part(part, text) for part in text.split("."))
    places = [piece for part in parts if not isinstance(part, str) for piece in part if isinstance(piece, Place)]
    names = [place.name for place in places]
    if len(names) > _MOST_PLACES:
        raise BadRule(f"a pattern has at most {_MOST_PLACES} places in braces, this one {len(names)}", _HELP)
    return parts


def _part(text: str, whole: str) -> Part:
    if text == STAR:
        return STAR
    if STAR in text:
        raise BadRule(f"`*` stands for whole parts of a name, not for a piece of `{text[:60]}`", "write `a.*` or `*.b`")
    pieces: list[str | Place] = []
    rest = text
    while rest:
        before, brace, after = rest.partition("{")
        if "}" in before:
            raise BadRule(f"`{whole[:60]}` has `}}` without `{{`", _HELP)
        if before:
            pieces.append(before)
        if not brace:
            break
        inner, closed, rest = after.partition("}")
        if not closed or "{" in inner:
            raise BadRule(f"`{whole[:60]}` has `{{` without `}}`", "a place in braces contains no dot; " + _HELP)
        pieces.append(_place(inner))
    return tuple(pieces) if any(isinstance(piece, Place) for piece in pieces) else text


def _place(inner: str) -> Place:
    found = _PLACE.match(inner)
    if found is None:
        raise BadRule(f"`{{{inner[:60]}}}` is not a place", "write `{i}`, `{i-1}` or `{p:query|key|value}`")
    name, sign, number, listed = found.groups()
    if listed is None:
        return Place(name, None if sign is None else int(sign + number))
    texts = tuple(listed.split("|"))
    if not all(texts) or len(set(texts)) < len(texts) or len(texts) > _MOST_TEXTS:
        cause = f"`{{{inner[:60]}}}` lists an empty text, the same text twice, or more than {_MOST_TEXTS}"
        raise BadRule(cause, "write different texts: `{p:query|key|value}`")
    return Place(name, texts=texts)


def places(parts: Sequence[Part]) -> list[Place]:
    """The places in braces, in order."""
    return [piece for part in parts if not isinstance(part, str) for piece in part if isinstance(piece, Place)]


class Pattern:
    """A pattern that names are matched with. ``integers``: the places that stand for integers in any case."""

    def __init__(self, text: str, integers: frozenset[str] = frozenset(), *, stars: int = 1) -> None:
        """Raises BadRule; at most ``stars`` of ``*`` are accepted."""
        self.text = text
        self.parts = parse(text)
        self.places = places(self.parts)
        names = [place.name for place in self.places]
        if len(set(names)) < len(names):
            raise BadRule(f"`{text[:60]}` has a place twice", "give each place in braces its own name")
        for place in self.places:
            if place.add is not None:
                cause = f"`{{{place.name}{place.add:+d}}}` belongs into the new name"
                raise BadRule(cause, "arithmetic is done on the new name only: `layer{s}: stage.{s-1}`")
        self.stars = sum(part == STAR for part in self.parts)
        if self.stars > stars:
            raise BadRule(f"`{text[:60]}` has more than {stars} `*`", "name more of the parts")
        self._runs: list[list[_Test]] = [[]]  # what stands between two `*`
        for part in self.parts:
            if part == STAR:
                self._runs.append([])
            else:
                self._runs[-1].append(_test(part, integers, text))
        #: the literals before the first `*` with their positions; most names differ in one of them
        self._anchors = [(i, test.literal) for i, test in enumerate(self._runs[0]) if test.expression is None]

    @property
    def glance(self) -> int:
        """About how many steps ``near`` takes."""
        return 1 + len(self._anchors) // 16

    def cost(self, parts: int) -> int:
        """About how many steps ``match`` takes with a name of so many parts."""
        texts = sum(len(place.texts or ()) for place in self.places)
        return 1 + (parts if self.stars else len(self.parts)) + 2 * len(self.places) + texts // 4

    def near(self, name: Sequence[str]) -> bool:
        """False if a literal part before the first ``*`` rules the name out; much cheaper than ``match``."""
        count = len(name)
        for index, literal in self._anchors:  # noqa: SIM110 - half the time of all(...), and most names end here
            if index >= count or name[index] != literal:
                return False
        return True

    def match(self, name: Sequence[str], *, whole: bool | None = None) -> Match | None:
        """Match the parts of a name. ``whole``: nothing may follow; by default if the pattern has a ``*``."""
        whole = self.stars > 0 if whole is None else whole
        taken: dict[str, str] = {}
        said = at = 0  # `at`: the next part of the name
        for number, run in enumerate(self._runs):
            low = at if number == 0 else at + 1  # a `*` takes at least one part
            high = len(name) - len(run)
            if number == len(self._runs) - 1 and (whole or not run):
                low = max(low, high)  # a `*` at the end takes all
            if number == 0:
                high = min(high, 0)
            first = run[0] if run and not run[0].expression else None
            for start in range(low, high + 1):
                if first is not None and first.literal != name[start]:
                    continue
                if (found := _fits(run, name[start : start + len(run)])) is not None:
                    break
            else:
                return None
            if number:
                taken[STAR] = ".".join(name[at:start])
            taken |= found[0]
            said += found[1]
            at = start + len(run)
        rest = "".join("." + part for part in name[at:])
        return Match(taken, rest, (not rest and bool(self._runs[-1]), said))


@dataclass(frozen=True)
class _Test:
    """What one part of a name is compared with: a literal, or an expression made here, of atomic groups only.
    ``free``: the places whose text the pattern does not say."""

    literal: str
    expression: re.Pattern[str] | None = None
    free: tuple[str, ...] = ()


def _test(part: Part, integers: frozenset[str], text: str) -> _Test:
    if isinstance(part, str):
        return _Test(part)
    said = []
    for index, piece in enumerate(part):
        if isinstance(piece, str):
            said.append(re.escape(piece))
        elif piece.texts is not None:
            listed = "|".join(re.escape(t) for t in sorted(piece.texts, key=len, reverse=True))
            said.append(f"(?P<{piece.name}>(?>{listed}))")
        elif len(part) == 1 and piece.name not in integers:
            said.append(f"(?P<{piece.name}>.+)")
        else:
            after = part[index + 1] if index + 1 < len(part) else ""
            begins = after if isinstance(after, str) else "".join(t[0] for t in after.texts or "0")
            if any(c.isdecimal() for c in (begins[:1] if isinstance(after, str) else begins)):
                cause = f"`{text[:60]}`: it is not clear where the integer `{{{piece.name}}}` ends"
                raise BadRule(cause, "put a character that is no digit after it")
            said.append(f"(?P<{piece.name}>{_INTEGER})")
    free = tuple(piece.name for piece in part if isinstance(piece, Place) and piece.texts is None)
    return _Test("", re.compile("".join(said), re.DOTALL), free)


def _fits(run: Sequence[_Test], name: Sequence[str]) -> tuple[dict[str, str], int] | None:
    """The texts of places in these parts of a name, and the number of characters that the pattern says; None if they
    do not fit."""
    texts: dict[str, str] = {}
    said = len(run)
    for test, part in zip(run, name, strict=True):
        said += len(part)
        if test.expression is None:
            if test.literal != part:
                return None
            continue
        found = test.expression.fullmatch(part)
        if found is None:
            return None
        texts |= found.groupdict()
        said -= sum(len(found[name]) for name in test.free)
    return texts, said
