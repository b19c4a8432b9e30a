"""Binds the arguments of a call to the parameters of a function."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check.calls.convert import convert
from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.calls.meant import known_size, listed, meant, usage
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, require_finite
from dslc.compiler.ir.function import Function
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
    try:
        return _bound(function, given, span, frame, expander)
    except Problem as wrong:
        if wrong.code == "E0201" and function.elsewhere and not _names_required(function, given):
            wrong.help = function.elsewhere
        raise


def _names_required(function: Function, given: list[Given]) -> bool:
    """Whether a call names one of the required arguments."""
    named = {arg.name for arg in given}
    return any(p.name in named for p in function.parameters if p.default is inspect.Parameter.empty)


def _bound(
    function: Function, given: list[Given], span: Span, frame: Frame, expander: Expander
) -> tuple[list[Any], dict[str, Any]]:
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
                help = known_size(function, given) or listed(function, given)
                named_only = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
                raise _too_many(function.name, [p.name for p in order], named_only, arg, help)
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
            wrong.help = wrong.help or meant(function, parameter, arg, given)
            raise
    missing = [n for n, p in by_name.items() if p.default is inspect.Parameter.empty and n not in named]
    if missing:
        names = " and ".join(f"`{m}`" for m in missing)
        raise Problem("E0201", f"`{function.name}` misses {names}", span, help=usage(function))
    if extra is not None:
        return [named[n] for n in by_name], sizes
    if positional:
        return [*(named.pop(p.name) for p in order[:count]), *positional], named
    return [], named


def unknown_argument(callee: str, arg: Given, known: list[str]) -> Problem:
    name = arg.name or ""
    help = (
        argument_hint(name, known, arg.written, arg.value)
        or nearest_hint(name, known)
        or f"it takes {', '.join(known)}"
    )
    return Problem("E0201", f"`{callee}` has no argument `{arg.name}`", arg.span, "not expected", help=help)


def _too_many(callee: str, known: list[str], by_name: list[str], arg: Given, help: str | None) -> Problem:
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    takes += f", and by name {', '.join(by_name)}" if by_name else ""
    return Problem("E0201", f"`{callee}` gets too many arguments", arg.span, "one too many", help=help or takes)
