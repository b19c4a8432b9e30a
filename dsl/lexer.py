"""Turns text into tokens: checks characters, matches brackets, and decides which line ends terminate statements.

A line end counts only directly inside `{ }` or at the top of a file, and neither after a token that cannot end a
statement nor before one that cannot begin one. So the grammar sees `_NL` only between statements. An error becomes a
token ``BAD`` with its diagnostic, and the parser continues after it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from dslc.dsl.brackets import DECLARATION_WORDS, ITEM_WORDS, Brackets
from dslc.dsl.characters import check_characters, look_alike
from dslc.dsl.diagnostics import CompileError, Diagnostic, Label
from dslc.dsl.limits import MAX_NAME_LENGTH, MAX_NUMBER_LENGTH, MAX_SOURCE_BYTES, MAX_STRING_LENGTH
from dslc.dsl.span import Source, Span
from dslc.dsl.tables import Tables
from dslc.dsl.tokens import Token, Tokens

# Words that the parser takes as names wherever the grammar does not allow the keyword.
SOFT_WORDS: Final = frozenset({"nn", "dim", "along", "reverse", "carry", "into"})

# Words that begin a declaration if a name follows, and are names elsewhere.
DECLARING_WORDS: Final = DECLARATION_WORDS | ITEM_WORDS

# Tokens that cannot end a statement.
_GOES_ON = frozenset(
    ["+", "-", "*", "/", "//", "%", "@", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not"]
    + ["..", "=", ",", "|>", "->"]
)
# Tokens that an expression or a name follows.
_OPENS = _GOES_ON | {"(", "[", ":", "in", "if", "else", "for", "return", "yield", "check"} | DECLARING_WORDS
_DROPPED_BEFORE = frozenset({"|>", "->", "else", "{"})

# Numbers of other bases, as other languages write them.
_OTHER_BASE: Final = re.compile(r"0(?:[xX][\da-fA-F_]*[\da-fA-F]|[bB][01_]*[01]|[oO][0-7_]*[0-7])")

_LETTERS: Final = "names are made of the letters A to Z, a to z, digits and `_`"

# Operators of other languages, and what to write here instead.
_FOREIGN: Final = {
    "**": "a power is written `a^b`",
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`",
    "&": "write `and`",
    "|": "write `or`, or `|>` to pass a value on",
    "~": "write `not`",
    ":=": "assign with `=`",
    "=>": "write `->` before results, `>=` to compare",
    "<-": "assign with `=`",
    "<>": "write `!=`",
    "===": "write `==`",
    "!==": "write `!=`",
    "++": "write `a = a + 1`",
    "+=": "write `a = a + b`",
    "-=": "write `a = a - b`",
    "*=": "write `a = a * b`",
    "/=": "write `a = a / b`",
    "/*": "comments begin with `#` and end with the line",
    "'": 'write "..."',
    "\\": "a line continues by itself inside ( ) and [ ], after an operator, and before `|>`",
    "?": "a conditional is written `a if condition else b`",
}


def lex(source: Source, tables: Tables) -> Tokens:
    """All tokens of a source.

    A source that is too long (E0002) or nests too deeply (E0004) is rejected by a CompileError with this error only; a
    source with forbidden characters (E0003) by one that lists all of them.
    """
    size = len(source.text.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise too_long(source, size)
    check_characters(source)
    return _Lexer(source, tables).run()


def too_long(source: Source, size: int) -> CompileError:
    """The error for a source of more than 96 KiB; ``size`` is the number of bytes read so far."""
    label = Label(Span(source, 0, 0), f"at least {size} bytes, the limit is {MAX_SOURCE_BYTES}")
    help = "repeat parts with `for` and `block`; weights and data do not belong in the source"
    return CompileError([Diagnostic("E0002", "the source is too long", label, help=help)])


@cache
def _pattern(tables_patterns: tuple[tuple[str, str], ...], words: frozenset[str]) -> re.Pattern[str]:
    """One pattern for all tokens, longest operators first; the last group matches any character."""
    patterns = dict(tables_patterns)
    marks = sorted((w for w in {*words, *_FOREIGN} if not w[0].isalpha()), key=lambda w: (-len(w), w))
    parts = [
        r"(?P<space>[ \t\ufeff]+)",
        r"(?P<line>\r?\n)",
        r"(?P<comment>\#[^\r\n]*)",
        f"(?P<NAME>{patterns['NAME']})",
        f"(?P<NUMBER>{patterns['NUMBER']})(?P<unit>[ \\t]*{patterns['UNIT']}(?![A-Za-z0-9_]))?(?P<tail>[A-Za-z0-9_]+)?",
        f"(?P<STRING>{patterns['STRING']})",
        "(?P<mark>" + "|".join(re.escape(m) for m in marks) + ")",
        r"(?P<semicolon>;)",
        r'(?P<open>"[^\r\n]*)',
        r"(?P<other>[^\x00-\x7f]+|[\s\S])",
    ]
    return re.compile("|".join(parts))


class _Lexer:
    def __init__(self, source: Source, tables: Tables) -> None:
        self.source = source
        self.words = tables.words
        self.pattern = _pattern(tuple(sorted(tables.patterns.items())), tables.words)
        self.tokens = Tokens(source)
        self.brackets = Brackets(self.tokens)
        self.line_end: Token | None = None  # a line end that counts if a statement follows
        self.comments: list[Token] = []  # those since the last token
        self.docs: list[str] = []
        self.fresh = True  # only spaces and comments so far on this line

    def run(self) -> Tokens:
        for match in self.pattern.finditer(self.source.text):
            group = match.lastgroup
            start, end = match.span()
            if group == "space":
                continue
            text = match.group()
            if group == "line":
                self._end_of_line(Token("_NL", text, start, end))
                self.fresh = True
            elif group == "semicolon":
                self._semicolon(Token("_NL", text, start, end))
            elif group == "comment":
                self._comment(Token("COMMENT", text, start, end))
            else:
                self._token(match, group or "", text, start, end)
                self.fresh = False
        size = len(self.source.text)
        end_of_file = Token("$END", "", size, size)
        self.brackets.close_all(end_of_file)
        self._put_with_comments(end_of_file)
        return self.tokens

    def _token(self, match: re.Match[str], group: str, text: str, start: int, end: int) -> None:
        if group == "NAME":
            kind = text if text in self.words and not self._names_a_part() else "NAME"
            self._place(Token(kind, text, start, end))
            if len(text) > MAX_NAME_LENGTH:
                self._bad("E0001", f"a name of {len(text)} letters", f"the limit is {MAX_NAME_LENGTH}", None)
        elif group == "mark" and text in self.words:
            self._place(Token(text, text, start, end))
        elif group in ("NUMBER", "unit", "tail"):
            self._number(match)
        elif group == "STRING":
            self._place(Token("STRING", text, start, end))
            if len(text) > MAX_STRING_LENGTH:
                self._bad("E0001", f"a string of {len(text)} characters", f"the limit is {MAX_STRING_LENGTH}", None)
        elif group == "open":
            self._place(Token("BAD", text, start, end))
            self._bad("E0001", "this string is never closed", "begins here", 'close it with `"` on the same line')
        elif group == "mark":
            self._place(Token("BAD", text, start, end))
            title = (
                "strings are written in double quotes"
                if text == "'"
                else f"`{text}` is not an operator of the language"
            )
            self._bad("E0001", title, "", _FOREIGN[text])
        else:
            self._place(Token("BAD", text, start, end))
            what = f"`{text}`" if text.isprintable() else f"U+{ord(text[0]):04X}"
            help = None if text.isascii() else look_alike(text[0]) or _LETTERS
            self._bad("E0003", f"{what} has no meaning here", "", help)

    def _names_a_part(self) -> bool:
        """True if a word here can only be a label or a field: parameters have names known to their users, such as
        ``layer.0.check``, even if a name is a keyword of the language."""
        items = self.tokens.items
        return bool(items) and items[-1].kind in ("as", ".") and self.line_end is None

    def _number(self, match: re.Match[str]) -> None:
        digits, unit, tail = match.group("NUMBER", "unit", "tail")
        start = match.start()
        if tail is not None:
            self._place(Token("BAD", match.group(), start, match.end()))
            help = "put a space or an operator between them; numbers are decimal, as 10, 1_000, 0.5 or 1e-3"
            if _OTHER_BASE.fullmatch(match.group()):
                help = f"numbers are decimal: write {int(match.group(), 0)}"
            self._bad("E0001", f"the number `{digits}` runs into `{tail}`", "", help)
            return
        self._place(Token("NUMBER", digits, start, start + len(digits)))
        if len(digits) > MAX_NUMBER_LENGTH:
            title, note = f"a number of {len(digits)} digits", f"the limit is {MAX_NUMBER_LENGTH} characters"
            self._bad("E0005", title, note, "integers go to 2^63 - 1; write large floats as 1e30")
        if unit is not None:
            word = unit.lstrip(" \t")
            self._put(Token("UNIT", word, match.end() - len(word), match.end()))

    def _place(self, token: Token) -> None:
        """Append a token, preceded by the pending line end if that counts."""
        if self.brackets.before(token, self.fresh) and self.fresh and self.line_end is None:
            self.line_end = token._replace(kind="_NL", text="", end=token.start)
        if self.line_end is not None:
            if token.kind not in _DROPPED_BEFORE and token.kind != "}":
                self._put(self.line_end)
            self.line_end = None
        self._put_with_comments(token)
        self.brackets.after(token, len(self.tokens.items) - 1)

    def _put(self, token: Token) -> None:
        items = self.tokens.items
        if items and items[-1].kind in DECLARING_WORDS and not self._declares(token):
            items[-1] = items[-1]._replace(kind="NAME")
        items.append(token)

    def _declares(self, following: Token) -> bool:
        """True if the last token begins a declaration: a word follows, and no expression can be there."""
        before = self.tokens.items[-2].kind if len(self.tokens.items) > 1 else "_NL"
        return (following.kind == "NAME" or following.kind.isalpha()) and before not in _OPENS

    def _put_with_comments(self, token: Token) -> None:
        index = len(self.tokens.items)
        if self.comments:
            self.tokens.comments[index] = self.comments
            self.comments = []
        if self.docs:
            self.tokens.docs[index] = self.docs
            self.docs = []
        self._put(token)

    def _bad(self, code: str, title: str, label: str, help: str | None) -> None:
        """Turn the last token into a BAD one."""
        items = self.tokens.items
        items[-1] = items[-1]._replace(kind="BAD")
        span = self.tokens.span(len(items) - 1)
        self.tokens.bad[len(items) - 1] = Diagnostic(code, title, Label(span, label), help=help)

    def _end_of_line(self, token: Token) -> None:
        items = self.tokens.items
        if self.brackets.inside_round() or self.line_end is not None or not items:
            return
        last = items[-1].kind
        if last not in ("{", "_NL") and last not in _GOES_ON:
            self.line_end = token

    def _semicolon(self, token: Token) -> None:
        if self.brackets.inside_round():
            self._place(token._replace(kind="BAD"))
            self._bad("E0001", "`;` ends a statement, but a bracket is still open", "", "separate the items with `,`")
        else:
            self._end_of_line(token)

    def _comment(self, token: Token) -> None:
        text = token.text.rstrip()
        self.comments.append(Token("COMMENT", text, token.start, token.start + len(text)))
        if text.startswith("##") and self.fresh and not self.brackets.inside_round():
            self.docs.append(text.lstrip("#").strip())
