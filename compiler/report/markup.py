"""HTML as text: tags with escaped attributes, escaped text, tables. Names of a source never become markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dslc.base.visible import one_line


def plain(text: object) -> str:
    """Text to stand between tags or in an attribute."""
    return escape(one_line(text))


def tag(name: str, *inside: str, **attrs: object) -> str:
    """An element around markup. ``class_`` is the attribute ``class``; ``aria_label`` is ``aria-label``; None: no
    attribute."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{plain(value)}"' for key, value in attrs.items() if value is not None
    )
    return f"<{name}{shown}>{''.join(inside)}</{name}>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Numbers with their names."""
    return tag(
        "dl", *(tag("div", tag("dt", plain(name)), tag("dd", plain(value))) for name, value in pairs), class_="tiles"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of cells that are markup, ``<td>`` and all; the heads of the columns in ``right`` stand right."""
    heads = "".join(tag("th", plain(h), class_="n" if i in right else None) for i, h in enumerate(head))
    lines = "\n".join(tag("tr", *row) for row in rows)
    return tag(
        "div", tag("table", tag("thead", tag("tr", heads)), tag("tbody", "\n", lines)), class_="wide", tabindex=0
    )


def cell(text: object) -> str:
    return tag("td", plain(text))


def number(text: object) -> str:
    """A cell whose text stands right."""
    return tag("td", plain(text), class_="n")


def share(part: float, text: str) -> str:
    """A number with a bar behind it: ``part`` of the cell, 0 to 1."""
    return tag("td", plain(text), class_="n bar", style=f"--w:{part:.1%}")
