"""The tables of a sweep: all rows, and the slow ones by function."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

SLOW: Final = 0.8  # of PyTorch's speed
CLIFF: Final = 0.5
_LOW: Final = 0.25  # of the roof
_COLUMNS: Final = ("case", "ours us", "torch us", "ratio", "roof", "moved", "work", "error")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All rows as Markdown, and what they add up to."""
    lines = [[_cell(row, column) for column in _COLUMNS] for row in rows]
    return f"{markdown(_COLUMNS, lines)}\n\n{summary(rows)}"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, marks, *lines))


def _cell(row: dict[str, Any], column: str) -> str:
    if column not in row:
        return str(row.get("failed", "-")) if column == "ours us" else "-"
    value = row[column]
    if column == "roof":
        return f"{value:.0%}"
    if column == "error":
        return f"{value:.0e}" + ("" if row["right"] else " WRONG")
    return f"{value:.1f}" if column.endswith("us") else str(value)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many rows are slow, far from the roof, wrong or failed."""
    timed = [row for row in rows if "ratio" in row]
    if not timed:
        return f"0 rows timed, {len(rows)} failed"
    below = sum(row["ratio"] < SLOW for row in timed)
    cliffs = sum(row["ratio"] < CLIFF for row in timed)
    low = sum(row["roof"] < _LOW for row in timed)
    middle = statistics.geometric_mean(max(row["ratio"], 1e-9) for row in timed)
    wrong = sum(not row.get("right", True) for row in timed)
    return (
        f"{len(timed)} rows; below {SLOW} of PyTorch {below} ({below / len(timed):.1%}), below {CLIFF} {cliffs}; "
        f"geometric mean {middle:.2f}; below {_LOW} of the roof {low}; results differ {wrong}; "
        f"failed {len(rows) - len(timed)}"
    )


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The rows below 0.8 of PyTorch, the slowest function first."""
    slow: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("ratio", SLOW) < SLOW:
            slow[row["function"]].append(row)
    found = [summary(rows), ""]
    lines = []
    for _, group in sorted(slow.items(), key=lambda item: min(row["ratio"] for row in item[1])):
        for row in sorted(group, key=lambda row: row["ratio"]):
            lines.append([row["case"], *(_cell(row, c) for c in ("ours us", "torch us", "ratio", "roof"))])
    found.append(markdown(("case", "ours us", "torch us", "ratio", "roof"), lines))
    failed = [row for row in rows if "failed" in row]
    found += ["", *(f"failed: {row['case']}: {row['failed']}" for row in failed)]
    wrong = [row for row in rows if not row.get("right", True)]
    found += [f"differs: {row['case']}: {row['error']:.1e}" for row in wrong]
    return "\n".join(found)
