"""Reads the attributes of nodes with a check of their types.

A wrong type here is a mistake of the compiler, not of the user: an assertion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslc.compiler.ir.graph import Attrs
from dslc.compiler.ir.sizes import Poly, Size
from dslc.compiler.ir.types import DType


def int_attr(attrs: Attrs, name: str) -> int:
    value = attrs[name]
    assert isinstance(value, int) and not isinstance(value, bool), f"{name} must be an int, got {value!r}"
    return value


def optional_int_attr(attrs: Attrs, name: str) -> int | None:
    """An int; None if it is missing."""
    return int_attr(attrs, name) if name in attrs else None


# Values that are not finite are stored as strings, because attributes are JSON, which cannot represent them.
NOT_FINITE = ("inf", "-inf", "nan")


def float_attr(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    assert isinstance(value, int | float) and not isinstance(value, bool), f"{name} must be a number, got {value!r}"
    return float(value)


def number_attr(attrs: Attrs, name: str) -> float:
    """A float, which may be stored as ``"inf"``, ``"-inf"`` or ``"nan"`` because JSON has no such numbers."""
    value = attrs[name]
    return float(value) if isinstance(value, str) and value in NOT_FINITE else float_attr(attrs, name)


def bool_attr(attrs: Attrs, name: str) -> bool:
    value = attrs[name]
    assert isinstance(value, bool), f"{name} must be a bool, got {value!r}"
    return value


def flag_attr(attrs: Attrs, name: str) -> bool:
    """A bool; false if it is missing."""
    return name in attrs and bool_attr(attrs, name)


def str_attr(attrs: Attrs, name: str) -> str:
    value = attrs[name]
    assert isinstance(value, str), f"{name} must be a str, got {value!r}"
    return value


def dtype_attr(attrs: Attrs, name: str = "dtype") -> DType:
    value = attrs[name]
    assert isinstance(value, DType), f"{name} must be a DType, got {value!r}"
    return value


def shape_attr(attrs: Attrs, name: str = "shape") -> tuple[Size, ...]:
    """A tuple of sizes, which may contain dims."""
    value = attrs[name]
    assert isinstance(value, tuple), f"{name} must be a tuple, got {value!r}"
    for size in value:
        assert type(size) is int or isinstance(size, Poly), f"{name} holds {size!r}"
    return value  # type: ignore[return-value]


def ints_attr(attrs: Attrs, name: str) -> tuple[int, ...]:
    """A tuple of ints."""
    sizes: list[int] = []
    for size in shape_attr(attrs, name):
        assert isinstance(size, int), f"{name} holds {size!r}"
        sizes.append(size)
    return tuple(sizes)


def int_tuple(attrs: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A tuple of ints from an attribute as ``meaning`` sees it: a list or a tuple."""
    return tuple(int(i) for i in attrs[name])
