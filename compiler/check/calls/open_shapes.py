"""`...` in the signature of a block: the axes that the written sizes leave, the same for all arguments and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import TensorType
from dslc.dsl import syntax
from dslc.dsl.diagnostics import Label


def axes(sizes: Sequence[syntax.Expr], rank: int) -> Iterator[tuple[int, syntax.Expr]]:
    """Each declared size with its axis, of a tensor of ``rank`` axes; `...` is none."""
    at = rest_of(sizes)
    for place, expr in enumerate(sizes):
        if place != at:
            yield place if at is None or place < at else place + rank - len(sizes), expr


def rest_of(sizes: Sequence[syntax.Expr]) -> int | None:
    """The place of `...` in a shape."""
    return next((place for place, expr in enumerate(sizes) if isinstance(expr, syntax.Rest)), None)


def bind_rest(block: syntax.Block, param: syntax.Param, arg: Given, actual: TensorType, frame: Frame) -> None:
    """`...` of all arguments and results of a block are the same sizes, those of the first one. E0302."""
    assert isinstance(param.type, syntax.TensorTypeExpr)
    at = rest_of(param.type.shape)
    if at is None:
        return
    sizes = actual.shape[at : at + actual.rank - len(param.type.shape) + 1]
    if frame.rest is None:
        frame.rest = sizes
    elif frame.rest != sizes:
        known, found = (f"[{', '.join(map(str, each))}]" for each in (frame.rest, sizes))
        title = f"`...` of `{block.name}` is {known}, but {found} by `{param.name}`"
        label = Label(param.type.shape[at].span, "the same axes as in the first argument with `...`")
        raise Problem("E0302", title, arg.span, str(actual), also=(label,))


def places_of(sizes: Sequence[syntax.Expr], frame: Frame) -> tuple[syntax.Expr | Size, ...]:
    """The declared sizes of a result, with the known ones in the place of `...`. E0307 if no argument has it."""
    at = rest_of(sizes)
    if at is None:
        return tuple(sizes)
    if frame.rest is None:
        help = "write each size, or `...` in an argument too"
        raise Problem("E0307", "`...` of the result occurs in no argument", sizes[at].span, "not known", help=help)
    return (*sizes[:at], *frame.rest, *sizes[at + 1 :])
