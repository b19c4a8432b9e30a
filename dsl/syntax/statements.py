"""Statements of a body."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.dsl.syntax.expressions import Attr, Expr
from dslc.dsl.syntax.tree import Tree
from dslc.dsl.syntax.types import TensorTypeExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class Stmt(Tree):
    """A statement of a body; attributes and the doc comment (`## text`, lines joined by newlines) precede it."""

    attrs: tuple[Attr, ...] = ()
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """``a, b[i] = value``; each target is a Name or an Index."""

    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class LayerStmt(Stmt):
    """``layer name = call``"""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class ParamStmt(Stmt):
    """``param name: type = init``"""

    name: str
    type: TensorTypeExpr
    init: Expr | None


@dataclass(frozen=True, slots=True)
class StateStmt(Stmt):
    """``state name: type = init``"""

    name: str
    type: TensorTypeExpr
    init: Expr


@dataclass(frozen=True, slots=True)
class BufferStmt(Stmt):
    """``buffer name: type = init``"""

    name: str
    type: TensorTypeExpr
    init: Expr


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """``for i in values as label { body }``; several ``names`` unpack tuples."""

    names: tuple[str, ...]
    values: Expr
    label: str | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Scan(Stmt):
    """``scan names in values along axis reverse carry names into results along placed { body }``"""

    names: tuple[str, ...]
    values: tuple[Expr, ...]
    along: Expr
    reverse: bool
    carry: tuple[str, ...]
    into: tuple[str, ...]
    placed: Expr | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """``if condition { then } else { other }``; ``else if`` is one If in ``other``."""

    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Return(Stmt):
    """``return value``; several values are a Tuple."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Yield(Stmt):
    value: Expr


@dataclass(frozen=True, slots=True)
class Check(Stmt):
    """``check condition, "message"``"""

    condition: Expr
    message: str | None = None
