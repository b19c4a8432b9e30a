"""Makes text safe for a terminal: replaces each character that a terminal would obey or hide by its code point.

Names, paths, values and library messages may come from anywhere: an escape sequence in a tensor's name could overwrite
earlier lines, a newline could forge a line, a bidi mark could reverse a path. All printed text passes through
``visible``; text that belongs on one line first passes through ``one_line``, before it is embedded in other text. The
replacement contains no backslashes or quotes, so a second pass changes nothing.
"""

from __future__ import annotations

import re
from typing import Final, TextIO

# Patterns are compiled when a text first needs them: every command loads this module, and most text is plain ASCII.
_UNSURE: Final = r"[^ -~]"
_UNSURE_IN_LINES: Final = r"[^ -~\n\t]"
#: Unicode categories: controls, formats (bidi, zero-width), surrogates, private, unassigned, line separators.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
#: Invisible letters and marks: fillers, joiners, variation selectors (Unicode's Default_Ignorable_Code_Point).
_BLANK: Final = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"


def one_line(text: object) -> str:
    """Text that is safe on one line: a newline, too, is replaced by its code point."""
    line = str(text)
    return line if line.isascii() and line.isprintable() else re.sub(_UNSURE, _shown, line)


def visible(text: str) -> str:
    """Text of several lines that is safe to print; newlines and tabs stay."""
    return re.sub(_UNSURE_IN_LINES, _shown, text)


def hidden(char: str) -> bool:
    """True if a terminal would obey the character or show nothing for it; also true for a newline and a tab."""
    from unicodedata import category

    return category(char) in _HIDDEN or re.match(_BLANK, char) is not None


def by_number(char: str) -> str:
    """``<U+001B>``"""
    return f"<U+{ord(char):04X}>"


def fitting(text: str, stream: TextIO) -> str:
    """Text that the stream's encoding can represent: other characters are written as ``\\xe9``."""
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _shown(match: re.Match[str]) -> str:
    return by_number(match[0]) if hidden(match[0]) else match[0]
