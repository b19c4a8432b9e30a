"""Scalar functions on lanes as LLVM IR: arithmetic, comparisons, conversions, rounding.

Sums, products and quotients are libdevice's ``*_rn`` functions, which are never contracted to ``fma``. exp, log and
similar functions are libdevice's accurate ones, except for 16-bit results. Integers wrap. A scalar operand is broadcast
over the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.lanes import F32, I32, I64, Lanes, Writer, llvm_type
from dslc.compiler.ir.scalar import FUNCTIONS
from dslc.compiler.ir.types import DType

_LIBDEVICE: Final = {
    "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos", "tanh": "tanh",
    "erf": "erf", "floor": "floor", "round": "rint", "abs": "fabs", "pow": "pow",
    **{name: name for name in ("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh")},
    **{name: name for name in ("exp2", "log2", "log10", "erfc")},
}  # fmt: skip
_EXACT: Final = {"add": "add_rn", "mul": "mul_rn", "div": "div_rn", "sqrt": "sqrt_rn"}
#: PTX instructions on f32 for 16-bit results (``fast_math.py``), with their relative errors.
FAST: Final = {
    "fma": "fma.rn.f32",
    "fast_exp2": "ex2.approx.f32",  # 2^-22
    "flushed_exp2": "ex2.approx.ftz.f32",  # the same; 0 below 2^-126
    "fast_inverse": "rcp.approx.ftz.f32",  # 2^-23; 0 from 2^126 on
    "fast_div": "div.full.f32",  # 2 units in the last place
    "fast_sqrt": "sqrt.approx.f32",  # 2^-23
    "fast_tanh": "tanh.approx.f32",  # 2^-11
}
_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def device(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """A call of a function of libdevice, or of an LLVM intrinsic, by its name."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args)


def libdevice(builder: Any, name: str, *args: Any) -> Any:
    """Calls ``name`` on args of one float type, in the variant for that type."""
    single = args[0].type == F32
    full = f"__nv_{'f' if single else 'd'}{name}" if name in _EXACT.values() else f"__nv_{name}{'f' if single else ''}"
    return device(builder, full, args[0].type, *args)


def is_nan(builder: Any, x: Any) -> Any:
    return builder.fcmp_unordered("uno", x, x)


def compare(builder: Any, sign: str, dtype: DType, x: Any, y: Any) -> Any:
    """An i1; comparisons with nan are false, except !=."""
    if dtype.is_float:
        return (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, x, y)
    return (builder.icmp_unsigned if dtype.is_unsigned else builder.icmp_signed)(sign, x, y)


def combine(builder: Any, how: str, dtype: DType, x: Any, y: Any) -> Any:
    """The sum or product, or the minimum or maximum; nan if either is nan; -0.0 is less than 0.0."""
    if how in ("sum", "prod"):
        function = "add" if how == "sum" else "mul"
        return libdevice(builder, f"{function}_rn", x, y) if dtype.is_float else getattr(builder, function)(x, y)
    if dtype is DType.F32:
        return builder.call(
            ir.InlineAsm(ir.FunctionType(F32, [F32, F32]), f"{how}.NaN.f32 $0, $1, $2;", "=f,f,f"), [x, y]
        )
    first = compare(builder, "<" if how == "min" else ">", dtype, x, y)
    if not dtype.is_float:
        return builder.select(first, x, y)
    found = builder.select(builder.or_(first, is_nan(builder, x)), x, y)
    bits = [builder.bitcast(v, I64) for v in (x, y)]
    tied = builder.bitcast((builder.or_ if how == "min" else builder.and_)(*bits), x.type)  # the zero with right sign
    return builder.select(builder.fcmp_ordered("==", x, y), tied, found)


def tree(builder: Any, how: str, dtype: DType, lanes: Sequence[Any]) -> Any:
    """Combines the first half with the second until one is left; an odd one in the middle waits."""
    while len(lanes) > 1:
        half = (len(lanes) + 1) // 2
        lanes = [
            combine(builder, how, dtype, lanes[i], lanes[i + half]) if i + half < len(lanes) else lanes[i]
            for i in range(half)
        ]
    return lanes[0]


def _sign(builder: Any, dtype: DType, x: Any) -> Any:
    zero, one = x.type(0), x.type(1)
    above, below = (compare(builder, s, dtype, x, zero) for s in "><")
    if dtype.is_float:
        none = builder.select(is_nan(builder, x), x, zero)
        return builder.select(above, one, builder.select(below, x.type(-1), none))
    return builder.select(above, one, builder.select(below, x.type(-1), zero))


def _negative(builder: Any, dtype: DType, x: Any) -> Any:
    return builder.fsub(x.type(-0.0), x) if dtype.is_float else builder.sub(x.type(0), x)


