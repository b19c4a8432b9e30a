"""The definition of a pointwise op as a small expression tree, emitted as CPU IR, Numba-CUDA and CUDA C++.

The tree can also be evaluated with numpy, so that a test can compare it with the op's numpy meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dslc.compiler.ir.described import described

# name -> number of arguments; comparisons and logic give a boolean
FUNCTIONS: Final[dict[str, int]] = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "pow": 2, "floordiv": 2, "mod": 2,
    "neg": 1, "abs": 1, "sign": 1, "exp": 1, "log": 1, "log1p": 1, "expm1": 1, "sqrt": 1,
    "sin": 1, "cos": 1, "tanh": 1, "erf": 1, "floor": 1, "round": 1,
    "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2, "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "exp2": 1, "log2": 1, "log10": 1, "erfc": 1,
    "bitand": 2, "bitor": 2, "bitxor": 2, "shl": 2, "shr": 2,
    "lt": 2, "le": 2, "gt": 2, "ge": 2, "eq": 2, "ne": 2, "and": 2, "or": 2, "not": 1,
    "select": 3,
}  # fmt: skip

#: Functions that need no mathematical library and are rounded once, so every kernel computes them with the same bits.
EXACT: Final = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "min", "max", "select"}
    | {"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"}
)

Operand: TypeAlias = "Expr | float | int | bool"


@described("Expr", "function args index value")
@dataclass(frozen=True, slots=True)
class Expr:
    """``function`` of FUNCTIONS applied to ``args``; or ``arg`` with its ``index``; or ``const`` with ``value``.

    Computes in f32 for f32 and narrower floats, in f64 for f64, and in the integer's own type for integers.
    """

    function: str
    args: tuple[Expr, ...] = ()
    index: int = 0
    value: float | int | bool = 0

    def __add__(self, other: Operand) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("div", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, other: Operand) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return call("ge", self, other)


def argument(index: int) -> Expr:
    """The op's input ``index``."""
    return Expr("arg", index=index)


def as_expr(x: Operand) -> Expr:
    return x if isinstance(x, Expr) else Expr("const", value=x)


def call(function: str, *args: Operand) -> Expr:
    """``function(*args)``, checked against FUNCTIONS."""
    assert FUNCTIONS[function] == len(args), f"{function} takes {FUNCTIONS[function]} arguments"
    return Expr(function, tuple(as_expr(a) for a in args))


def select(condition: Expr, then: Operand, other: Operand) -> Expr:
    return call("select", condition, then, other)


def is_exact(expr: Expr) -> bool:
    """Whether every kernel computes the tree with the same bits."""
    return expr.function in (*EXACT, "arg", "const") and all(map(is_exact, expr.args))


def evaluate(expr: Expr, args: Sequence[Any]) -> Any:
    """The tree's value on numpy arrays (already in the compute dtype)."""
    import numpy as np

    if expr.function == "arg":
        return args[expr.index]
    if expr.function == "const":
        floats = [a.dtype for a in args if np.issubdtype(a.dtype, np.floating)]
        if isinstance(expr.value, bool):
            return np.bool_(expr.value)
        return floats[0].type(expr.value) if floats else expr.value
    values = [evaluate(a, args) for a in expr.args]
    match expr.function:
        case "div":
            return values[0] / values[1]
        case "select":
            return np.where(*values)
        case "erf" | "erfc":
            from dslc.compiler.ir import special

            return getattr(special, expr.function)(values[0])
        case "round":
            return np.rint(values[0])
        case "min" | "max":
            from dslc.compiler.ir.special import larger, lesser

            return (larger if expr.function == "max" else lesser)(*map(np.asarray, values))
        case "and" | "or" | "not":
            return getattr(np, "logical_" + expr.function)(*values)
    names = {
        "sub": "subtract", "mul": "multiply", "neg": "negative", "lt": "less", "le": "less_equal", "gt": "greater",
        "ge": "greater_equal", "eq": "equal", "ne": "not_equal", "pow": "power", "floordiv": "floor_divide",
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
        "acosh": "arccosh", "atanh": "arctanh", "bitand": "bitwise_and", "bitor": "bitwise_or",
        "bitxor": "bitwise_xor", "shl": "left_shift", "shr": "right_shift",
    }  # fmt: skip
    return getattr(np, names.get(expr.function, expr.function))(*values)
