"""Types, and the parameters and results of signatures."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.dsl.syntax.expressions import Expr
from dslc.dsl.syntax.tree import Tree


@dataclass(frozen=True, slots=True)
class TensorTypeExpr(Tree):
    """``[B, 3*H]`` (a float tensor: ``dtype`` is None) or ``i32[B]``."""

    dtype: str | None
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ScalarTypeExpr(Tree):
    """``int``, ``float``, ``bool`` or ``str``: a compile-time argument."""

    name: str


TypeExpr = TensorTypeExpr | ScalarTypeExpr


@dataclass(frozen=True, slots=True)
class Param(Tree):
    """``name: type = default`` in a signature."""

    name: str
    type: TypeExpr
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Result(Tree):
    """One result; ``name`` is None if it has no name."""

    name: str | None
    type: TensorTypeExpr
