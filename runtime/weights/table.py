"""What became of the tensors of a file, as an aligned table with one line for each rule or layer, and as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dslc.base.words import size_text
from dslc.runtime.weights.matching import Matching, Row

_WIDEST: Final = 34  # characters of a name
_SAID: Final = {
    "taken": "",
    "replaced": "replaced: keeps its initial values",
    "missing": "not in the file: keeps its initial values",
    "misshaped": "another shape: keeps its initial values",
    "ignored": "ignored",
    "unused": "not used",
}
_HEAD: Final = ("in the file", "in the model", "tensors", "size", "")


def lines(matching: Matching) -> list[str]:
    """One line for each rule and action; tensors that no rule names are grouped by the first part of their name."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in matching.rows:
        first = (row.files[0] if row.files else row.name or "").partition(".")[0]
        groups.setdefault((row.action, row.rule or first, row.change), []).append(row)
    order = list(_SAID)
    table = [_line(key, rows) for key, rows in sorted(groups.items(), key=lambda item: order.index(item[0][0]))]
    return _aligned([_HEAD, *table])


def _line(key: tuple[str, str, str], rows: list[Row]) -> tuple[str, ...]:
    action, rule, change = key
    files = [name for row in rows for name in row.files]
    names = [row.name for row in rows if row.name is not None]
    old = files[0] if len(files) == 1 else rule if rows[0].rule else _common(files)
    size = sum(row.bytes for row in rows)
    said = _SAID[action] or change
    if action == "misshaped" and len(rows) == 1:
        said = f"is {rows[0].have}, not {rows[0].want}: {said.partition(': ')[2]}"
    return (
        _short(old),
        _short(_common(names)),
        str(len(names) or len(files)),
        size_text(size) if size else "",
        said,
    )


def _common(names: list[str]) -> str:
    """The only name, or the parts with which all of them begin, and `.*`."""
    if len(names) < 2:
        return names[0] if names else "-"
    parts = [name.split(".") for name in names]
    count = next((i for i, column in enumerate(zip(*parts)) if len(set(column)) > 1), min(map(len, parts)))
    return ".".join([*parts[0][:count], "*"])


def _short(text: str) -> str:
    text = ascii(text)[1:-1] if not text.isprintable() else text
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST // 2 - 1]}..{text[-_WIDEST // 2 + 1 :]}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) if column in (2, 3) else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]  # fmt: skip


def data(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Each weight of the model and each other tensor of the file, for --json."""
    return [
        {"files": list(row.files), "name": row.name, "have": row.have, "want": row.want, "action": row.action,
         "rule": row.rule, "change": row.change}
        for row in rows
    ]  # fmt: skip
