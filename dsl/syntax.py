"""The tree of a source file: frozen dataclasses, each with its span.

Spans are ignored in equality, so that ``parse(format(tree)) == tree`` can be tested. Sequences are tuples. The tree
represents the text, not its meaning: the checker handles names, types and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dslc.dsl.span import Span

#: What the path of a `use` begins with that names the ops of an installed package; the checker finds these.
PACKAGE: Final = "entry:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Any part of a source with a span."""

    span: Span = field(compare=False, repr=False)


# --- expressions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr(Tree):
    """An expression."""


@dataclass(frozen=True, slots=True)
class Name(Expr):
    name: str


@dataclass(frozen=True, slots=True)
class Number(Expr):
    """``value`` is an int or a float; ``unit`` as in ``20 GiB`` or ``2 epochs``."""

    value: int | float
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class String(Expr):
    value: str


@dataclass(frozen=True, slots=True)
class Bool(Expr):
    value: bool


@dataclass(frozen=True, slots=True)
class Tuple(Expr):
    """``(a, b)``; also the right side ``a, b`` of an assignment or return (then without parentheses)."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class List(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Expr):
    """``[item for i in values if condition]``; several ``names`` unpack tuples. ``joined``: the item is the list of a
    clause that follows, as in ``[item for i in a for j in b]``, and the result holds its elements."""

    item: Expr
    names: tuple[str, ...]
    values: Expr
    condition: Expr | None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Arg(Tree):
    """``value`` or ``name=value`` in a call."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """``function(args)``; ``label`` comes from ``as NAME`` after it."""

    function: Expr
    args: tuple[Arg, ...]
    label: str | None = None
    label_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pipe(Expr):
    """``value |> stage``. ``stage`` is a Call, or a Name or Field written without parentheses. The label of the stage
    is stored here if the stage is not a Call (``x |> relu as r``), else in the Call. ``attrs``: ``|> @lr(0.1)
    linear(3)``."""

    value: Expr
    stage: Expr
    label: str | None = None
    label_span: Span | None = field(default=None, compare=False, repr=False)
    attrs: tuple[Attr, ...] = ()


@dataclass(frozen=True, slots=True)
class Field(Expr):
    """``value.name``"""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Slice(Expr):
    """``low:high:step`` in an index; each part may be missing."""

    low: Expr | None
    high: Expr | None
    step: Expr | None = None


@dataclass(frozen=True, slots=True)
class Rest(Expr):
    """``...`` in an index: a `:` for each axis that the other items leave. In a shape: axes that its sizes leave."""


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """``value[items]``"""

    value: Expr
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """``op`` is ``-`` or ``not``."""

    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """``op`` is one of ``+ - * / // % @ ^ == != < <= > >= and or``; ``op_span`` is the operator's place."""

    op: str
    left: Expr
    right: Expr
    op_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Choose(Expr):
    """``then if condition else other``"""

    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Range(Expr):
    """``low..high``: low to high - 1 for a loop, low to high inclusive for a dim's bounds."""

    low: Expr
    high: Expr


# --- types --------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Attr(Tree):
    """``@name(args)`` before a block, statement, or stage."""

    name: str
    args: tuple[Arg, ...] = ()


# --- statements ---------------------------------------------------------------------------------------------


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
    """``scan names in values along axis reverse carry names into results { body }``"""

    names: tuple[str, ...]
    values: tuple[Expr, ...]
    along: Expr
    reverse: bool
    carry: tuple[str, ...]
    into: tuple[str, ...]
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


# --- a file -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Tree):
    """A declaration at the top level of a file."""

    attrs: tuple[Attr, ...] = ()
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Use(Item):
    """``use a.b (x, y)``, ``use "a/b.nn"`` or ``use "a/b.npy" (x)``; ``names`` empty means all."""

    path: str
    names: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """True for a file of numbers."""
        return self.path.endswith(".npy")

    @property
    def table_name(self) -> str:
        """The name of the tensor of a file of numbers: the written one, or that of the file, which may be no name."""
        return self.names[0] if self.names else self.path.rpartition("/")[2].removesuffix(".npy")


@dataclass(frozen=True, slots=True)
class Const(Item):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class DimDecl(Item):
    """``dim name in low..high = default``; ``dim T = 35`` is fixed."""

    name: str
    bounds: Range | None
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Block(Item):
    """``block`` or ``model``."""

    kind: str
    name: str
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Entry(Tree):
    """In a section: ``targets = value`` (one target, or a tuple of names), or a group ``name label { entries }``."""

    targets: tuple[str, ...]
    value: Expr | None = None
    entries: tuple[Entry, ...] | None = None
    doc: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Section(Item):
    """``precision { ... }``, ``budget { ... }``, ``mesh { ... }``, ``train Model(inputs) { ... }``."""

    kind: str
    target: str | None
    params: tuple[Param, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class File(Tree):
    """A source file of an edition; ``doc`` comes from the `##` lines above ``nn 1``."""

    edition: int
    items: tuple[Item, ...]
    doc: str | None = None
