"""HTML as text: tags with escaped attributes, escaped text, tables. Names of a source are always escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dslc.base.visible import one_line


def plain(text: object) -> str:
    """Escaped text, for use between tags or in an attribute."""
    return escape(one_line(text))


def tag(name: str, *inside: str, **attrs: object) -> str:
    """An element that contains markup. ``class_`` is the attribute ``class``; ``aria_label`` is ``aria-label``; None
    omits the attribute."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{plain(value)}"' for key, value in attrs.items() if value is not None
    )
    return f"<{name}{shown}>{''.join(inside)}</{name}>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Named numbers, as tiles."""
    return tag(
        "dl", *(tag("div", tag("dt", plain(name)), tag("dd", plain(value))) for name, value in pairs), class_="tiles"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table of cells in markup, including ``<td>``; the heads of the columns in ``right`` are right-aligned."""
    heads = "".join(tag("th", plain(h), class_="n" if i in right else None) for i, h in enumerate(head))
    lines = "\n".join(tag("tr", *row) for row in rows)
    return tag(
        "div", tag("table", tag("thead", tag("tr", heads)), tag("tbody", "\n", lines)), class_="wide", tabindex=0
    )


def cell(text: object) -> str:
    return tag("td", plain(text))


def number(text: object) -> str:
    """A right-aligned cell."""
    return tag("td", plain(text), class_="n")


def share(part: float, text: str) -> str:
    """A number over a bar that fills ``part`` (0 to 1) of the cell."""
    return tag("td", plain(text), class_="n bar", style=f"--w:{part:.1%}")
