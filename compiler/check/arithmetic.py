"""Arithmetic on static values: ints up to 2^63 - 1, floats, sizes with dims, bools, lists; no float overflows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final

from dslc.compiler.check.calls.equal_sizes import to_equal
from dslc.compiler.check.values import Problem, Static, kind_of
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import Poly, Size, SizeLimit, bounds, exact_div, floor_div, product, to_multiple
from dslc.dsl.other_calls import method_hint
from dslc.dsl.other_names import function_hint
from dslc.dsl.span import Span

LARGEST_INT: Final = 2**63 - 1
MAX_COMPARED: Final = 100_000
_MOST_POWER: Final = 64  # of a size: any size to a higher power is beyond all limits

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def checked(value: Static, span: Span) -> Static:
    """The value; E0005 for an int beyond 63 bits or a float that overflowed."""
    if type(value) is int and abs(value) > LARGEST_INT:
        raise Problem("E0005", "this int does not fit 64 bits", span, "beyond 2^63 - 1")
    if type(value) is float and not math.isfinite(value):
        raise Problem("E0005", "this float overflows", span, "not finite")
    return value


def binary(op: str, left: Static, right: Static, span: Span) -> Static:
    """``left op right`` for static values; E0202 if their types do not fit."""
    if op in _COMPARE:
        return compare(op, left, right, span)
    if op == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]  # several values, such as the parts of `split`, are a list here
    if isinstance(left, str) and isinstance(right, str) and op == "+":
        return left + right
    if not (_is_number(left) and _is_number(right)):
        wrong = left if not _is_number(left) else right
        raise Problem("E0202", f"`{op}` does not take {kind_of(wrong)}", span, f"{kind_of(left)} and {kind_of(right)}")
    if isinstance(left, Poly) or isinstance(right, Poly):
        try:
            return _of_sizes(op, left, right, span)
        except SizeLimit as limit:
            raise too_complex(limit, span) from None
    assert isinstance(left, (int, float)) and isinstance(right, (int, float))
    try:
        found = _of_numbers(op, left, right, span)
        return found if _unlimited(left) or _unlimited(right) else checked(found, span)
    except ZeroDivisionError:
        raise Problem("E0209", f"`{op}` by zero", span, "the right side is 0") from None
    except OverflowError:
        raise Problem("E0005", "this float overflows", span, "not finite") from None


def is_float_of_size(op: str, left: Static, right: Static) -> bool:
    """True for arithmetic of a size with dims that gives no size but a float, which is known when a size is built."""
    if op in _COMPARE or not (_is_number(left) and _is_number(right)):
        return False
    if not (isinstance(left, Poly) or isinstance(right, Poly)):
        return False
    floats = isinstance(left, float) or isinstance(right, float)
    return floats or (op == "^" and (isinstance(right, Poly) or (isinstance(right, int) and right < 0)))


def _unlimited(value: Static) -> bool:
    """Whether it is `inf`, `-inf` or `nan`."""
    return isinstance(value, float) and not math.isfinite(value)


def too_complex(limit: SizeLimit, span: Span) -> Problem:
    """E0304 for a size beyond the limits of size arithmetic."""
    return Problem("E0304", f"this gives {limit}", span, "too much to compute with")


def _of_numbers(op: str, a: int | float, b: int | float, span: Span) -> int | float:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            if isinstance(a, int) and isinstance(b, int) and a % b == 0:
                return a // b
            return a / b
        case "//":
            return a // b
        case "%":
            return a % b
        case "^":
            if isinstance(a, int) and isinstance(b, int) and b >= 0:
                return _int_power(a, b, span)
            if a < 0 and not float(b).is_integer():
                raise Problem("E0209", "a negative number to a fractional power", span, "not a real number")
            power: float = float(a) ** float(b)
            return power
    raise Problem("E0202", f"`{op}` is for tensors", span, "both sides are numbers")


def _int_power(a: int, b: int, span: Span) -> int:
    """``a ** b``, rejected before it is computed if it cannot fit 64 bits."""
    if abs(a) > 1 and b * (abs(a).bit_length() - 1) > 64:
        raise Problem("E0005", "this int does not fit 64 bits", span, "beyond 2^63 - 1")
    if abs(a) <= 1:
        b = min(b, 2 - b % 2)  # the powers of 0, 1 and -1 repeat
    result = 1
    for _ in range(b):
        result *= a
    return result


def _of_sizes(op: str, a: Static, b: Static, span: Span) -> Static:
    assert isinstance(a, (int, Poly)) and isinstance(b, (int, Poly))
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return divide(a, b, span)
        case "//" if isinstance(b, int) and b > 0:
            return floor_div(a, b)
        case "%" if isinstance(b, int) and b > 0:
            return a - floor_div(a, b) * b
        case "^" if isinstance(b, int) and 0 <= b <= _MOST_POWER:
            return product((a,) * b)
    raise Problem("E0205", f"`{op}` is not defined for `{a}` and `{b}`", span, "a size with dims")


def divide(a: Size, b: Size, span: Span) -> Size:
    """``a / b``; E0303 unless it is exact for every value of the dims."""
    quotient = exact_div(a, b)
    if quotient is None:
        raise Problem(
            "E0303",
            f"{a} is not divisible by {b}",
            span,
            "`/` of sizes must be exact",
            help="; ".join(filter(None, ("`//` rounds down, `1.0 / T` is a float", to_multiple(a, b)))),
        )
    return quotient


def compare(op: str, left: Static, right: Static, span: Span) -> bool:
    """The result of a comparison; E0205 if it depends on a dim's value."""
    if isinstance(left, Poly) or isinstance(right, Poly):
        if not (isinstance(left, (int, Poly)) and isinstance(right, (int, Poly))):
            raise Problem("E0202", f"`{op}` cannot compare these", span, f"{kind_of(left)} and {kind_of(right)}")
        if left == right:
            return op in ("==", "<=", ">=")
        low, high = bounds(left - right)
        answers = {_COMPARE[op](v, 0) for v in {low, high, *([0] if low < 0 < high else [])}}
        if op in ("==", "!=") and low <= 0 <= high:
            answers = {True, False}
        if len(answers) == 1:
            return answers.pop()
        raise Problem(
            "E0205",
            f"whether {left} {op} {right} depends on the size that you build",
            span,
            "not known at compile time",
            help=to_equal([(left, right)]) if op == "==" else None,
        )
    both = (left, right)
    if all(_is_number(v) for v in both) or all(isinstance(v, str) for v in both):
        return _COMPARE[op](left, right)  # type: ignore[arg-type]
    if op in ("==", "!=") and all(isinstance(v, (bool, list, tuple)) for v in both):
        return _same(left, right, span) == (op == "==")
    raise Problem("E0202", f"`{op}` cannot compare these", span, f"{kind_of(left)} and {kind_of(right)}")


