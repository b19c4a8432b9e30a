"""A map: rules that give the tensors of a file the names, and the layout, that a model expects.

Of several rules that fit a name, those that say its end come before those that say only its beginning; of these, the
one that says most characters applies. The order of rules has no meaning. A name that no rule fits stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dslc.base.errors import ArtifactError
from dslc.runtime.nearest import nearest
from dslc.runtime.weights.names.ordered import in_order
from dslc.runtime.weights.names.origin import Origin
from dslc.runtime.weights.names.pattern import STAR, BadRule, Match
from dslc.runtime.weights.names.rule import Rule

if TYPE_CHECKING:
    from dslc.runtime.weights.tensor_bytes import FileTensor

_LONGEST_KEY: Final = 128  # characters
_PLACES: Final = re.compile(r"\{[^}]*\}")
_MOST_RULES: Final = 10_000
_MOST_PLACES: Final = 4_000  # in braces, of all rules together; each costs about 0.1 ms to read
#: Steps of comparing names with patterns: about a second. A file of 10,000 tensors may have a map of 100 patterns.
_MOST_WORK: Final = 2_000_000
_CHARACTERS: Final = 64  # of a name, that are looked up in the time of one step


@dataclass(frozen=True)
class Naming:
    """``made``: the origin of each tensor by its new name. ``ignored``: names of the file that a rule drops. ``used``:
    the pattern of the rule that took each name, for names that a rule took."""

    made: Mapping[str, Origin]
    ignored: tuple[str, ...]
    used: Mapping[str, str]


class NameMap:
    """Rules by the text of their patterns. ``required``: those that must fit a name; a shipped map describes a family
    of models, so not every rule of it fits each file."""

    def __init__(self, rules: Mapping[str, Rule], required: Collection[str]) -> None:
        if len(rules) > _MOST_RULES:
            raise BadRule(f"a map has at most {_MOST_RULES:,} rules, this one {len(rules):,}", "use patterns")
        require_readable(rules.values())
        self.rules = dict(rules)
        self.required = frozenset(required)
        self._lengths: list[int] = []
        self._by_first: dict[str, list[Rule]] = {}
        self._others: list[Rule] = []
        lengths = set()
        for text, rule in self.rules.items():
            first = rule.pattern.parts[0]
            if not rule.pattern.places and not rule.pattern.stars:
                lengths.add(len(text))
            elif isinstance(first, str) and first != STAR:
                self._by_first.setdefault(first, []).append(rule)
            else:
                self._others.append(rule)
        self._lengths = sorted(lengths)

    @classmethod
    def of(cls, names: Mapping[str, object]) -> NameMap:
        """The map of plain data: ``{"layer{s}": "stage.{s-1}", "fc": None}``; every rule is required. BadRule."""
        return cls({old: Rule.of(old, new) for old, new in names.items()}, names)

    def joined(self, other: NameMap) -> NameMap:
        """Both maps; a rule of ``other`` replaces the one with the same pattern."""
        return NameMap({**self.rules, **other.rules}, (self.required - other.rules.keys()) | other.required)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def naming(self, names: Collection[str], place: str, models: Collection[str] | None = None) -> Naming:
        """The new names; ``models`` are those of the model, which rules with ``in_order`` need.

        Raises ArtifactError R305 for a required rule that fits no name, two tensors that would get one name, two rules
        that fit a name equally well, a join that lacks a tensor, layers of another number, and too large a task.
        """
        work = 0
        made: dict[str, Origin] = {}
        joins: dict[str, tuple[Rule, dict[int, str]]] = {}
        ignored, used = [], {}
        ordered: dict[str, dict[str, str]] = {}
        for name in names:
            rule, found, cost = self._best(name, place)
            work += cost
            if work > _MOST_WORK:
                cause = f"{len(names):,} tensors and {len(self.rules):,} rules are too many to compare"
                raise ArtifactError("R305", cause, place=place, help="use fewer and shorter patterns")
            if rule is None or found is None:
                _add(made, name, Origin((name,)), place)
                continue
            used[name] = rule.pattern.text
            if rule.target is None:
                ignored.append(name)
            elif rule.in_order is not None:
                ordered.setdefault(rule.pattern.text, {})[name] = found.rest
            elif rule.join is not None:
                [new] = rule.names(found)
                of, members = joins.setdefault(new, (rule, {}))
                if of is not rule or rule.member(found) in members:
                    _clash(new, place)
                members[rule.member(found)] = name
            else:
                for part, new in enumerate(rule.names(found)):
                    _add(made, new, Origin((name,), rule, part), place)
        for new, (rule, members) in joins.items():
            assert rule.join is not None and rule.join.texts is not None
            if lacking := [text for index, text in enumerate(rule.join.texts) if index not in members]:
                cause = (
                    f"`{new[:80]}` is joined from {len(rule.join.texts)} tensors; the file lacks `{lacking[0][:40]}`"
                )
                raise ArtifactError("R305", cause, place=place, help=f"change the rule `{rule.pattern.text[:80]}`")
            _add(made, new, Origin(tuple(members[i] for i in range(len(members))), rule), place)
        for text, rests in ordered.items():
            for name, new in in_order(self.rules[text], rests, models, place).items():
                _add(made, new, Origin((name,), self.rules[text]), place)
        self._require(set(used.values()), names, place)
        return Naming(made, tuple(ignored), used)

    def renamed(self, tensors: Mapping[str, FileTensor], place: str) -> dict[str, FileTensor]:
        """The tensors of a file under their new names, joined, split and rearranged. Raises ArtifactError R305 as
        ``naming`` does, and for a tensor whose shape a rule does not fit."""
        return {new: origin.tensor(tensors, place) for new, origin in self.naming(tensors, place).made.items()}

    def _fitting(self, name: str) -> Iterator[tuple[Rule, Match | None, int]]:
        """The rules that may fit a name, each with its match and the cost of finding it, in parts compared."""
        for length in self._lengths:
            if length > len(name):
                break
            if name[length : length + 1] in ("", ".") and (rule := self.rules.get(name[:length])) is not None:
                yield rule, Match({}, name[length:], (length == len(name), length + 1)), 0
        if self._by_first or self._others:
            parts = name.split(".")
            for rule in (*self._by_first.get(parts[0], ()), *self._others):
                near = rule.pattern.near(parts)
                yield (
                    rule,
                    rule.taken(parts) if near else None,
                    rule.pattern.cost(len(parts)) if near else rule.pattern.glance,
                )

    def _best(self, name: str, place: str) -> tuple[Rule | None, Match | None, int]:
        best: tuple[Rule | None, Match | None] = (None, None)
        rank, tie = (False, -1), None
        work = len(self._lengths) * (1 + len(name) // _CHARACTERS)
        for rule, found, cost in self._fitting(name):
            work += cost
            if found is None:
                continue
            if found.rank > rank:
                best, rank, tie = (rule, found), found.rank, None
            elif found.rank == rank:
                tie = rule
        if tie is not None and best[0] is not None:
            first, second = sorted((best[0].pattern.text, tie.pattern.text))
            cause = f"`{name[:80]}` fits `{first[:80]}` and `{second[:80]}` equally well"
            raise ArtifactError("R305", cause, place=place, help="write more of the name in one of them")
        return *best, work

    def _require(self, used: Collection[str], names: Iterable[str], place: str) -> None:
        for text in self.rules:
            if text in self.required and text not in used:
                said = _PLACES.sub("0", text)
                close = nearest(said, (part for name in names for part in _beginnings(name)))
                help = f"did you mean `{close}`?" if close else "`dslc weights list FILE` shows its names"
                rule = self.rules[text]
                fits = "fits" if rule.pattern.places or rule.pattern.stars else "is or begins with"
                raise ArtifactError("R305", f"no tensor's name {fits} `{text[:80]}`", place=place, help=help)


def require_readable(rules: Iterable[Rule]) -> None:
    """Raise BadRule for rules with too many places in braces."""
    count = sum(len(rule.pattern.places) for rule in rules)
    if count > _MOST_PLACES:
        raise BadRule(f"a map has at most {_MOST_PLACES:,} places in braces", "use fewer rules")


def _add(made: dict[str, Origin], name: str, origin: Origin, place: str) -> None:
    if name in made:
        _clash(name, place)
    made[name] = origin


def _clash(name: str, place: str) -> None:
    cause = f"two tensors would be named `{name[:80]}`"
    raise ArtifactError("R305", cause, place=place, help="change the map of names")


def _beginnings(name: str) -> Iterator[str]:
    """The name's prefixes up to each dot, as far as a key may be as long, and the name itself."""
    yield from (name[: dot.start()] for dot in re.finditer(r"\.", name[:_LONGEST_KEY]))
    yield name
