"""The text of a description of a kernel, from which its symbol and its entries in the cache are named.

A class of descriptions declares what the text calls it and its fields. That stays when the class or a field gets
another name: symbols, and so artifacts, stay as they are. A new tag or name gives every such kernel another symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Final, TypeVar

Described = TypeVar("Described", bound=type)

#: How values of a type are written. A subclass is another type: it may have more fields.
_WRITERS: Final[dict[type, Callable[[Any], str]]] = dict.fromkeys((bool, int, float, str, NoneType), repr)
_DECLARED: Final[dict[tuple[str, tuple[str, ...]], type]] = {}


def canonical(description: Any) -> str:
    """Equal text, equal description; the same text in every process.

    For numbers, strings, None, tuples and instances of classes that are ``described``; TypeError for others.
    """
    kind = type(description)
    if kind is tuple:
        inside = ", ".join([canonical(each) for each in description])
        return f"({inside},)" if len(description) == 1 else f"({inside})"
    writer = _WRITERS.get(kind)
    if writer is None:
        raise TypeError(f"`{kind.__qualname__}` does not say how it is written: declare it with @described")
    return writer(description)


def described(tag: str, names: str) -> Callable[[Described], Described]:
    """Decorator of a dataclass or an enum: what its text calls it, and its fields or members in their order.

    It stands above ``@dataclass``. Two classes may have the same tag if they differ in names.
    """

    def declare(cls: Described) -> Described:
        assert is_dataclass(cls) or issubclass(cls, Enum), f"{cls} is neither a dataclass nor an enum"
        listed = tuple(names.split())
        own = [m.name for m in cls] if issubclass(cls, Enum) else [f.name for f in fields(cls)]
        assert len(listed) == len(own) == len(set(listed)), f"{cls}: {listed} do not name each of {own}"
        other = _DECLARED.setdefault((tag, listed), cls)
        assert other is cls, f"{cls} would be written as {other} is"
        _WRITERS[cls] = _members(tag, listed, cls) if issubclass(cls, Enum) else _fields(tag, listed, own)
        return cls

    return declare


def _members(tag: str, names: tuple[str, ...], cls: type[Enum]) -> Callable[[Enum], str]:
    texts = {member: f"<{tag}.{name}: {canonical(member.value)}>" for name, member in zip(names, cls, strict=True)}
    return texts.__getitem__


def _fields(tag: str, names: tuple[str, ...], own: list[str]) -> Callable[[Any], str]:
    pairs = tuple(zip(names, own, strict=True))

    def write(value: Any) -> str:
        return f"{tag}({', '.join([f'{name}={canonical(getattr(value, field))}' for name, field in pairs])})"

    return write
