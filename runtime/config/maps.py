"""Maps of tensor names, from ``start.map`` and from files: those of the project, and those shipped with dslc.

A map file is YAML like ``dslc.yaml``, with the keys ``about`` (one line) and ``map`` (old name: new name, null, or a
mapping with ``to``). Its rules need not all fit: it may describe a family of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from dslc.base.errors import DataError
from dslc.runtime import weights
from dslc.runtime.config.readers import mapping, refuse, text, unknown
from dslc.runtime.config.yaml import Value, plain, read_yaml
from dslc.runtime.nearest import nearest
from dslc.runtime.weights.names.name_map import NameMap, require_readable
from dslc.runtime.weights.names.pattern import BadRule
from dslc.runtime.weights.names.rule import Rule

_SHIPPED: Final = Path(weights.__file__).parent / "maps"
_SUFFIXES: Final = (".map", ".yaml", ".yml")
_CHECKED: Final = 100  # rules; the places in braces of so many are counted together
_FIELDS: Final = ("about", "map")

Given: TypeAlias = "str | Mapping[str, object]"


def renaming(value: Value, name: str) -> tuple[str | NameMap, ...]:
    """Rules, the name of a map, or a list of both; later ones replace equal patterns of earlier ones."""
    parts = value.data if isinstance(value.data, list) else [value]
    return tuple(text(part, name) if isinstance(part.data, str) else rules(part, name, required=True) for part in parts)


def rules(value: Value, name: str, *, required: bool) -> NameMap:
    """The rules of a mapping; DataError R104 at a malformed one."""
    found: dict[str, Rule] = {}
    items = mapping(value, name)
    for key, item in items.items():
        try:
            found[key] = Rule.of(key, plain(item))
            if len(found) % _CHECKED == 0:
                require_readable(found.values())
        except BadRule as bad:
            refuse(item, str(bad), bad.help)
    try:
        return NameMap(found, found if required else ())
    except BadRule as bad:
        refuse(value, str(bad), bad.help)


def joined(parts: Sequence[str | NameMap], resolve: Callable[[str], Path] = Path) -> NameMap:
    """One map of several. Names that end in .map, .yaml or .yml are files, which ``resolve`` finds; others are shipped.

    Raises DataError R101 for a file that cannot be read, R104 for one that is no map, and for an unknown name."""
    whole = NameMap({}, ())
    for part in parts:
        if isinstance(part, str):
            part = read_map(resolve(part) if part.endswith(_SUFFIXES) else _shipped_path(part))
        whole = whole.joined(part)
    return whole


def map_of(given: Given | Sequence[Given], place: str) -> NameMap:
    """The map of plain data: rules by their patterns, the name of a map, or a list of both. Raises as ``joined``."""
    parts = [given] if isinstance(given, str | Mapping) else list(given)
    try:
        return joined([part if isinstance(part, str) else NameMap.of(part) for part in parts])
    except BadRule as bad:
        raise DataError("R104", str(bad), place=place, help=bad.help) from bad


def read_map(path: Path) -> NameMap:
    """The map in a file. Raises DataError R101 and R104."""
    tree = read_yaml(path)
    items = mapping(tree, "the map")
    for key, item in items.items():
        if key not in _FIELDS:
            unknown(item, key, _FIELDS, "a map file")
    if "about" in items:
        text(items["about"], "about")
    if "map" not in items:
        refuse(tree, "the file has no `map`", "write `map:`, and `old: new` lines below it")
    return rules(items["map"], "map", required=False)


def shipped() -> list[str]:
    """The names of the maps that dslc ships: ``torchvision/resnet``."""
    return sorted(path.relative_to(_SHIPPED).with_suffix("").as_posix() for path in _SHIPPED.glob("*/*.yaml"))


def _shipped_path(name: str) -> Path:
    known = shipped()
    if name not in known:
        close = nearest(name, known)
        help = f"did you mean `{close}`?" if close else f"known are {', '.join(known) or 'none'}"
        raise DataError(
            "R104", f"no map `{name[:60]}` is shipped", place="start.map", help=help + "; or name a .map file"
        )
    return _SHIPPED / f"{name}.yaml"
