"""Scalar trees of pointwise ops as C++ expressions, in f32 and booleans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dslc.compiler.codegen.cuda.kernel_spec import Unfit
from dslc.compiler.ir.scalar import Expr

_OPERATORS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&&", "or": "||",
}  # fmt: skip
_CALLS: Final = {
    "min": "lesser", "max": "greater", "abs": "fabsf", "round": "rintf", "sign": "sign_of",
    **{name: f"{name}f" for name in ("exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tanh", "erf", "floor")},
    **{name: f"{name}f" for name in ("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2")},
    **{name: f"{name}f" for name in ("log2", "log10", "erfc", "atan2", "pow")},
}  # fmt: skip


def formula(expr: Expr, names: Sequence[str]) -> str:
    """The text of a tree whose arguments have these names. Raises Unfit for a function of integers."""
    name = expr.function
    if name == "arg":
        return names[expr.index]
    if name == "const":
        return literal(expr.value)
    args = [formula(each, names) for each in expr.args]
    if name in _OPERATORS:
        return f"({args[0]} {_OPERATORS[name]} {args[1]})"
    if name in _CALLS:
        return f"{_CALLS[name]}({', '.join(args)})"
    match name:
        case "neg":
            return f"(-{args[0]})"
        case "not":
            return f"(!{args[0]})"
        case "select":
            return f"({args[0]} ? {args[1]} : {args[2]})"
    raise Unfit(f"a resident kernel has no `{name}`")


def literal(value: float | int | bool) -> str:
    """A boolean, or a number as f32."""
    if isinstance(value, bool):
        return str(value).lower()
    if math.isnan(value):
        return "__uint_as_float(0x7fc00000)"
    if math.isinf(value):
        return "__uint_as_float(0x7f800000)" if value > 0 else "__uint_as_float(0xff800000)"
    return f"{float(value).hex()}f"
