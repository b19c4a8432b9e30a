"""Closed schemas as plain data: which JSON values are allowed, and where and why a value is not.

A schema is built from the few kinds of ``kinds.py``. ``checker`` turns it once into a function that takes a value and
raises ``Mismatch`` with the path (``interface.dims[0].low``) and the rule. Nothing is converted: an int is not a float,
and ``True`` is not an int.
"""

from dslc.base.schema.check import Check, checker
from dslc.base.schema.kinds import (
    INT_HIGH,
    INT_LOW,
    Bool,
    Either,
    Enum,
    Float,
    Int,
    Json,
    ListOf,
    MapOf,
    Mismatch,
    Nullable,
    Record,
    Row,
    Schema,
    Tagged,
    Text,
)

__all__ = [
    "INT_HIGH", "INT_LOW", "Bool", "Check", "Either", "Enum", "Float", "Int", "Json", "ListOf", "MapOf", "Mismatch",
    "Nullable", "Record", "Row", "Schema", "Tagged", "Text", "checker",
]  # fmt: skip
