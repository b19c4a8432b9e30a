"""The pages of the error codes: ``pages/CODE.md`` next to this file.

A page has the title from the table and the meaning of the code. Most pages also show a source that causes the error
(fence ``nn bad``) and the corrected source (fence ``nn``).
"""

from __future__ import annotations

from pathlib import Path

from dslc.base.errors import CODES

PAGES = Path(__file__).resolve().parent / "pages"


def page(code: str) -> str:
    """The Markdown text of a code's page. Raises KeyError for a code that is not in the table."""
    if code not in CODES:
        raise KeyError(code)
    return (PAGES / f"{code}.md").read_text(encoding="utf-8")


def fences(text: str) -> list[tuple[str, str]]:
    """(info string, content) of each fenced block of a page, in order."""
    found: list[tuple[str, str]] = []
    info: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("```"):
            if info is None:
                info, lines = line[3:].strip(), []
            else:
                found.append((info, "".join(f"{kept}\n" for kept in lines)))
                info = None
        elif info is not None:
            lines.append(line)
    return found