def _subtract(builder: Any, dtype: DType, x: Any, y: Any) -> Any:
    if not dtype.is_float:
        return builder.sub(x, y)
    return libdevice(builder, "add_rn", x, _negative(builder, dtype, y))


def _absolute(builder: Any, dtype: DType, x: Any) -> Any:
    if dtype.is_float:
        return libdevice(builder, "fabs", x)
    if dtype.is_unsigned:
        return x
    return builder.select(builder.icmp_signed("<", x, x.type(0)), builder.sub(x.type(0), x), x)


def _shifted_left(builder: Any, dtype: DType, x: Any, y: Any) -> Any:
    """All bits are shifted out by a y that is negative or not less than the width, as in numpy."""
    inside = builder.icmp_unsigned("<", y, y.type(y.type.width))
    return builder.select(inside, builder.shl(x, builder.select(inside, y, y.type(0))), x.type(0))


def _shifted_right(builder: Any, dtype: DType, x: Any, y: Any) -> Any:
    inside = builder.icmp_unsigned("<", y, y.type(y.type.width))
    if dtype.is_unsigned:
        return builder.select(inside, builder.lshr(x, builder.select(inside, y, y.type(0))), x.type(0))
    return builder.ashr(x, builder.select(inside, y, y.type(y.type.width - 1)))


def _root(builder: Any, x: Any) -> Any:
    """The square root of an f32. That of 0, which is x, is chosen afterwards: ``sqrt.rn`` of 0 takes a slow way."""
    zero = builder.fcmp_ordered("==", x, F32(0))
    return builder.select(zero, x, libdevice(builder, "sqrt_rn", builder.select(zero, F32(1), x)))


def _quotient(builder: Any, x: Any, y: Any) -> Any:
    """x / y of f32. A 0 with its sign is chosen afterwards where x alone is 0: ``div.rn`` of 0 takes a slow way."""
    zero = builder.and_(builder.fcmp_ordered("==", x, F32(0)), builder.fcmp_ordered("!=", y, F32(0)))
    found = libdevice(builder, "div_rn", builder.select(zero, F32(1), x), y)
    sign = builder.xor(builder.bitcast(x, I32), builder.bitcast(y, I32))
    return builder.select(zero, builder.bitcast(builder.and_(sign, I32(-(1 << 31))), F32), found)


def _divided(builder: Any, dtype: DType, x: Any, y: Any) -> tuple[Any, Any]:
    """The floored quotient and the remainder, which has y's sign, as in numpy. Integers divided by zero give 0."""
    zero = x.type(0)
    if dtype.is_float:
        rest = libdevice(builder, "fmod", x, y)
        away = builder.and_(
            builder.fcmp_unordered("!=", rest, zero),
            builder.xor(builder.fcmp_ordered("<", y, zero), builder.fcmp_ordered("<", rest, zero)),
        )
        quotient = libdevice(builder, "div_rn", _subtract(builder, dtype, x, rest), y)
        quotient = builder.select(away, libdevice(builder, "add_rn", quotient, x.type(-1)), quotient)
        rest = builder.select(away, libdevice(builder, "add_rn", rest, y), rest)
        down = libdevice(builder, "floor", quotient)
        apart = _subtract(builder, dtype, quotient, down)
        nearer = builder.fcmp_ordered(">", apart, x.type(0.5))  # the quotient is an integer except for rounding
        down = builder.select(nearer, libdevice(builder, "add_rn", down, x.type(1)), down)
        sign = device(
            builder, f"__nv_copysign{'f' if x.type == F32 else ''}", x.type, zero, libdevice(builder, "div_rn", x, y)
        )
        down = builder.select(builder.fcmp_ordered("==", quotient, zero), sign, down)
        down = builder.select(builder.fcmp_ordered("==", y, zero), libdevice(builder, "div_rn", x, y), down)
        signed = device(builder, f"__nv_copysign{'f' if x.type == F32 else ''}", x.type, zero, y)
        rest = builder.select(builder.fcmp_ordered("==", rest, zero), signed, rest)
        return down, rest
    none = builder.icmp_unsigned("==", y, zero)
    by = builder.select(none, x.type(1), y)
    if dtype.is_unsigned:
        quotient, rest = builder.udiv(x, by), builder.urem(x, by)
    else:
        # the smallest integer divided by -1 overflows: it wraps to itself
        minus = builder.icmp_signed("==", by, x.type(-1))
        safe = builder.select(minus, x.type(1), by)
        quotient, rest = builder.sdiv(x, safe), builder.srem(x, safe)
        quotient = builder.select(minus, builder.sub(zero, x), quotient)
        away = builder.and_(
            builder.icmp_signed("!=", rest, zero), builder.icmp_signed("<", builder.xor(rest, by), zero)
        )
        quotient = builder.select(away, builder.sub(quotient, x.type(1)), quotient)
        rest = builder.select(away, builder.add(rest, by), rest)
    return builder.select(none, zero, quotient), builder.select(none, zero, rest)


