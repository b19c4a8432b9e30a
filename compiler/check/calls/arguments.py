"""Converts the arguments of a call from values of the language to the parameters of a function or a block."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, Static, kind_of, require_finite
from dslc.compiler.ir.function import Function, Init
from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.sizes import Poly
from dslc.compiler.ops.constants.known import number_or
from dslc.compiler.ops.random.init import complete, initialiser
from dslc.dsl import syntax
from dslc.dsl.other_names import argument_hint, nearest_hint
from dslc.dsl.span import Span

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: annotations of arguments that become tensors, which may hold `inf` and `nan`
_UNLIMITED: Final = ("Operand", "Numbers")


@dataclass(frozen=True, slots=True)
class Given:
    """An argument of a call: its name or None, its value, its place."""

    name: str | None
    value: Static
    span: Span
    expr: syntax.Expr

    @property
    def written(self) -> str:
        """The source text of the value."""
        text = self.span.text
        return text if self.name is None else text.partition("=")[2].strip()


@dataclass(frozen=True, slots=True)
class DimName(Exception):
    """A dim's name used as an axis (only for parameters that take axes)."""

    name: str


_AXES = ("Axis", "Axes")


def take_arguments(args: tuple[syntax.Arg, ...], frame: Frame, expander: Expander) -> list[Given]:
    """Evaluates the arguments in order."""
    given = []
    for arg in args:
        given.append(Given(arg.name, expander.evaluate(arg.value, frame), arg.span, arg.value))
    return given


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
        known = _makes(function) and len(given) > 1 and all(_is_int(g.value) for g in given[:2])
        rest = ", ".join(each.span.text for each in given[known:])
        here = f"{function.name}(x, {rest})"
        shown = here if len(here) <= 60 and "\n" not in here else f"{function.name}(x, ...)"
        return f"the tensor comes first: write `{shown}`, or pipe it: `x |> {function.name}(...)`"
    return _known_size(function, given) or _listed(function, given) or usage(function)


def _listed(function: Function, given: list[Given]) -> str | None:
    """The help if the numbers of a list are given one by one: `reshape(x, B, 4)`, `transpose(x, 1, 2)`."""
    place = next((i for i, p in enumerate(function.parameters) if _kind(p) in ("Shape", "Ints")), None)
    rest = [] if place is None else [g for g in given[place:] if g.name is None]
    if len(rest) < 2 or not all(_is_int(g.value) or isinstance(g.value, Poly) for g in rest):
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
    if not _makes(function) or len(given) < 3 or not all(_is_int(g.value) for g in given[1:3]):
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


def convert(annotation: str, arg: Given, given: list[Given], frame: Frame, callee: str) -> Any:
    """One argument, converted as its annotation requires (ir/function.py lists the annotations)."""
    want = annotation.replace(" | None", "")
    value = number_or(arg.value) if want in ("float", "Number", "Numbers", "Floats") else arg.value
    match want:
        case "Value" if isinstance(value, Value):
            return value
        case "Operand" if isinstance(value, (Value, int, float, Poly)):
            return value
        case "float" if _is_int(value) or isinstance(value, float):
            return float(value)  # type: ignore[arg-type]
        case "int" if _is_int(value):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "str" if isinstance(value, str):
            return value
        case "Size" if _is_int(value) or isinstance(value, Poly):
            return value
        case "Number" if _is_int(value) or isinstance(value, (float, Poly)):
            return value
        case "Numbers" if isinstance(value, (int, float, Poly, list, tuple)):
            return value
        case "Shape" | "Ints" | "Floats" | "list[Value]" | "tuple[Value, ...]":
            return _sequence(want, replace(arg, value=value), callee)
        case "Axis" | "Axes":
            return _axes(want, arg, given, frame, callee)
        case "Init" if as_init(value) is not None:
            return as_init(value)
    wanted = {
        "Value": "a tensor", "Operand": "a tensor or number", "float": "a number", "int": "an int", "bool": "a bool",
        "str": "a string", "Size": "a size", "Init": "an initialiser", "Number": "a number",
        "Numbers": "a number or list of numbers",
    }.get(want, want)  # fmt: skip
    code = "E0205" if isinstance(value, (Value, Poly)) and want in ("int", "float", "bool", "Number") else "E0202"
    name = f"`{arg.name}` of `{callee}`" if arg.name else f"this argument of `{callee}`"
    title = f"{name} must be {wanted}, this is {kind_of(value)}"
    help = of_each_step(value) or (NO_SIZE if want in ("Size", "int") and is_scalar(value) else None)
    raise Problem(code, title, arg.span, f"not {wanted}", help=help)


