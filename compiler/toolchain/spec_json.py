"""Descriptions of kernels as JSON data, for the transfer to another process.

A description consists of frozen dataclasses, enums, tuples, numbers, texts and None. Classes are identified by module
and name and must belong to this compiler. Only their fields are written, so decoding runs nothing but their
constructors.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any, Final

_HOME: Final = "dslc.compiler."


def encode(value: Any) -> Any:
    """The value as JSON data; TypeError for a value that descriptions must not contain."""
    if isinstance(value, Enum):
        return {"enum": _name(type(value)), "is": value.name}
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}  # JSON has no infinities
    if type(value) is tuple:
        return [encode(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"data": _name(type(value)), "is": [encode(getattr(value, f.name)) for f in fields(value)]}
    raise TypeError(f"a description cannot contain {type(value).__name__}")


def decode(data: Any) -> Any:
    """The inverse of ``encode``."""
    if isinstance(data, list):
        return tuple(decode(item) for item in data)
    if not isinstance(data, dict):
        return data
    if "float" in data:
        return float.fromhex(data["float"])
    if "enum" in data:
        found = _class(data["enum"])
        assert issubclass(found, Enum), f"{found} is not an enum"
        return found[data["is"]]
    found = _class(data["data"])
    assert is_dataclass(found), f"{found} is not a dataclass"
    return found(*[decode(item) for item in data["is"]])


def _name(found: type) -> str:
    assert found.__module__.startswith(_HOME), f"{found} is not one of the compiler's classes"
    return f"{found.__module__.removeprefix(_HOME)}:{found.__qualname__}"


def _class(name: str) -> type:
    module, _, attribute = name.partition(":")
    found = getattr(import_module(_HOME + module), attribute)
    assert isinstance(found, type), f"{name} is not a class"
    return found
