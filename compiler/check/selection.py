"""Parameter groups that the configuration adds to those of the source: ``train.freeze`` and ``train.lr_scale``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dslc.base.errors import BuildError
from dslc.compiler.check.tensors import ParamInfo
from dslc.compiler.ir.graph import Kind
from dslc.runtime.nearest import nearest
from dslc.runtime.weights.names.pattern import BadRule, Pattern

_MOST_STARS = 4


@dataclass(frozen=True)
class Selection:
    """Patterns of parameter names; each also selects names that continue after a dot. ``freeze`` has the meaning of
    ``@freeze``, ``lr_scale`` that of ``@lr``: factors of several patterns that fit multiply."""

    freeze: tuple[str, ...] = ()
    lr_scale: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.freeze or self.lr_scale)

    def recorded(self) -> dict[str, Any]:
        """The fields for the header of an artifact; empty if nothing is selected."""
        found: dict[str, Any] = {"freeze": sorted(self.freeze)} if self.freeze else {}
        return {**found, "lr_scale": dict(sorted(self.lr_scale.items()))} if self.lr_scale else found

    @classmethod
    def of_recorded(cls, options: Mapping[str, Any]) -> Selection:
        """The selection in the recorded options of an artifact."""
        return cls(tuple(options.get("freeze", ())), dict(options.get("lr_scale", {})))

    def applied(self, stored: Mapping[str, ParamInfo]) -> dict[str, ParamInfo]:
        """The parameters with these groups. BuildError E0605 for a pattern that selects no parameter."""
        found = dict(stored)
        names = [name for name, info in stored.items() if info.input.kind is Kind.PARAM]
        for text in dict.fromkeys(self.freeze):
            for name in _selected(text, names, "train.freeze"):
                found[name] = replace(found[name], groups=replace(found[name].groups, freeze=True))
        for text, factor in sorted(self.lr_scale.items()):
            for name in _selected(text, names, "train.lr_scale"):
                groups = found[name].groups
                found[name] = replace(found[name], groups=replace(groups, lr=groups.lr * factor))
        return found


def selected(text: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern selects. BadRule if it is malformed or selects none."""
    parts = {name: name.split(".") for name in names}
    pattern = Pattern(text, stars=_MOST_STARS)
    found = [name for name, each in parts.items() if pattern.match(each, whole=False) is not None]
    if not found:
        known = (".".join(each[:count]) for each in parts.values() for count in range(1, len(each) + 1))
        near = nearest(text.removesuffix(".*"), known)
        help = f"did you mean `{near}`?" if near else f"the first parameter is `{next(iter(parts), 'none')}`"
        raise BadRule(f"`{text[:80]}` selects no parameter of the model", help)
    return found


def _selected(text: str, names: Iterable[str], place: str) -> list[str]:
    try:
        return selected(text, names)
    except BadRule as bad:
        raise BuildError("E0605", str(bad), place=place, help=bad.help) from bad