def apply(builder: Any, function: str, dtype: DType, *xs: Any) -> Any:
    """A function of ``scalar.FUNCTIONS`` on one lane; ``dtype`` is the dtype of its numeric operands."""
    if function in _COMPARISONS:
        return compare(builder, _COMPARISONS[function], dtype, *xs)
    if function == "select":
        return builder.select(*xs)
    if function in ("and", "or"):
        return (builder.and_ if function == "and" else builder.or_)(*xs)
    if function == "not":
        return builder.xor(xs[0], xs[0].type(1))
    if function in ("min", "max"):
        return combine(builder, function, dtype, *xs)
    special: dict[str, Callable[..., Any]] = {
        "sub": _subtract, "neg": _negative, "abs": _absolute, "sign": _sign,
        "shl": _shifted_left, "shr": _shifted_right,
    }  # fmt: skip
    if function in special:
        return special[function](builder, dtype, *xs)
    if function in ("floordiv", "mod"):
        return _divided(builder, dtype, *xs)[function == "mod"]
    if not dtype.is_float:
        simple = {"add": "add", "mul": "mul", "bitand": "and_", "bitor": "or_", "bitxor": "xor"}
        return getattr(builder, simple[function])(*xs)
    if dtype is DType.F32 and function in ("div", "sqrt"):
        return (_quotient if function == "div" else _root)(builder, *xs)
    return libdevice(builder, _EXACT.get(function) or _LIBDEVICE[function], *xs)


def convert(builder: Any, x: Any, old: DType, new: DType) -> Any:
    """Converts like ``cast``: floats to integers saturate and drop their fraction, nan gives 0; integers wrap."""
    if old is new:
        return x
    type = llvm_type(new)
    if new is DType.B1:
        return compare(builder, "!=", old, x, x.type(0))
    if old.is_float and new.is_float:
        return builder.fpext(x, type) if new is DType.F64 else builder.fptrunc(x, type)
    if old.is_float:
        return _saturated(builder, x, new)
    unsigned = old.is_unsigned
    if new.is_float:
        return (builder.uitofp if unsigned else builder.sitofp)(x, type)
    if old is not DType.B1 and new.itemsize <= old.itemsize:
        return x if new.itemsize == old.itemsize else builder.trunc(x, type)
    return (builder.zext if unsigned else builder.sext)(x, type)


def _saturated(builder: Any, x: Any, new: DType) -> Any:
    bits, (low, high) = 8 * new.itemsize, new.limits
    wide = I64 if bits == 64 else I32
    kind = ("ull" if bits == 64 else "uint") if low == 0 and bits >= 32 else "ll" if bits == 64 else "int"
    name = f"__nv_{'float' if x.type == F32 else 'double'}2{kind}_rz"  # these saturate
    found = builder.select(is_nan(builder, x), wide(0), device(builder, name, wide, x))
    if bits >= 32:
        return found
    found = builder.select(builder.icmp_signed("<", found, wide(low)), wide(low), found)
    found = builder.select(builder.icmp_signed(">", found, wide(high)), wide(high), found)
    return builder.trunc(found, llvm_type(new))


def scalar_function(name: str) -> Writer:
    """``name`` of ``scalar.FUNCTIONS`` on each lane; single lanes are broadcast."""

    def write(builder: Any, *args: Lanes) -> Lanes:
        assert len(args) == FUNCTIONS[name]
        dtype, count = args[-1].dtype, max(x.count for x in args)
        found = [apply(builder, name, dtype, *lanes) for lanes in zip(*(x.spread(count) for x in args))]
        return Lanes(DType.B1 if name in _COMPARISONS else dtype, found)

    return write


def fast_function(name: str) -> Writer:
    """A name of ``FAST`` on each f32 lane; single lanes are broadcast."""

    def write(builder: Any, *args: Lanes) -> Lanes:
        assert all(x.dtype is DType.F32 for x in args)
        count = max(x.count for x in args)
        return Lanes(DType.F32, [_fast(builder, name, *lanes) for lanes in zip(*(x.spread(count) for x in args))])

    return write


def _fast(builder: Any, name: str, *xs: Any) -> Any:
    type, places = ir.FunctionType(F32, [F32] * len(xs)), ", ".join(f"${n}" for n in range(len(xs) + 1))
    return builder.call(ir.InlineAsm(type, f"{FAST[name]} {places};", "=f" + ",f" * len(xs)), xs)


def conversion(dtype: DType) -> Writer:
    """``cast`` to a dtype that registers can hold."""
    return lambda builder, x: Lanes(dtype, [convert(builder, lane, x.dtype, dtype) for lane in x.values])
