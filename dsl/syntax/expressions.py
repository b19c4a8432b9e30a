"""Expressions, with the arguments and attributes that stand in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslc.dsl.span import Span
from dslc.dsl.syntax.tree import Tree


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
class Attr(Tree):
    """``@name(args)`` before a block, statement, or stage."""

    name: str
    args: tuple[Arg, ...] = ()


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
