"""The proposed map as a file, with how sure each rule is, and everything that it leaves open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.weights.names.ordered import COUNTER
from dslc.runtime.weights.names.origin import Shaped
from dslc.runtime.weights.names.pattern import LONGEST
from dslc.runtime.weights.propose.assign import Unclear, assign
from dslc.runtime.weights.propose.compress import Line, compressed
from dslc.runtime.weights.propose.items import CONSTANTS, in_our_layout, is_constant, items_of, numbers

_MOST: Final = 20_000  # tensors of a file
_SHOWN: Final = 8  # names of a list in a comment
_LONGEST_KEY: Final = 1_000  # characters; YAML reads `KEY: VALUE` of at most 1,024
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.{}|+-]*\Z")
_WORDS: Final = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")  # that YAML does not read as text
_WHY: Final = {
    "name": "equal names",
    "shape": "the only ones with this shape",
    "numbers": "shapes, and the order of numbers",
    "block": "as in other blocks, or in the same layer",
    "similar": "similar names; others have this shape, too",
}


@dataclass(frozen=True)
class Wanted:
    """A weight of the model."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Proposal:
    """``missing``: weights of the model that no rule names. ``unused``: tensors of the file that no rule takes."""

    lines: tuple[Line, ...]
    unclear: tuple[Unclear, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    constants: tuple[str, ...]
    count: int

    def data(self) -> dict[str, Any]:
        return {
            "map": {line.old: line.rule for line in self.lines},
            "reasons": {line.old: line.reason for line in self.lines},
            "unclear": [{"file": list(u.files), "model": list(u.models)} for u in self.unclear],
            "missing": list(self.missing),
            "unused": list(self.unused),
            "ignored": list(self.constants),
        }


def propose(have: Mapping[str, Shaped], want: Mapping[str, Shaped], place: str) -> Proposal:
    """A map of the file's tensors to the model's. Raises ArtifactError R305 for a file with too many tensors."""
    if len(have) > _MOST:
        cause = f"it has {len(have):,} tensors; a map is proposed for at most {_MOST:,}"
        raise ArtifactError("R305", cause, place=place, help="write rules with patterns: docs/finetune.md")
    constants = tuple(name for name in have if name not in want and is_constant(name, have[name]))
    left_out = frozenset(constants)
    tensors = {name: tensor for name, tensor in have.items() if name not in left_out and _speakable(name)}
    found = assign(in_our_layout(items_of(tensors)), items_of(want))
    lines = compressed(found.pairs, have.keys())
    for name in constants:
        leaf = name.rpartition(".")[2]
        if leaf in CONSTANTS and leaf != name:
            continue  # one rule for all of them, below
        lines.append(Line(name, None, files=[name]))
    leaves = {name.rpartition(".")[2] for name in constants if "." in name} & CONSTANTS - {COUNTER}
    lines += [Line(f"*.{leaf}", None) for leaf in sorted(leaves)]
    taken = {pair.file.name for pair in found.pairs}
    named = {pair.model.name for pair in found.pairs}
    return Proposal(
        tuple(lines),
        found.unclear,
        tuple(name for name in want if name not in named),
        tuple(name for name in have if name not in taken and name not in left_out),
        constants,
        len(named),
    )


def _speakable(name: str) -> bool:
    """True if a pattern can say the name."""
    return not set(name) & set("{}*") and name.isprintable() and " " not in name and 0 < len(name) <= LONGEST


def text_of(proposal: Proposal, title: str, have: Mapping[str, Shaped], want: Mapping[str, Shaped]) -> str:
    """A map file; comments say how sure the rules are, and name everything that they leave open."""
    count = f"{proposal.count} of {len(want)} weights of the model get a tensor"
    lines = [f"# Proposed by dslc: {count}.", f"about: {json.dumps(title)}", "map:"]
    if not proposal.lines:
        lines[-1] = "map: {}"
    for reason, why in _WHY.items():
        rules = [line for line in proposal.lines if line.reason == reason and line.target is not None]
        lines += [f"  # {why}"] * bool(rules)
        for line in rules:
            others = f"  # or {_listed(line.others, 3)}?" if line.others else ""
            lines.append(f"{_entry(line.old)}: {_value(line)}{others}")
    dropped = [line for line in proposal.lines if line.target is None]
    unread = [line for line in dropped if any(have[name].dtype not in ITEMSIZE for name in line.files)]
    constants = [line for line in dropped if line not in unread]
    for why, rules in (("constants", constants), ("in a dtype that is not read: convert the file first", unread)):
        lines += [f"  # {why}"] * bool(rules) + [f"{_entry(line.old)}: null" for line in rules]
    if proposal.unclear:
        lines += [
            "",
            "# Not known: these have equal shapes, and names do not tell which is which. Add a rule for each.",
        ]
        for unclear in _patterns(proposal.unclear):
            lines.append(f"#   {_listed(unclear.files)}: {_listed(unclear.models)}")
    open = {name for unclear in proposal.unclear for name in unclear.models}
    if missing := [name for name in proposal.missing if name not in open]:
        lines += ["", "# Not in the file in this shape; `replace` keeps the initial values of a new head."]
        lines += [f"#   {_said(name)} {_type(want[name])}" for name in missing]
    open = {name for unclear in proposal.unclear for name in unclear.files}
    if unused := [name for name in proposal.unused if name not in open]:
        lines += ["", "# Not used; a rule with `null` leaves a tensor out."]
        lines += [f"#   {_said(name)} {_type(have[name])}" for name in unused]
    return "\n".join(lines) + "\n"


def _patterns(unclear: Sequence[Unclear]) -> Iterable[Unclear]:
    """One of those that differ in numbers only."""
    found: dict[tuple[str, ...], Unclear] = {}
    for one in unclear:
        found.setdefault(tuple(numbers(name)[0] for name in (*one.files, "", *one.models)), one)
    return found.values()


def _entry(old: str) -> str:
    """The key of an entry of ``map``; YAML has another form for long ones."""
    key = _key(old)
    return f"  {key}" if len(key) < _LONGEST_KEY else f"  ? {key}\n  "


def _key(text: str) -> str:
    return text if _PLAIN.match(text) and text.lower() not in _WORDS else json.dumps(text)


def _value(line: Line) -> str:
    assert line.target is not None
    if not line.change:
        return _key(line.target)
    return f"{{to: {json.dumps(line.target)}, rearrange: {json.dumps(line.change)}}}"


def _said(name: str) -> str:
    return ascii(name)[1:-1][:120]


def _type(tensor: Shaped) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _listed(names: Sequence[str], most: int = _SHOWN) -> str:
    more = len(names) - most
    return ", ".join(map(_said, names[:most])) + (f" and {more} more" if more > 0 else "")