def _same(left: Static, right: Static, span: Span) -> bool:
    """True if two values are equal, lists by their elements; rejects lists with too many nested elements."""
    stack = [(left, right)]
    seen = 0
    while stack:
        a, b = stack.pop()
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            if type(a) is not type(b) or len(a) != len(b):
                return False
            seen += len(a)
            if seen > MAX_COMPARED:
                raise Problem(
                    "E0006", f"lists of more than {MAX_COMPARED:,} elements in total cannot be compared", span
                )
            stack.extend(zip(a, b))
        elif a != b:
            return False
    return True


def _least_of(values: Sequence[Static], span: Span) -> Static:
    return _extreme("<=", values, span)


def _most_of(values: Sequence[Static], span: Span) -> Static:
    return _extreme(">=", values, span)


def _extreme(op: str, values: Sequence[Static], span: Span) -> Static:
    best = values[0]
    for value in values[1:]:
        if isinstance(best, (int, Poly)) and isinstance(value, (int, Poly)) and bounds(best - value)[1] <= 0:
            best = best if op == "<=" else value  # also if the two may be equal, as T and T.max
        else:
            best = best if compare(op, best, value, span) else value
    return best


def _absolute(values: Sequence[Static], span: Span) -> Static:
    [value] = values
    return value if compare(">=", value, 0, span) else binary("-", 0, value, span)


def _sum(values: Sequence[Static], span: Span) -> Static:
    total: Static = 0
    for value in values:
        total = binary("+", total, value, span)
    return total


def _whole(f: Callable[[float], int]) -> Callable[[Sequence[Static], Span], Static]:
    """A function to whole numbers: a size is whole already, the result for a float is an int."""

    def rounded(values: Sequence[Static], span: Span) -> Static:
        [value] = values
        if _unlimited(value):
            raise Problem("E0209", f"there is no whole number for {value}", span, "not finite")
        return checked(f(value), span) if isinstance(value, float) else value

    return rounded


def _float(values: Sequence[Static], span: Span) -> Static:
    [value] = values
    if isinstance(value, Poly):
        raise Problem("E0205", f"`{value}` depends on the size that you build", span, "not known at compile time")
    assert isinstance(value, (int, float))
    return float(value)


#: functions of numbers and sizes at compile time; exact, so they never differ from the ops of these names. An op that
#: rounds, such as `log`, makes a tensor of a number, too
STATIC_FUNCTIONS: Final[dict[str, Callable[[Sequence[Static], Span], Static]]] = {
    "min": _least_of, "max": _most_of, "abs": _absolute, "sum": _sum,
    "floor": _whole(math.floor), "ceil": _whole(math.ceil), "round": _whole(round), "int": _whole(math.trunc),
    "float": _float,
}  # fmt: skip
_OF_SEVERAL: Final = ("min", "max", "sum")


def apply_static(name: str, values: Sequence[Static], span: Span) -> Static:
    """A compile-time function of numbers; `min`, `max` and `sum` also take one list, and `len` takes a list. E0201 for
    a wrong number of arguments, E0202 for arguments of other kinds."""
    if len(values) == 1 and isinstance(values[0], (list, tuple)) and (name in _OF_SEVERAL or name == "len"):
        if name == "len":
            return len(values[0])
        values = values[0]
        if name == "sum" and not values:
            return 0
    if name == "len":
        help = function_hint("size") if values and isinstance(values[0], Value) else None
        raise Problem("E0202", "`len` takes a list", span, "not a list", help=help)
    if not values or (len(values) != 1 and name not in _OF_SEVERAL):
        takes = "one number or more" if name in _OF_SEVERAL else "one number"
        raise Problem("E0201", f"`{name}` takes {takes}", span, f"{len(values)} here")
    for value in values:
        if not _is_number(value):
            help = method_hint(name) if isinstance(value, Value) else None
            title = f"`{name}` of numbers does not take {kind_of(value)}"
            raise Problem("E0202", title, span, "not a number", help=help)
    return STATIC_FUNCTIONS[name](values, span)


def is_static_function(name: str) -> bool:
    """True for a function that may compute at compile time."""
    return name == "len" or name in STATIC_FUNCTIONS


def _is_number(value: Static) -> bool:
    return isinstance(value, (int, float, Poly)) and not isinstance(value, bool)
