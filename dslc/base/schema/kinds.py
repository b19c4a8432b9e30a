"""The kinds of schemas, and ``Mismatch``, which says where and why a value violates one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from typing import Final, TypeAlias

INT_LOW: Final = -(1 << 63)
INT_HIGH: Final = (1 << 63) - 1


class Mismatch(Exception):
    """A value violates its schema. ``path`` is completed while the exception propagates; ``rule`` says what was
    expected."""

    def __init__(self, rule: str, got: object = None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.got = got
        self._steps: list[str] = []

    def inside(self, step: str | int) -> Mismatch:
        self._steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
        return self

    @property
    def path(self) -> str:
        return "".join(reversed(self._steps)).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


@dataclass(frozen=True)
class Int:
    """An int in [low, high]."""

    low: int = 0
    high: int = INT_HIGH


@dataclass(frozen=True)
class Float:
    """A finite float, written with a point or an exponent."""


@dataclass(frozen=True)
class Bool:
    """true or false."""


@dataclass(frozen=True)
class Text:
    """Printable text of at most ``longest`` characters; all of it must match ``pattern``, if given."""

    longest: int = 200
    pattern: str | None = None
    called: str = "text"


@dataclass(frozen=True)
class Enum:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Nullable:
    """null or ``of``."""

    of: Schema


@dataclass(frozen=True)
class Either:
    """An int allowed by ``number`` or a text allowed by ``text``."""

    number: Int
    text: Text


@dataclass(frozen=True)
class ListOf:
    """A list of ``least`` to ``most`` items."""

    of: Schema
    most: int
    least: int = 0


@dataclass(frozen=True)
class Row:
    """A list of one item per field, in this order."""

    fields: Mapping[str, Schema]


@dataclass(frozen=True)
class Record:
    """An object with all of ``fields``, any of ``optional``, and nothing else."""

    fields: Mapping[str, Schema]
    optional: Mapping[str, Schema] = default(default_factory=dict)


@dataclass(frozen=True)
class MapOf:
    """An object with free keys that match ``key``."""

    key: Text
    of: Schema
    most: int = 1000


@dataclass(frozen=True)
class Tagged:
    """A list whose first item is a word that determines the other items: ``["copy", src, dst]``."""

    kinds: Mapping[str, Row]


@dataclass(frozen=True)
class Json:
    """Any JSON value; the reader has bounded its depth and its number of values. ``table``: it must be an object."""

    table: bool = False


Schema: TypeAlias = Int | Float | Bool | Text | Enum | Nullable | Either | ListOf | Row | Record | MapOf | Tagged | Json
