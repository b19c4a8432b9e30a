"""The tree of a source file: frozen dataclasses, each with its span.

Spans are ignored in equality, so that ``parse(format(tree)) == tree`` can be tested. Sequences are tuples. The tree
represents the text, not its meaning: the checker handles names, types and shapes. A new kind of expression, statement
or declaration is a class in the file of its family.
"""

from dslc.dsl.syntax.expressions import (
    Arg,
    Attr,
    Binary,
    Bool,
    Call,
    Choose,
    Comprehension,
    Expr,
    Field,
    Index,
    List,
    Name,
    Number,
    Pipe,
    Range,
    Rest,
    Slice,
    String,
    Tuple,
    Unary,
)
from dslc.dsl.syntax.file import PACKAGE, Block, Const, DimDecl, Entry, File, Item, Section, Use
from dslc.dsl.syntax.statements import (
    Assign,
    BufferStmt,
    Check,
    For,
    If,
    LayerStmt,
    ParamStmt,
    Return,
    Scan,
    StateStmt,
    Stmt,
    Yield,
)
from dslc.dsl.syntax.tree import Tree
from dslc.dsl.syntax.types import Param, Result, ScalarTypeExpr, TensorTypeExpr, TypeExpr

__all__ = [
    "PACKAGE", "Arg", "Assign", "Attr", "Binary", "Block", "Bool", "BufferStmt", "Call", "Check", "Choose",
    "Comprehension", "Const", "DimDecl", "Entry", "Expr", "Field", "File", "For", "If", "Index", "Item",
    "LayerStmt", "List", "Name", "Number", "Param", "ParamStmt", "Pipe", "Range", "Rest", "Result", "Return",
    "ScalarTypeExpr", "Scan", "Section", "Slice", "StateStmt", "Stmt", "String", "TensorTypeExpr", "Tree", "Tuple",
    "TypeExpr", "Unary", "Use", "Yield",
]  # fmt: skip
