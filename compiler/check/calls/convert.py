"""Converts one argument from a value of the language to what a parameter's annotation requires."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from dslc.compiler.check.calls.given import Given
from dslc.compiler.check.conversions import with_cast
from dslc.compiler.check.frame import Frame
from dslc.compiler.check.values import Problem, Static, kind_of
from dslc.compiler.ir.function import Function, Init
from dslc.compiler.ir.graph import Input, Kind, Value
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.sizes import Poly, to_fix
from dslc.compiler.ops.constants.known import number_or
from dslc.compiler.ops.random.init import complete, from_tensor, initialiser
from dslc.dsl import syntax
from dslc.dsl.span import Span

NO_SIZE: Final = "a size is computed from ints: `T // 2`, or `int(...)` of a number that is known"


def convert(annotation: str, arg: Given, given: list[Given], frame: Frame, callee: str) -> Any:
    """One argument, converted as its annotation requires (ir/function.py lists the annotations)."""
    want = annotation.replace(" | None", "")
    value = number_or(arg.value) if want in ("float", "Number", "Numbers", "Floats") else arg.value
    match want:
        case "Value" if isinstance(value, Value):
            return value
        case "Operand" if isinstance(value, (Value, int, float, Poly)):
            return value
        case "float" if is_int(value) or isinstance(value, float):
            return float(value)  # type: ignore[arg-type]
        case "int" if is_int(value):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "str" if isinstance(value, str):
            return value
        case "Size" if is_int(value) or isinstance(value, Poly):
            return value
        case "Number" if is_int(value) or isinstance(value, (float, Poly)):
            return value
        case "Numbers" if isinstance(value, (int, float, Poly, list, tuple)):
            return value
        case "Shape" | "Ints" | "Floats" | "list[Value]" | "tuple[Value, ...]":
            return _sequence(want, replace(arg, value=value), callee)
        case "Axis" | "Axes":
            return _axes(want, arg, given, frame, callee)
        case "Init" if (init := init_of(value, arg.expr, arg.span)) is not None:
            return init
    wanted = {
        "Value": "a tensor", "Operand": "a tensor or number", "float": "a number", "int": "an int", "bool": "a bool",
        "str": "a string", "Size": "a size", "Init": "an initialiser", "Number": "a number",
        "Numbers": "a number or list of numbers",
    }.get(want, want)  # fmt: skip
    code = "E0205" if isinstance(value, (Value, Poly)) and want in ("int", "float", "bool", "Number") else "E0202"
    name = f"`{arg.name}` of `{callee}`" if arg.name else f"this argument of `{callee}`"
    title = f"{name} must be {wanted}, this is {kind_of(value)}"
    help = of_each_step(value)
    if help is None and want in ("Size", "int") and (is_scalar(value) or isinstance(value, float)):
        help = NO_SIZE
    elif want == "int" and isinstance(value, Poly):
        help = to_fix(value)
    raise Problem(code, title, arg.span, f"not {wanted}", help=help)


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


def init_of(value: Static, expr: syntax.Expr, span: Span) -> Init | None:
    """The same, also from a tensor of constants; E0202 and E0307 for another tensor. ``expr``: its text."""
    init = as_init(value)
    if init is None and isinstance(value, Value):
        try:
            return from_tensor(value)
        except Mismatch as wrong:
            help = with_cast(wrong.help, [(expr, value)])
            raise Problem(wrong.code, wrong.why, span, str(value.type), help=help) from None
    return init


def is_int(value: Static) -> bool:
    """True for an int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _sequence(want: str, arg: Given, callee: str) -> Any:
    value = arg.value
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    inner = {"Shape": "Size", "Ints": "int", "Floats": "float"}.get(want, "Value")
    single = want in ("Ints", "Floats", "Shape") or isinstance(value, (list, tuple))
    allowed = {"Size": (int, Poly), "int": (int,), "float": (int, float), "Value": (Value,)}[inner]
    wrong = [i for i, v in enumerate(items) if not isinstance(v, allowed) or isinstance(v, bool)]
    if wrong or not single:
        what = {
            "Size": "a size or a list of sizes",
            "int": "an int or a list of ints",
            "float": "a number or a list of numbers",
        }
        wanted = what.get(inner, "a list of tensors")
        help = f"write `{callee}([x, y])`" if inner == "Value" and isinstance(value, Value) else None
        if inner == "int" and isinstance(open_size := items[wrong[0]], Poly):
            help = to_fix(open_size)
        shown, span, place = kind_of(value), arg.span, wanted
        if wrong and isinstance(value, (list, tuple)):
            shown, place = f"{kind_of(items[wrong[0]])} in a list", wanted.partition(" or ")[0]
            if isinstance(arg.expr, (syntax.List, syntax.Tuple)) and len(arg.expr.items) == len(items):
                span = arg.expr.items[wrong[0]].span
        raise Problem("E0202", f"`{callee}` wants {wanted}, this is {shown}", span, f"not {place}", help=help)
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
