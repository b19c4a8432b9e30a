"""The functions of a scalar tree on registers, as LLVM IR, and which of them are supported."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm import division
from dslc.compiler.codegen.cpu.llvm.math import COSTLY, Functions
from dslc.compiler.codegen.cpu.llvm.writer import SUPPORTED, Code, Reg
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.llvm.values import Values

_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_FLOAT_ONLY: Final = frozenset({"div", "sqrt", "floor", "round", "atan2", *COSTLY} - {"pow"})
_INTEGER_ONLY: Final = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})
_ANY_NUMBER: Final = frozenset({"add", "sub", "mul", "min", "max", "neg", "abs", "sign", "pow", "floordiv", "mod"})
_LOGIC: Final = frozenset({"and", "or", "not", "select", "arg", "const"})


def can_emit(expr: Expr, dtypes: list[DType]) -> bool:
    """Whether this file supports all functions of the tree, whose arguments have these dtypes."""
    function = expr.function
    if function in _LOGIC:
        return all(can_emit(a, dtypes) for a in expr.args) and (
            function != "arg" or expr.index >= len(dtypes) or dtypes[expr.index] in SUPPORTED
        )
    if function in _COMPARISONS or function in _ANY_NUMBER:
        return all(can_emit(a, dtypes) for a in expr.args)
    fitting = _FLOAT_ONLY if all(d.is_float for d in dtypes) else _INTEGER_ONLY
    return function in fitting and all(can_emit(a, dtypes) for a in expr.args)


def apply(values: Values, function: str, regs: list[Reg]) -> Reg:
    """Applies the function to registers of one dtype, except for the condition of ``select``. Floats of 16 bits are
    computed in f32, and so is the result."""
    regs = [Reg(r.value, r.dtype.computed) for r in regs]
    b, dtype = values.b, regs[-1].dtype
    xs = [r.value for r in regs]
    assert all(r.dtype is dtype for r in (regs[1:] if function == "select" else regs)), f"{function} of {regs}"
    if function == "select":
        return Reg(b.select(*xs), dtype)
    if function in ("and", "or"):
        return Reg((b.and_ if function == "and" else b.or_)(*xs), dtype)
    if function == "not":
        return Reg(b.not_(xs[0]), dtype)
    if function in _COMPARISONS:
        return Reg(values.compare(_COMPARISONS[function], regs[0], regs[1]), DType.B1)
    if dtype.is_float:
        return Reg(_float(values.code, function, xs), dtype)
    return Reg(_integer(values, function, regs), dtype)


def _float(code: Code, function: str, xs: list[Any]) -> Any:
    b = code.b
    simple = {"add": b.fadd, "sub": b.fsub, "mul": b.fmul, "div": b.fdiv}
    if function in simple:
        return simple[function](*xs)
    functions = Functions(code, xs[0].type)
    if function in ("pow", "atan2"):
        return getattr(functions, function)(*xs)
    if function in ("floordiv", "mod"):
        return division.floats(functions, xs[0], xs[1], function == "mod")
    if function in ("min", "max"):
        return _extreme(functions, function == "min", *xs)
    if function == "sign":
        zero = functions.const(0.0)
        one = functions.copysign(functions.const(1.0), xs[0])
        none = b.select(functions.is_nan(xs[0]), xs[0], zero)
        return b.select(b.fcmp_unordered("ueq", xs[0], zero), none, one)
    return functions.named()[function](xs[0])


def _extreme(functions: Functions, least: bool, x: Any, y: Any) -> Any:
    """The minimum or maximum, nan if either is nan; -0.0 is less than 0.0."""
    b = functions.b
    first = b.fcmp_ordered("<" if least else ">", x, y)
    found = b.select(b.or_(first, functions.is_nan(x)), x, y)
    if _decides_zeros(y, least):
        return found
    bits = [b.bitcast(v, functions.int_type) for v in (x, y)]
    tied = b.bitcast((b.or_ if least else b.and_)(*bits), functions.type)  # -0.0 if either (min) or both (max) are
    return b.select(b.fcmp_ordered("==", x, y), tied, found)


def _decides_zeros(y: Any, least: bool) -> bool:
    """Whether y, which is the result if both are equal, is a constant other than zero, or the zero that wins a tie."""
    if not isinstance(y, ir.Constant):
        return False
    lanes = y.constant if isinstance(y.constant, list | tuple) else [y.constant]
    numbers = [getattr(lane, "constant", lane) for lane in lanes]
    return all(v != 0 or math.copysign(1, v) == (-1 if least else 1) for v in numbers)


def _integer(values: Values, function: str, regs: list[Reg]) -> Any:
    b, xs, dtype = values.b, [r.value for r in regs], regs[0].dtype
    simple = {"add": b.add, "sub": b.sub, "mul": b.mul, "bitand": b.and_, "bitor": b.or_, "bitxor": b.xor}
    if function in simple:
        return simple[function](*xs)
    if function in ("shl", "shr"):
        return _shifted(values, function == "shr", *regs)
    if function in ("min", "max"):
        return b.select(values.compare("<" if function == "min" else ">", *regs), *xs)
    if function == "pow":
        return _integer_power(values, *regs)
    if function in ("floordiv", "mod"):
        return division.integers(values, regs[0], regs[1], function == "mod")
    zero = values.const(0, dtype)
    if function == "neg":
        return b.sub(zero.value, xs[0])
    negative = values.compare("<", regs[0], zero)
    if function == "abs":
        return b.select(negative, b.sub(zero.value, xs[0]), xs[0])
    assert function == "sign", f"no integer {function}"
    positive = values.compare(">", regs[0], zero)
    one, minus = (
        values.const(1, dtype).value,
        ir.Constant(zero.value.type, [-1] * values.lanes if values.lanes > 1 else -1),
    )
    return b.select(positive, one, b.select(negative, minus, zero.value))


def _shifted(values: Values, right: bool, x: Reg, y: Reg) -> Any:
    """x shifted by y bits; all bits are shifted out by a y that is negative or not less than the width, as in numpy."""
    b, bits = values.b, 8 * x.dtype.itemsize
    zero, last = values.const(0, x.dtype).value, values.const(bits - 1, x.dtype).value
    inside = b.icmp_unsigned("<=", y.value, last)
    by = b.select(inside, y.value, zero)
    if not right:
        return b.select(inside, b.shl(x.value, by), zero)
    if values.unsigned(x.dtype):
        return b.select(inside, b.lshr(x.value, by), zero)
    return b.ashr(x.value, b.select(inside, by, last))


def _integer_power(values: Values, x: Reg, y: Reg) -> Any:
    """Exponentiation by squaring, one step per bit of ``y``, which is not negative; overflow wraps."""
    b, base = values.b, x.value
    zero, found = values.const(0, y.dtype).value, values.const(1, x.dtype).value
    for bit in range(8 * y.dtype.itemsize - (0 if values.unsigned(y.dtype) else 1)):
        here = b.icmp_unsigned("!=", b.and_(y.value, values.const(1 << bit, y.dtype).value), zero)
        found = b.select(here, b.mul(found, base), found)
        base = b.mul(base, base)
    return found
