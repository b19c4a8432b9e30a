"""Diagnostics as data: the error, its place, and one line with a fix. drawing.py draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.base.errors import DslcError
from dslc.dsl.drawing import draw
from dslc.dsl.limits import MAX_SHOWN
from dslc.dsl.span import Span


@dataclass(frozen=True, slots=True)
class Label:
    """A place and its message; if ``text`` is empty, the place is only underlined."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """``title`` is the error, ``label`` the error at this place, ``also`` related places, ``help`` a fix.

    ``code`` is a key of CODES; one that begins with W is a warning. ``context`` is printed after the place, as
    ``in bottleneck(mid=128, s=2) at stage.1.unit.0``.
    """

    code: str
    title: str
    label: Label
    also: tuple[Label, ...] = ()
    help: str | None = None
    context: str | None = None

    @property
    def severity(self) -> str:
        return "warning" if self.code.startswith("W") else "error"

    @property
    def place(self) -> Span:
        """The place after ``-->``: the first of the labelled places on the main label's line."""
        main = self.label.span
        near = [
            label.span
            for label in self.also
            if label.span.source == main.source and label.span.line == main.line and label.span.start < main.start
        ]
        return min(near, key=lambda span: span.start, default=main)

    def as_json(self) -> dict[str, Any]:
        """The diagnostic as data; lines and columns count from 1, columns in characters."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.title,
            "place": str(self.place),
            "context": self.context,
            "label": _label_as_json(self.label),
            "also": [_label_as_json(label) for label in self.also],
            "help": self.help,
        }


def _label_as_json(label: Label) -> dict[str, Any]:
    line, column = label.span.source.position(label.span.start)
    end_line, end_column = label.span.source.position(label.span.end)
    return {
        "path": label.span.source.path,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "text": label.text,
    }


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """The text for the user: title, place, the lines with their labels, help; no newline at the end."""
    labels = [(label.span, label.text, label is diagnostic.label) for label in (diagnostic.label, *diagnostic.also)]
    return draw(
        severity=diagnostic.severity,
        title=f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.title}",
        place=diagnostic.place,
        context=diagnostic.context,
        labels=labels,
        help=diagnostic.help,
        color=color,
    )


class CompileError(DslcError):
    """All errors of a program, in the order of the source; never empty.

    The attributes of DslcError are those of the first diagnostic, whose family also determines the exit code.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        first = self.diagnostics[0]
        super().__init__(first.code, first.title, place=str(first.place), help=first.help)

    def render(self, color: bool = False) -> str:
        """The first 20 diagnostics, separated by blank lines, and the number of further ones."""
        texts = [render(diagnostic, color) for diagnostic in self.diagnostics[:MAX_SHOWN]]
        beyond = len(self.diagnostics) - MAX_SHOWN
        if beyond > 0:
            texts.append(f"and {beyond} more {'error' if beyond == 1 else 'errors'}")
        return "\n\n".join(texts)

    def as_json(self) -> list[dict[str, Any]]:
        return [diagnostic.as_json() for diagnostic in self.diagnostics]


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most similar to ``word``: equal except for case, or within len(word) / 3 edits; None if none is.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours (optimal string alignment, O(len^2)). Among
    candidates at the same distance, the first in alphabetical order wins.
    """
    folded = word.lower()
    limit = len(word) // 3
    best: tuple[int, str] | None = None
    for candidate in sorted(set(candidates)):
        if candidate == word:
            continue
        if candidate.lower() == folded:
            return candidate
        if len(word) > 64 or abs(len(candidate) - len(word)) > limit:
            continue
        distance = _edits(folded, candidate.lower())
        if distance <= limit and (best is None or distance < best[0]):
            best = (distance, candidate)
    return best[1] if best else None


def _edits(a: Sequence[str], b: Sequence[str]) -> int:
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
