"""The model's parameters in its train section: ``fc1.weight`` by its name, ``parameters("*.weight")`` by a pattern."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.selection import selected
from dslc.compiler.check.values import Problem, Static, kind_of
from dslc.compiler.ir.function import FUNCTIONS
from dslc.compiler.ir.graph import Kind, Value
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.span import Span
from dslc.runtime.weights.names.pattern import BadRule

if TYPE_CHECKING:
    from dslc.compiler.check.calls.given import Given
    from dslc.compiler.check.tensors import Tensors

#: The function that gives the parameters whose names a pattern selects, as a list.
PARAMETERS: Final = "parameters"


def named(expr: syntax.Name, frame: Frame, tensors: Tensors) -> Value | None:
    """The parameter with this name, if the frame is that of a train section and has no other meaning for it. E0102 for
    the name of a layer."""
    name = expr.name
    if not frame.sees_parameters or name in frame.locals:
        return None
    below = _below(name, _parameters(tensors))
    if below and name not in frame.scope.values and name not in FUNCTIONS:
        help = f'its parameters are, such as `{below[0]}` or `parameters("{name}")`'
        raise Problem("E0102", f"the layer `{name}` is not visible in the train section", expr.span, help=help)
    return _parameters(tensors).get(name)


def dotted(expr: syntax.Field, frame: Frame, tensors: Tensors) -> Value | None:
    """The parameter that ``fc1.weight`` names; None if the expression is no such name. E0102 for a layer that has no
    such parameter."""
    name = _path(expr)
    if name is None or not frame.sees_parameters or name.partition(".")[0] in frame.locals:
        return None
    known = _parameters(tensors)
    if name in known or name.rpartition(".")[0] in known:  # a field of a parameter, such as its shape
        return known.get(name)
    layer = name.partition(".")[0]
    below = _below(layer, known)
    if not below:
        return None
    near = did_you_mean(name, below)
    help = f"did you mean `{near}`?" if near else f"`{layer}` has {', '.join(f'`{each}`' for each in below[:8])}"
    raise Problem("E0102", f"the model has no parameter `{name}`", expr.span, "not there", help=help)


def of_patterns(given: list[Given], span: Span, tensors: Tensors) -> Static:
    """The parameters that the patterns select, each once, in forward order. E0201 without a pattern, E0202 for another
    argument, E0209 for a pattern that selects none."""
    if not given:
        help = 'parameters("*.weight")'
        raise Problem("E0201", f"`{PARAMETERS}` needs a pattern of names", span, "which ones?", help=help)
    known = _parameters(tensors)
    found: set[str] = set()
    for each in given:
        if each.name is not None or not isinstance(each.value, str):
            title = f"`{PARAMETERS}` takes texts, this is {kind_of(each.value)}"
            raise Problem("E0202", title, each.span, "no pattern", help='parameters("*.weight")')
        try:
            found.update(selected(each.value, known))
        except BadRule as bad:
            raise Problem("E0209", str(bad), each.span, "selects nothing", help=bad.help) from bad
    return [value for name, value in known.items() if name in found]


def _below(layer: str, known: Iterable[str]) -> list[str]:
    return [name for name in known if name.startswith(layer + ".")]


def _parameters(tensors: Tensors) -> dict[str, Value]:
    """The parameters by name, in forward order."""
    return {n: info.input.value for n, info in tensors.stored.items() if info.input.kind is Kind.PARAM}


def _path(expr: syntax.Expr) -> str | None:
    """``a.b.c``; None for another expression."""
    parts = []
    while isinstance(expr, syntax.Field):
        parts.append(expr.name)
        expr = expr.value
    return ".".join((expr.name, *reversed(parts))) if isinstance(expr, syntax.Name) else None
