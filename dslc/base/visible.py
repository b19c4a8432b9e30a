"""Text from files on its way to a terminal: every character that a terminal would obey or hide is shown by its number.

Names, paths, values and messages of libraries may come from anywhere: an escape sequence in a tensor's name could
rewrite what stands above it, a newline forge a line of its own, a mark of direction turn a path around. All that is
printed passes here, and what belongs to one line passes ``one_line`` before it is put into more. What is shown is text
without backslashes or quotes of ours, so to pass twice changes nothing.
"""

from __future__ import annotations

import re
from typing import Final, TextIO

_UNSURE: Final = re.compile(r"[^ -~]")
_UNSURE_IN_LINES: Final = re.compile(r"[^ -~\n\t]")
#: Controls, formats (bidi and zero-width among them), half pairs, private and unassigned ones, line separators.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
#: Letters and marks that show nothing: fillers, joiners, variation selectors (Unicode's Default_Ignorable_Code_Point).
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def one_line(text: object) -> str:
    """What belongs to one line, as it may stand there: a newline is shown by its number, too."""
    return _UNSURE.sub(_shown, str(text))


def visible(text: str) -> str:
    """Lines as they may be printed; newlines and tabs stay."""
    return _UNSURE_IN_LINES.sub(_shown, text)


def hidden(char: str) -> bool:
    """Whether a terminal would obey a character, or show nothing for it. A newline and a tab are."""
    from unicodedata import category

    return category(char) in _HIDDEN or _BLANK.match(char) is not None


def by_number(char: str) -> str:
    """``<U+001B>``"""
    return f"<U+{ord(char):04X}>"


def fitting(text: str, stream: TextIO) -> str:
    """Text that the stream's encoding can hold: what it lacks is written as ``\\xe9``."""
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _shown(match: re.Match[str]) -> str:
    return by_number(match[0]) if hidden(match[0]) else match[0]
