"""A restricted YAML reader that produces only data.

It uses PyYAML's scanner and parser (``SafeLoader``'s events) and never a constructor, so no text can create a Python
object. Features that a configuration does not need are rejected with their line: tags, anchors, aliases, merge keys,
directives, several documents, non-string keys, repeated keys. Scalars follow YAML 1.2's core schema (``1e-3`` is a
float, ``no`` is a string), with integers up to 64 bits, without Inf and NaN. ``012`` is rejected because YAML 1.1 and
1.2 read it as different numbers.
"""

from __future__ import annotations

import codecs
import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from dslc.base.errors import DataError
from dslc.base.opened import Opened

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 10_000  # keeps the pure Python scanner under a second for any file within MAX_BYTES

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS: Final[dict[str, bool | None]] = {
    **{word: None for word in ("", "~", "null", "Null", "NULL")},
    **{word: True for word in ("true", "True", "TRUE")},
    **{word: False for word in ("false", "False", "FALSE")},
}
# Characters that make a text appear different from its content: bidi controls, zero-width characters, and a byte order
# mark inside.
_DECEPTIVE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# Characters that only an escape in a quoted text can produce; no path, name or terminal accepts them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Mark:
    """A place in a file; line and column count from 1. Line 0: a flag or a variable, which has neither."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


#: Parts of the parser's messages, and what to do. The first that fits counts.
_HELP: Final = {
    r"'\t'": "indent with spaces, not with tabs",
    "alias": "put a text that begins with * in quotes",
    "anchor": "put a text that begins with & in quotes",
    "cannot start any token": "put the text in quotes",
    "mapping values": "indent a key as its neighbours, and put a text with `: ` in quotes",
    "flow mapping": "write commas between the entries, and } at the end",
    "flow sequence": "write commas between the entries, and ] at the end",
    "quoted scalar": "write the same quote at the end of the text",
}


@dataclass(frozen=True)
class Value:
    """One value with its place. ``key`` is the place of its key if the value is in a mapping."""

    data: bool | int | float | str | list[Value] | dict[str, Value] | None
    mark: Mark
    key: Mark | None = None


def read_yaml(path: Path) -> Value:
    """The mapping in a file of at most 1 MiB.

    Raises DataError R101 if the file cannot be read, R104 with line and column if it is not plain YAML.
    """
    return parse_yaml(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The contents of a file, at most one byte more than MAX_BYTES. DataError R101 if it cannot be read."""
    help = "give its path with --config"
    with Opened() as scope, scope as files:
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            handle = files.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            cause = f"the configuration cannot be read: {error}"
            raise DataError("R101", cause, place=str(path), help=help) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DataError("R101", "this is not a regular file", place=str(path), help=help)
        with open(handle, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)


def parse_yaml(data: bytes, name: str) -> Value:
    """The mapping in ``data`` (an empty text is an empty mapping); ``name`` is used in messages."""
    start = Mark(name, 1, 1)
    if len(data) > MAX_BYTES:
        raise _wrong(start, "the file is larger than 1 MiB", "keep data in .npz files")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _wrong(Mark(name, line, 1), "the file is not UTF-8", "save it as UTF-8") from error
    if bad := _DECEPTIVE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        cause = f"U+{ord(bad[0]):04X} is invisible or changes the text direction"
        raise _wrong(Mark(name, line, column), cause, "remove the character")
    try:
        root = _Builder(name).build(text)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = start if at is None else Mark(name, at.line + 1, at.column + 1)
        cause = " ".join(part for part in (error.context, error.problem) if part)
        help = next((help for part, help in _HELP.items() if part in cause), "fix the text at this place")
        raise _wrong(mark, f"this is not YAML: {cause}", help) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        cause = f"the character U+{error.character:04X} is not allowed"
        raise _wrong(Mark(name, line, 1), cause, "remove the character") from error
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version of thousands of digits
        raise _wrong(start, f"this is not YAML: {error}", "remove the number that is too large") from error
    if root is None or root.data is None:
        return Value({}, start)
    if not isinstance(root.data, dict):
        raise _wrong(root.mark, "the file is not a mapping", "write `key: value` lines")
    return root


def plain(value: Value) -> Plain:
    """The value without its places. MAX_DEPTH bounds the depth."""
    if isinstance(value.data, list):
        return [plain(item) for item in value.data]
    if isinstance(value.data, dict):
        return {key: plain(item) for key, item in value.data.items()}
    return value.data


