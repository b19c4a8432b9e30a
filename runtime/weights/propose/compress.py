"""Few rules for many pairs of names: numbers become places, equal endings are left out.

The rules are compared with the pairs by the map itself; those that give another name are replaced by the pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dslc.base.errors import ArtifactError
from dslc.runtime.weights.names.name_map import NameMap, Naming
from dslc.runtime.weights.names.ordered import COUNTER
from dslc.runtime.weights.names.pattern import BadRule
from dslc.runtime.weights.propose.assign import REASONS, Pair
from dslc.runtime.weights.propose.items import numbers

_PLACES: Final = "ijklmnopqrstuvw"
_MOST_TEXTS: Final = 256


@dataclass
class Line:
    """A rule; ``target`` None for ignored tensors. ``reason`` is the least sure one of its pairs."""

    old: str
    target: str | None
    change: str = ""
    files: list[str] = field(default_factory=list)
    reason: str = REASONS[0]
    others: tuple[str, ...] = ()

    @property
    def rule(self) -> object:
        return {"to": self.target, "rearrange": self.change} if self.change else self.target


@dataclass(frozen=True)
class _Name:
    """An old and a new name, or their beginnings."""

    old: str
    new: str
    change: str
    pairs: tuple[Pair, ...]


def compressed(pairs: Sequence[Pair], names: Collection[str]) -> list[Line]:
    """Rules that give each file's tensor of ``pairs`` its name, and no other of ``names`` one of the model's."""
    lines = [line for group in _groups(_layers(pairs, names)).values() for line in _generalised(group)]
    lines = [line for line in lines if line.old != line.target or line.change]
    bad = _wrong(lines, pairs, names)
    if bad:
        lines = [line for line in lines if not bad.intersection(line.files)]
        lines += [_literal(pair) for pair in pairs if pair.file.name in bad or not _covered(pair, lines)]
    if bad and _wrong(lines, pairs, names):
        lines = [_literal(pair) for pair in pairs]
    return lines


def map_of(lines: Sequence[Line]) -> NameMap:
    """BadRule for a name that a pattern cannot say."""
    return NameMap.of({line.old: line.rule for line in lines})


def _covered(pair: Pair, lines: Sequence[Line]) -> bool:
    return pair.file.name == pair.model.name or any(pair.file.name in line.files for line in lines)


def _literal(pair: Pair) -> Line:
    return Line(pair.file.name, pair.model.name, pair.file.change, [pair.file.name], pair.reason, pair.others)


def _wrong(lines: Sequence[Line], pairs: Sequence[Pair], names: Collection[str]) -> set[str]:
    """Names in the file whose new name would not be that of the pairs."""
    wanted = {pair.file.name: pair.model.name for pair in pairs}
    models = set(wanted.values())
    try:
        naming: Naming = map_of(lines).naming(names, "the proposal")
    except (ArtifactError, BadRule):
        return set(wanted)
    made = {origin.pieces[0]: new for new, origin in naming.made.items()}
    return {name for name, new in wanted.items() if made.get(name) != new} | {
        name for name, new in made.items() if name not in wanted and new in models
    }


def _layers(pairs: Sequence[Pair], names: Collection[str]) -> list[_Name]:
    """One name for the tensors of a layer if all of them keep the last part of their names."""
    tensors: dict[str, int] = defaultdict(int)
    for name in names:
        tensors[name.rpartition(".")[0]] += 1
    layers: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        layers[pair.file.module].append(pair)
    found = []
    for module, members in layers.items():
        counters = f"{module}.{COUNTER}" in names
        whole = len(members) + counters == tensors[module] and module != ""
        if (
            whole
            and len({p.model.module for p in members}) == 1
            and members[0].model.module
            and all(p.file.leaf == p.model.leaf and not p.file.change for p in members)
        ):
            found.append(_Name(module, members[0].model.module, "", tuple(members)))
        else:
            found += [_Name(p.file.name, p.model.name, p.file.change, (p,)) for p in members]
    return found


def _groups(names: list[_Name]) -> Mapping[tuple[str, str, str], list[_Name]]:
    found: dict[tuple[str, str, str], list[_Name]] = defaultdict(list)
    for name in names:
        found[numbers(name.old)[0], numbers(name.new)[0], name.change].append(name)
    return found


def _generalised(group: list[_Name]) -> list[Line]:
    """Rules for names that differ in numbers only; if places cannot say all of them, rules for each value of the number
    that needs the fewest."""
    old = [numbers(name.old)[1] for name in group]
    new = [numbers(name.new)[1] for name in group]
    found = _places(old, new)
    if found is None:
        varied = [i for i, values in enumerate(zip(*old)) if len(set(values)) > 1]
        return min((_split(group, i) for i in varied), key=len)
    pairs = [pair for name in group for pair in name.pairs]
    surest = max(pairs, key=lambda pair: REASONS.index(pair.reason))
    texts = [_filled(numbers(name)[0], said) for name, said in zip((group[0].old, group[0].new), found)]
    names = [pair.file.name for pair in pairs]
    return [Line(texts[0], texts[1], group[0].change, names, surest.reason, surest.others)]


def _split(group: list[_Name], position: int) -> list[Line]:
    parts: dict[str, list[_Name]] = defaultdict(list)
    for name in group:
        parts[numbers(name.old)[1][position]].append(name)
    return [line for part in parts.values() for line in _generalised(part)]


def _filled(template: str, said: Sequence[str]) -> str:
    pieces = template.split("#")
    return "".join(a + b for a, b in zip(pieces, [*said, ""]))


def _places(old: list[tuple[str, ...]], new: list[tuple[str, ...]]) -> tuple[list[str], list[str]] | None:
    """What stands for each number of the old and of the new names; None if no places give the new from the old ones."""
    theirs, ours = list(zip(*old)), list(zip(*new))
    said: tuple[list[str], list[str]] = ([], [values[0] for values in ours])
    open = {j for j, values in enumerate(ours) if len(set(values)) > 1}
    for values in theirs:
        if len(set(values)) == 1:
            said[0].append(values[0])
            continue
        fits = [j for j in sorted(open) if len(set(zip(values, ours[j]))) == len(set(values)) == len(set(ours[j]))]
        if not fits:
            return None
        # of several that fit, one that moves all numbers by the same
        j = min(fits, key=lambda j: _shift(values, ours[j]) is None)
        open.discard(j)
        name = _PLACES[len(said[0]) % len(_PLACES)] + str(len(said[0]) // len(_PLACES) or "")
        shift = _shift(values, ours[j])
        if shift is None:
            texts = sorted(set(zip(values, ours[j])), key=lambda pair: int(pair[0]))
            if len(texts) > _MOST_TEXTS:
                return None
            said[0].append(f"{{{name}:{'|'.join(a for a, _ in texts)}}}")
            said[1][j] = f"{{{name}:{'|'.join(b for _, b in texts)}}}"
        else:
            said[0].append(f"{{{name}}}")
            said[1][j] = f"{{{name}{shift:+d}}}" if shift else f"{{{name}}}"
    return None if open else said


def _shift(old: Sequence[str], new: Sequence[str]) -> int | None:
    shifts = {int(b) - int(a) for a, b in zip(old, new)}
    plain = all(text == str(int(text)) and len(text) < 10 for text in (*old, *new))
    return shifts.pop() if len(shifts) == 1 and plain else None
