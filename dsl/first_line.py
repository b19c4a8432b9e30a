"""The first line of a file, `nn 1`: the edition of the language in which the file is written."""

from __future__ import annotations

from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.limits import EDITIONS
from dslc.dsl.tokens import Token, Tokens


def read_edition(tokens: Tokens, found: list[Diagnostic]) -> None:
    """Check that the tokens begin with `nn`, a known edition and a line end. A missing line is reported in ``found``
    (E0007) and supplied, so that the rest is read; an unsupported edition is rejected with E0008 as the only error."""
    items = tokens.items
    reads = ", ".join(str(edition) for edition in EDITIONS)
    help = f"write `nn {EDITIONS[-1]}` on the first line"
    if items[0].kind == "nn" and items[1].kind == "NUMBER":
        text = items[1].text
        if not text.isdigit() or int(text) not in EDITIONS:
            title = f"edition {text} of the language is unknown"
            label = Label(tokens.span(1), f"this build reads edition {reads}")
            raise CompileError([Diagnostic("E0008", title, label, help=f"{help}, or use a newer dslc")])
        if items[2].kind not in ("_NL", "$END"):
            label = Label(tokens.span(2), "begin a new line here")
            title = "the edition needs its own line"
            found.append(Diagnostic("E0007", title, label, help=help))
            _insert(tokens, 2, [items[2]._replace(kind="_NL", text="", end=items[2].start)])
        return
    title = "the first line does not name the edition of the language"
    found.append(Diagnostic("E0007", title, Label(tokens.span(0), ""), help=help))
    given = 0
    if items[0].kind == "nn":
        while items[given].kind not in ("_NL", "$END"):
            given += 1
    start = items[given].start
    line = [Token("nn", "", start, start), Token("NUMBER", str(EDITIONS[-1]), start, start)]
    if items[given].kind not in ("_NL", "$END"):
        line.append(Token("_NL", "", start, start))
    _insert(tokens, given, line)
    _drop(tokens, given)


def _insert(tokens: Tokens, at: int, new: list[Token]) -> None:
    tokens.items[at:at] = new
    _shift(tokens, at, len(new))


def _drop(tokens: Tokens, count: int) -> None:
    """Remove the first tokens."""
    del tokens.items[:count]
    _shift(tokens, count, -count)


def _shift(tokens: Tokens, at: int, by: int) -> None:
    """Shift the entries that are keyed by the index of a token."""
    tokens.docs = {i + by if i >= at else i: docs for i, docs in tokens.docs.items()}
    tokens.comments = {i + by if i >= at else i: comments for i, comments in tokens.comments.items()}
    tokens.bad = {i + by if i >= at else i: bad for i, bad in tokens.bad.items()}