def scalar(text: str, mark: Mark) -> bool | int | float | str | None:
    """A plain (unquoted) scalar by the core schema. Raises DataError R104 for a number that cannot be represented."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0":
            raise _wrong(
                mark, f"`{text[:30]}` starts with a zero", "write it without the zero, or in quotes if it is a string"
            )
        return _integer(text, 10, mark)
    if _BASED.match(text):
        return _integer(text[2:], 8 if text[1] == "o" else 16, mark)
    if _FLOAT.match(text):
        number = float(text)
        if math.isfinite(number):
            return number
    elif not _NOT_FINITE.match(text):
        return text
    raise _wrong(mark, f"`{text[:30]}` is not a finite number", "write a finite number")


def _integer(digits: str, base: int, mark: Mark) -> int:
    if len(digits) <= 64:
        number = int(digits, base)
        if -(2**63) <= number < 2**63:
            return number
    raise _wrong(
        mark, "this integer needs more than 64 bits", "write a smaller one, or put it in quotes if it is a string"
    )


def _wrong(mark: Mark, cause: str, help: str) -> DataError:
    return DataError("R104", cause, place=str(mark), help=help)


class _Builder:
    """Builds values from the parser's events on an explicit stack, without recursion, so the depth can be limited."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: list[Value] = []  # the containers around the next value, outermost first
        self.keys: list[tuple[str, Mark] | None] = []  # per container: the key whose value comes next
        self.count = 0
        self.root: Value | None = None

    def build(self, text: str) -> Value | None:
        documents = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            at = event.start_mark
            mark = Mark(self.name, at.line + 1, at.column + 1) if at is not None else Mark(self.name, 1, 1)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _wrong(mark, "a second document starts here", "keep one document per file")
                if event.version is not None or event.tags:
                    raise _wrong(mark, "directives are not allowed", "remove the lines that start with %")
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, mark)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.open.pop()
                self.keys.pop()
        return self.root

    def _node(self, event: yaml.NodeEvent, mark: Mark) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _wrong(mark, f"more than {MAX_VALUES} keys and values", "keep data in .npz files")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _wrong(mark, "anchors and aliases are not allowed", "write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _wrong(mark, f"the tag `{str(tag)[:40]}` is not allowed", "remove it: values are plain data")
        if isinstance(event, yaml.ScalarEvent):
            if _UNPRINTABLE.search(event.value):
                raise _wrong(mark, "this string contains a control character or a lone surrogate", "remove the escape")
            if self._wants_key():
                self._key(event, mark)
            else:
                self._add(Value(scalar(event.value, mark) if event.style is None else event.value, mark, self._at()))
            return
        if self._wants_key():
            raise _wrong(mark, "a key must be a name", "write `name: value`")
        if len(self.open) >= MAX_DEPTH:
            raise _wrong(mark, f"nesting is deeper than {MAX_DEPTH}", "use fewer levels")
        container = Value({} if isinstance(event, yaml.MappingStartEvent) else [], mark, self._at())
        self._add(container)
        self.open.append(container)
        self.keys.append(None)

    def _wants_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].data, dict) and self.keys[-1] is None

    def _at(self) -> Mark | None:
        waiting = self.keys[-1] if self.keys else None
        return None if waiting is None else waiting[1]

    def _key(self, event: yaml.ScalarEvent, mark: Mark) -> None:
        name = event.value
        if event.style is None:
            if name == "<<":
                raise _wrong(mark, "merge keys are not allowed", "write the values out")
            if not isinstance(scalar(name, mark), str):
                raise _wrong(mark, f"the key `{name[:40]}` is not a name", "put it in quotes if it is meant as a name")
        mapping = self.open[-1].data
        assert isinstance(mapping, dict)
        if name in mapping:
            first = mapping[name].key
            line = "" if first is None else f", first in line {first.line}"
            raise _wrong(mark, f"the key `{name[:40]}` is given twice{line}", "keep one of them")
        self.keys[-1] = (name, mark)

    def _add(self, value: Value) -> None:
        if not self.open:
            self.root = value
            return
        around = self.open[-1].data
        waiting = self.keys[-1]
        if isinstance(around, list):
            around.append(value)
        elif isinstance(around, dict) and waiting is not None:
            around[waiting[0]] = value
            self.keys[-1] = None
