"""Binds the arguments of a call to the parameters of a function."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check.calls.convert import convert, is_int
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, require_finite
from dslc.compiler.ir.function import Function
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly
from dslc.dsl.other_names import argument_hint, nearest_hint
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: annotations of arguments that become tensors, which may hold `inf` and `nan`
_UNLIMITED: Final = ("Operand", "Numbers")


@cache
def signature(function: Function) -> tuple[tuple[inspect.Parameter, ...], str | None]:
    """The parameters of a function, and the annotation of its ``**extra`` parameters."""
    fixed = tuple(p for p in function.parameters if p.kind is not inspect.Parameter.VAR_KEYWORD)
    extra = [p for p in function.parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    return fixed, str(extra[0].annotation) if extra else None


def bind_function(
    function: Function, given: list[Given], span: Span, frame: Frame, expander: Expander
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for ``build``; E0201 for missing or unexpected ones, E0202 for wrong types."""
    parameters, extra = signature(function)
    named: dict[str, Any] = {}
    order = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    variadic = [p for p in order if p.kind is inspect.Parameter.VAR_POSITIONAL]
    by_name = {p.name: p for p in parameters if p not in variadic}
    positional: list[Any] = []
    sizes: dict[str, Any] = {}  # of the `**extra` parameters, which may be called as the others are
    count = 0
    for arg in given:
        if arg.name is None:
            if count < len(order) and order[count] not in variadic:
                parameter = order[count]
            elif variadic:
                positional.append(convert(str(variadic[0].annotation), arg, given, frame, function.name))
                continue
            else:
                help = _known_size(function, given) or _listed(function, given)
                raise _too_many(function.name, [p.name for p in order], arg, help)
            count += 1
        elif arg.name in by_name and not (extra is not None and arg.name in named):
            parameter = by_name[arg.name]
        elif extra is not None:
            if arg.name in sizes:
                raise Problem("E0201", f"`{function.name}` gets `{arg.name}` twice", arg.span, "again here")
            sizes[arg.name] = convert(extra, arg, given, frame, function.name)
            continue
        else:
            raise unknown_argument(function.name, arg, list(by_name))
        if parameter.name in named:
            raise Problem("E0201", f"`{function.name}` gets `{parameter.name}` twice", arg.span, "again here")
        if parameter.annotation not in _UNLIMITED and parameter.name not in function.not_finite:
            require_finite(arg.value, f"`{parameter.name}` of `{function.name}`", arg.span)
        try:
            named[parameter.name] = convert(str(parameter.annotation), arg, given, frame, function.name)
        except Problem as wrong:
            wrong.help = wrong.help or _meant(function, parameter, arg, given)
            raise
    missing = [n for n, p in by_name.items() if p.default is inspect.Parameter.empty and n not in named]
    if missing:
        listed = " and ".join(f"`{m}`" for m in missing)
        raise Problem("E0201", f"`{function.name}` misses {listed}", span, help=usage(function))
    if extra is not None:
        return [named[n] for n in by_name], sizes
    if positional:
        return [*(named.pop(p.name) for p in order[:count]), *positional], named
    return [], named


def usage(function: Function) -> str:
    """``conv(x, out, k, stride=1, ...)``"""
    parts = []
    for p in function.parameters:
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            parts.append("NAME=SIZE, ...")
        elif p.default is inspect.Parameter.empty:
            parts.append(p.name)
        else:
            parts.append(f"{p.name}={_shown(p.default)}")
    return f"{function.name}({', '.join(parts)})"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, tuple) and len(default) == 1:
        return str(default[0])
    return "none" if default is None else f'"{default}"' if isinstance(default, str) else str(default)


def unknown_argument(callee: str, arg: Given, known: list[str]) -> Problem:
    name = arg.name or ""
    help = (
        argument_hint(name, known, arg.written, arg.value)
        or nearest_hint(name, known)
        or f"it takes {', '.join(known)}"
    )
    return Problem("E0201", f"`{callee}` has no argument `{arg.name}`", arg.span, "not expected", help=help)


def _too_many(callee: str, known: list[str], arg: Given, help: str | None) -> Problem:
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    return Problem("E0201", f"`{callee}` gets too many arguments", arg.span, "one too many", help=help or takes)


def _meant(function: Function, parameter: inspect.Parameter, arg: Given, given: list[Given]) -> str:
    """The help for an argument of a wrong kind: what was probably meant, else how the function is called."""
    takes_tensor = bool(function.parameters) and str(function.parameters[0].annotation) in ("Value", "Operand")
    if takes_tensor and arg is given[0] and not isinstance(arg.value, (list, tuple)):
        known = _makes(function) and len(given) > 1 and all(is_int(g.value) for g in given[:2])
        rest = ", ".join(each.span.text for each in given[known:])
        here = f"{function.name}(x, {rest})"
        shown = here if len(here) <= 60 and "\n" not in here else f"{function.name}(x, ...)"
        return f"the tensor comes first: write `{shown}`, or pipe it: `x |> {function.name}(...)`"
    return _known_size(function, given) or _listed(function, given) or usage(function)


def _listed(function: Function, given: list[Given]) -> str | None:
    """The help if the numbers of a list are given one by one: `reshape(x, B, 4)`, `transpose(x, 1, 2)`."""
    place = next((i for i, p in enumerate(function.parameters) if _kind(p) in ("Shape", "Ints")), None)
    rest = [] if place is None else [g for g in given[place:] if g.name is None]
    if len(rest) < 2 or not all(is_int(g.value) or isinstance(g.value, Poly) for g in rest):
        return None
    texts, tensor = [str(g.span.text) for g in rest], given[0].value if place else None
    if function.name == "transpose" and isinstance(tensor, Value) and len(rest) == 2:
        order = list(range(tensor.type.rank))
        axes = [int(g.value) for g in rest if isinstance(g.value, int) and -len(order) <= g.value < len(order)]
        if len(axes) < 2:
            return None
        order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
        texts = [str(axis) for axis in order]
    before = [_written(g) for g in given[:place]]
    return f"write `{function.name}({', '.join([*before, '[' + ', '.join(texts) + ']'])})`"


def _known_size(function: Function, given: list[Given]) -> str | None:
    """The help if the size of the input is given to a layer, which knows it: `linear(x, 12, 4)`."""
    x = given[0].value
    if not _makes(function) or len(given) < 3 or not all(is_int(g.value) for g in given[1:3]):
        return None
    if not isinstance(x, Value) or given[1].value not in x.type.shape:
        return None
    rest = ", ".join([_written(given[0]), *(g.span.text for g in given[2:])])
    return f"leave out `{given[1].span.text}`, the size of the input, which is known: write `{function.name}({rest})`"


def _makes(function: Function) -> bool:
    """True for a layer whose first number is the size of its result."""
    return [p.name for p in function.parameters][1:2] == ["out"]


def _written(arg: Given) -> str:
    text = arg.span.text
    return text if len(text) <= 40 and "\n" not in text else "x"


def _kind(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation).replace(" | None", "")
