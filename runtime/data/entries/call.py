"""The name of a dataset in a configuration: ``entry:NAME(argument=value, ...):FIELD``.

A value is a text, in quotes if it has spaces or one of ``,()"``; or an integer, a float, ``true``, ``false``, ``null``.
A text that begins with ``./``, ``../`` or ``/`` is a path; a relative one is relative to the folder of dslc.yaml.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.runtime.data.source import ENTRY, Source

SPOOL: Final = "spool"  # the argument that dslc takes itself
_NAME = re.compile(re.escape(ENTRY) + r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_HEAD = re.compile(re.escape(ENTRY) + r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_ARGUMENT = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,()"=][^,()"=]*)\s*([,)])')
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?\Z")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_PATHS: Final = ("./", "../", "/")


@dataclass(frozen=True)
class Call:
    """``name``: the entry point. ``arguments``: in the user's order; paths are absolute and also in ``paths``.
    ``field``: of a row, None for the row itself. ``spool``: store the rows once even if they can be read by number."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    paths: tuple[Path, ...]
    field: str | None
    spool: bool

    @property
    def text(self) -> str:
        """The name and the arguments, one text for equal calls."""
        return f"{self.name}{json.dumps(dict(self.arguments), sort_keys=True)}"


def is_entry(path: str) -> bool:
    """True for ``entry:NAME``, after any folder."""
    return _NAME.match(path.rpartition("/")[2]) is not None


def divided(text: str) -> tuple[str, str] | None:
    """``entry:NAME`` and the rest of a source's text; None for other data. ValueError for a malformed rest."""
    if not text.startswith(ENTRY):
        return None
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("the name of an entry point is missing: `entry:NAME(split=train):field`")
    key = text[head.end() :]
    _parsed(key)
    return head[0], key


def call_of(source: Source) -> Call:
    """The call that a source names."""
    arguments, field = _parsed(source.key or "")
    found: list[tuple[str, Any]] = []
    paths: list[Path] = []
    spool = False
    for name, value in arguments:
        if name == SPOOL:
            spool = bool(value)
        elif isinstance(value, str) and value.startswith(_PATHS):
            paths.append(Path(os.path.abspath(source.path.parent / value)))
            found.append((name, str(paths[-1])))
        else:
            found.append((name, value))
    return Call(source.path.name.removeprefix(ENTRY), tuple(found), tuple(paths), field, spool)


def _parsed(key: str) -> tuple[list[tuple[str, Any]], str | None]:
    """The arguments and the field of ``(a=1, b=text):field``. ValueError for another text."""
    arguments: list[tuple[str, Any]] = []
    at = 0
    if key.startswith("("):
        at = 1
        closed = key[at:].lstrip().startswith(")")
        if closed:
            at = key.index(")") + 1
        while not closed:
            found = _ARGUMENT.match(key, at)
            if found is None:
                raise ValueError(f'{key[at : at + 40]!r} is no `argument=value`, in quotes if it has one of `,()="`')
            if found[1] in dict(arguments):
                raise ValueError(f"the argument `{found[1]}` is given twice")
            arguments.append((found[1], _value(found[2])))
            at, closed = found.end(), found[3] == ")"
    spool = dict(arguments).get(SPOOL, True)
    if not isinstance(spool, bool):
        raise ValueError(f"`{SPOOL}` is true or false")
    rest = key[at:]
    if rest and (not rest.startswith(":") or len(rest) == 1):
        raise ValueError("a field of the rows follows as `:field`")
    return arguments, rest[1:] or None


def _value(text: str) -> Any:
    if text.startswith('"'):
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    text = text.rstrip()
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text
