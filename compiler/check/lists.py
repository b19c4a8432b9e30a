"""Elements and parts of lists at compile time, as in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dslc.compiler.check.values import Poison, Poisoned, Problem, Static, kind_of
from dslc.compiler.ir.graph import Value
from dslc.dsl import syntax


def at(values: Sequence[Static], expr: syntax.Index, evaluate: Callable[[syntax.Expr], Static]) -> Static:
    """``values[i]``, or the list ``values[low:high:step]``. E0202 for several indices and other kinds, E0209 for an
    index or a bound outside of the list."""
    if len(expr.items) != 1:
        title, help = "a list takes one index", None
        if isinstance(values, tuple) and all(isinstance(value, Value) for value in values):
            names = ", ".join("abcdefgh"[: len(values)])
            title = f"these are {len(values)} values, no tensor"
            help = f"give each of them a name, as `{names} = ...`, and index the one that is meant"
        raise Problem("E0202", title, expr.span, "several", help=help)
    [item] = expr.items
    if isinstance(item, syntax.Slice):
        low, high, step = (None if part is None else _int(part, evaluate) for part in (item.low, item.high, item.step))
        if step == 0:
            raise Problem(
                "E0209", "the step of a slice is 0", item.span, "not a step", help="`::2`, or `::-1` for all in reverse"
            )
        for bound, part in ((low, item.low), (high, item.high)):
            if bound is not None and part is not None and not -len(values) <= bound <= len(values):
                raise _outside(bound, len(values), part, "bound")
        return list(values[low:high:step])
    index = _int(item, evaluate)
    if not -len(values) <= index < len(values):
        raise _outside(index, len(values), item, "index")
    found = values[index]
    if isinstance(found, Poison):
        raise Poisoned
    return found


def _int(expr: syntax.Expr, evaluate: Callable[[syntax.Expr], Static]) -> int:
    value = evaluate(expr)
    if isinstance(value, Poison):
        raise Poisoned
    if type(value) is not int:
        raise Problem("E0202", f"an index is an int, this is {kind_of(value)}", expr.span, "not an int")
    return value


def _outside(given: int, count: int, expr: syntax.Expr, what: str) -> Problem:
    help = f"it has the indices 0 to {count - 1}; negative ones count from the end" if count else "it is empty"
    return Problem("E0209", f"{what} {given} of a list of {count}", expr.span, "out of range", help=help)
