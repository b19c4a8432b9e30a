"""Matches brackets before parsing, to report which one was never closed and to bound the nesting."""

from __future__ import annotations

import re
from typing import Final

from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.limits import MAX_NESTING
from dslc.dsl.span import Span
from dslc.dsl.tokens import Token, Tokens

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_STATEMENT_WORDS: Final = frozenset({"return", "yield", "check"})
# These begin a statement, a declaration or a section only if a word follows; elsewhere they are names.
DECLARATION_WORDS: Final = frozenset({"layer", "param", "state", "buffer", "scan"})
ITEM_WORDS: Final = frozenset({"block", "model", "use", "const"})
_SECTION_WORDS: Final = frozenset({"train", "precision", "budget", "mesh", "dim"})
_WORDS_BEHIND_A_NAME: Final = frozenset(["in", "for", "if", "else", "and", "or", "not", "as", "along", "carry", "into"])
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


class Brackets:
    """The stack of open brackets while the lexer runs.

    A word that begins a statement or a declaration, first on its line, proves that earlier brackets were not closed.
    They are reported and treated as closed, and lexing continues.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.stack: list[tuple[Token, int]] = []  # an opening bracket and the indentation of its line
        self.in_body = False  # whether the outermost `{` belongs to a block or model
        self.suspect: Token | None = None  # a `{` whose `}` is indented less than its line

    def inside_round(self) -> bool:
        return bool(self.stack) and self.stack[-1][0].kind != "{"

    def before(self, token: Token, fresh: bool) -> bool:
        """Close brackets that must end before this token; True if there were any. ``fresh``: the token is the first on
        its line."""
        kind = token.kind
        if not self.stack:
            if kind in (")", "]", "}"):
                self._report(token, f"this `{kind}` closes nothing", "", "delete it, or add the opening bracket")
            return False
        depth = len(self.stack)
        if kind in ("}", "{") or (fresh and self._begins_statement(token)):
            # Neither a `{` nor a statement may occur inside ( or [.
            self._close_round(token)
        if fresh and self._begins_item(token):
            self.close_all(token)
        elif kind in (")", "]") and _CLOSING[self.stack[-1][0].kind] != kind:
            self._mismatch(token)
        elif kind == "}" and not self.stack:
            self._report(token, "this `}` closes nothing", "", "delete it, or add the opening bracket")
        return len(self.stack) < depth

    def after(self, token: Token, index: int) -> None:
        """Update the stack for a bracket; the lexer has appended the token at ``index``."""
        if token.kind in _CLOSING:
            if len(self.stack) == MAX_NESTING:
                label = Label(self.tokens.span(index), "one level too many")
                help = "give inner parts names, or move them to a block"
                title = f"brackets nest more than {MAX_NESTING} levels deep"
                raise CompileError([Diagnostic("E0004", title, label, help=help)])
            if token.kind == "{" and not self.stack:
                self.in_body = self._is_head_of_body(index)
            self.stack.append((token, self._indent(token)))
        elif self.stack and _CLOSING[self.stack[-1][0].kind] == token.kind:
            opener, indent = self.stack.pop()
            if token.kind == "}" and self._first_on_line(token) and self._indent(token) < indent:
                self.suspect = opener

    def close_all(self, token: Token) -> None:
        """Close all brackets before a declaration or the end of the file, with one report."""
        self._close_round(token)
        if not self.stack:
            return
        opener = self.suspect or self.stack[-1][0]
        what = "the end of the file" if token.kind == "$END" else f"`{token.text}`"
        self._report(opener, "this `{` is never closed", "opened here", f"add `}}` before {what}", at=token)
        while self.stack:
            self._virtual("}", token)
            self.stack.pop()
        self.suspect = None

    def _close_round(self, token: Token) -> None:
        if not self.inside_round():
            return
        opener = self.stack[-1][0]
        title = f"this `{opener.kind}` is never closed"
        self._report(opener, title, "opened here", self._where_to_close(opener, token), at=token)
        while self.inside_round():
            self._virtual(_CLOSING[self.stack[-1][0].kind], token)
            self.stack.pop()

    def _where_to_close(self, opener: Token, token: Token) -> str:
        """The line where the bracket should end: before the first line indented no more than the bracket's own."""
        source = self.tokens.source
        first, last = source.position(opener.start)[0], source.position(token.start)[0]
        wanted = _CLOSING[opener.kind]
        indent = self._indent(opener)
        end = first
        for number in range(first + 1, last):
            line = source.line(number)
            if line.strip() and len(line) - len(line.lstrip(" \t")) <= indent:
                break
            end = number if line.strip() else end
        return f"close it with `{wanted}`" if first == last else f"add `{wanted}` at the end of line {end}"

    def _mismatch(self, token: Token) -> None:
        """Reports a `)` or `]` that does not match the open bracket."""
        opener = self.stack[-1][0]
        if opener.kind == "{":
            self._report(token, f"this `{token.kind}` closes nothing", "", "delete it, or add the opening bracket")
            return
        wanted = _CLOSING[opener.kind]
        label = Label(self._span(token), f"closed by `{token.kind}`")
        also = (Label(self._span(opener), f"`{opener.kind}` opened here"),)
        title = f"`{opener.kind}` is closed by `{token.kind}`"
        self._bad(token, Diagnostic("E0001", title, label, also, help=f"close it with `{wanted}`"))
        # Whichever bracket was meant, one of them is now closed.
        while self.inside_round():
            kind = self.stack.pop()[0].kind
            self._virtual(_CLOSING[kind], token)
            if _CLOSING[kind] == token.kind:
                break

    def _report(self, place: Token, title: str, label: str, help: str, at: Token | None = None) -> None:
        self._bad(at or place, Diagnostic("E0001", title, Label(self._span(place), label), help=help))

    def _bad(self, at: Token, diagnostic: Diagnostic) -> None:
        """Append an empty token that carries the diagnostic to the parser."""
        items = self.tokens.items
        items.append(at._replace(kind="BAD", text="", end=at.start))
        self.tokens.bad[len(items) - 1] = diagnostic

    def _virtual(self, kind: str, at: Token) -> None:
        self.tokens.items.append(at._replace(kind=kind, text="", end=at.start))

    def _span(self, token: Token) -> Span:
        return Span(self.tokens.source, token.start, token.end)

    def _indent(self, token: Token) -> int:
        line = self._line(token)
        return len(line) - len(line.lstrip(" \t"))

    def _first_on_line(self, token: Token) -> bool:
        return not self._line(token)[: token.start - self._line_start(token)].strip()

    def _line_start(self, token: Token) -> int:
        return self.tokens.source.text.rfind("\n", 0, token.start) + 1

    def _line(self, token: Token) -> str:
        start = self._line_start(token)
        end = self.tokens.source.text.find("\n", token.start)
        return self.tokens.source.text[start : end if end >= 0 else None]

    def _is_head_of_body(self, index: int) -> bool:
        items = self.tokens.items
        while index >= 0 and items[index].kind != "_NL":
            if items[index].kind in ("block", "model"):
                return True
            index -= 1
        return False

    def _begins_statement(self, token: Token) -> bool:
        return token.kind in _STATEMENT_WORDS or (token.kind in DECLARATION_WORDS and self._word_follows(token))

    def _begins_item(self, token: Token) -> bool:
        """True for a declaration, and for a section after a body: an entry of a section may begin with such a word. One
        that is indented more than the line of the outermost bracket was written inside of it."""
        if self.stack and self._indent(token) > self.stack[0][1]:
            return False
        known = token.kind in ITEM_WORDS or (token.text in _SECTION_WORDS and self.in_body)
        return known and self._word_follows(token)

    def _word_follows(self, token: Token) -> bool:
        """True if a name, a string or `{` follows on the line, as in `train LeNet(...)`."""
        rest = self._line(token)[token.end - self._line_start(token) :].lstrip(" \t")
        word = _WORD.match(rest)
        return rest[:1] in ("{", '"') or (word is not None and word.group() not in _WORDS_BEHIND_A_NAME)