NO_SIZE: Final = "a size is computed from ints: `T // 2`, or `int(...)` of a number that is known"


def is_scalar(value: Static) -> bool:
    """True for a float tensor of rank 0, such as `T * 0.5` of a dim."""
    return isinstance(value, Value) and not value.type.shape and value.type.dtype.is_float


def of_each_step(value: Static) -> str | None:
    """The help if a float argument of a train section, a number of each step, stands where the build needs a number."""
    if not isinstance(value, Value) or not isinstance(value.producer, Input) or value.producer.kind is not Kind.SCALAR:
        return None
    name = value.producer.name
    return f"`{name}` can change at each step; here the build needs the number: write `const {name} = ...`"


def as_init(value: Static) -> Init | None:
    """An initialiser from a named one, a number, or a function such as `zeros` with an initialiser's name."""
    value = number_or(value)
    if isinstance(value, Init):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return Init("constant", (float(value),))
    if isinstance(value, Function) and complete(value.name):
        return initialiser(value.name)
    return None


def _is_int(value: Static) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sequence(want: str, arg: Given, callee: str) -> Any:
    value = arg.value
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    inner = {"Shape": "Size", "Ints": "int", "Floats": "float"}.get(want, "Value")
    single = want in ("Ints", "Floats", "Shape") or isinstance(value, (list, tuple))
    allowed = {"Size": (int, Poly), "int": (int,), "float": (int, float), "Value": (Value,)}[inner]
    if not single or not all(isinstance(v, allowed) and not isinstance(v, bool) for v in items):
        what = {
            "Size": "a size or a list of sizes",
            "int": "an int or a list of ints",
            "float": "a number or a list of numbers",
        }
        wanted = what.get(inner, "a list of tensors")
        help = f"write `{callee}([x, y])`" if inner == "Value" and isinstance(value, Value) else None
        title = f"`{callee}` wants {wanted}, this is {kind_of(value)}"
        raise Problem("E0202", title, arg.span, f"not {wanted}", help=help)
    if inner == "Value":
        return items
    return tuple(float(v) for v in items) if inner == "float" else tuple(items)  # type: ignore[arg-type]


def _axes(want: str, arg: Given, given: list[Given], frame: Frame, callee: str) -> int | tuple[int, ...]:
    x = given[0].value
    if isinstance(x, (list, tuple)) and x and isinstance(x[0], Value):
        rank = x[0].type.rank + (callee == "stack")
    elif isinstance(x, Value):
        rank = x.type.rank
    else:
        raise Problem("E0202", f"`{callee}` counts axes on a tensor, this is {kind_of(x)}", given[0].span, "no tensor")
    exprs = arg.expr.items if isinstance(arg.expr, (syntax.List, syntax.Tuple)) else (arg.expr,)
    values = arg.value if isinstance(arg.value, (list, tuple)) else [arg.value]
    found: list[int] = []
    for i, value in enumerate(values):
        expr = exprs[i] if len(exprs) == len(values) else arg.expr
        axis = named_axis(expr, given[0], frame)
        if axis is None:
            if not isinstance(value, int) or isinstance(value, bool):
                raise Problem(
                    "E0202",
                    "an axis is an int, or a dim that occurs once in the signature of that tensor; this is "
                    f"{kind_of(value)}",
                    expr.span,
                    "not an axis",
                )
            if not -rank <= value < rank:
                raise Problem("E0306", f"axis {value} of a tensor with {rank} axes", expr.span, "does not exist")
            axis = value % rank
        found.append(axis)
    if want == "Axis":
        if len(found) != 1:
            raise Problem("E0202", f"`{callee}` takes one axis", arg.span, f"these are {len(found)}")
        return found[0]
    if len(set(found)) != len(found):
        raise Problem("E0209", "the same axis is given twice", arg.span, "twice")
    return tuple(sorted(found))


def named_axis(expr: syntax.Expr, first: Given, frame: Frame) -> int | None:
    """The axis that a dim's name denotes, if the tensor is an argument whose signature has the dim exactly once."""
    if not (isinstance(expr, syntax.Name) and isinstance(first.expr, syntax.Name)):
        return None
    declared = frame.params.get(first.expr.name)
    if declared is None or not isinstance(declared.type, syntax.TensorTypeExpr):
        return None
    sizes = declared.type.shape
    places = [i for i, s in enumerate(sizes) if isinstance(s, syntax.Name) and s.name == expr.name]
    if len(places) != 1:
        return None
    before = not any(isinstance(size, syntax.Rest) for size in sizes[: places[0]])
    assert isinstance(first.value, Value)
    return places[0] if before else places[0] + first.value.type.rank - len(sizes)
