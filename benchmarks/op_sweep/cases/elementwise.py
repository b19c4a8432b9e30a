"""Pointwise functions: of one tensor, of two, with broadcasting, and on transposed tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from op_sweep.case import Case, Tensor, ids

if TYPE_CHECKING:
    from op_sweep.case import Sizes

Theirs = Callable[..., Any]
#: Name -> the kind of x, PyTorch's call, and more arguments of ours.
SMOOTH: Final[dict[str, tuple[str, Theirs, str]]] = {
    "abs": ("normal", lambda t, x: t.abs(x), ""),
    "neg": ("normal", lambda t, x: t.neg(x), ""),
    "exp": ("normal", lambda t, x: t.exp(x), ""),
    "expm1": ("normal", lambda t, x: t.expm1(x), ""),
    "log": ("positive", lambda t, x: t.log(x), ""),
    "log1p": ("positive", lambda t, x: t.log1p(x), ""),
    "sin": ("normal", lambda t, x: t.sin(x), ""),
    "cos": ("normal", lambda t, x: t.cos(x), ""),
    "tan": ("unit", lambda t, x: t.tan(x), ""),
    "asin": ("unit", lambda t, x: t.asin(x), ""),
    "acos": ("unit", lambda t, x: t.acos(x), ""),
    "atan": ("normal", lambda t, x: t.atan(x), ""),
    "sinh": ("normal", lambda t, x: t.sinh(x), ""),
    "cosh": ("normal", lambda t, x: t.cosh(x), ""),
    "tanh": ("normal", lambda t, x: t.tanh(x), ""),
    "asinh": ("normal", lambda t, x: t.asinh(x), ""),
    "acosh": ("above", lambda t, x: t.acosh(x), ""),
    "atanh": ("unit", lambda t, x: t.atanh(x), ""),
    "erf": ("normal", lambda t, x: t.erf(x), ""),
    "erfc": ("normal", lambda t, x: t.erfc(x), ""),
    "lgamma": ("positive", lambda t, x: t.lgamma(x), ""),
    "digamma": ("positive", lambda t, x: t.digamma(x), ""),
    "polygamma": ("positive", lambda t, x: t.polygamma(1, x), ", 1"),
    "frac": ("normal", lambda t, x: t.frac(x), ""),
    "sqrt": ("positive", lambda t, x: t.sqrt(x), ""),
    "rsqrt": ("positive", lambda t, x: t.rsqrt(x), ""),
    "exp2": ("normal", lambda t, x: t.exp2(x), ""),
    "log2": ("positive", lambda t, x: t.log2(x), ""),
    "log10": ("positive", lambda t, x: t.log10(x), ""),
    "reciprocal": ("positive", lambda t, x: t.reciprocal(x), ""),
    "square": ("normal", lambda t, x: t.square(x), ""),
    "relu": ("normal", lambda t, x: t.relu(x), ""),
    "sigmoid": ("normal", lambda t, x: t.sigmoid(x), ""),
    "silu": ("normal", lambda t, x: t.nn.functional.silu(x), ""),
    "softplus": ("normal", lambda t, x: t.nn.functional.softplus(x), ""),
    "hardswish": ("between", lambda t, x: t.nn.functional.hardswish(x), ""),
    "hardsigmoid": ("normal", lambda t, x: t.nn.functional.hardsigmoid(x), ""),
    "hardtanh": ("normal", lambda t, x: t.nn.functional.hardtanh(x), ""),
    "relu6": ("normal", lambda t, x: t.nn.functional.relu6(x), ""),
    "hardshrink": ("normal", lambda t, x: t.nn.functional.hardshrink(x), ""),
    "softshrink": ("normal", lambda t, x: t.nn.functional.softshrink(x), ""),
    "threshold": ("normal", lambda t, x: t.nn.functional.threshold(x, 0.125, 0.25), ", 0.125, 0.25"),
    "leaky_relu": ("normal", lambda t, x: t.nn.functional.leaky_relu(x), ""),
    "elu": ("normal", lambda t, x: t.nn.functional.elu(x), ""),
    "celu": ("normal", lambda t, x: t.celu(x), ""),
    "selu": ("normal", lambda t, x: t.selu(x), ""),
    "gelu": ("normal", lambda t, x: t.nn.functional.gelu(x), ""),
    "mish": ("normal", lambda t, x: t.nn.functional.mish(x), ""),
    "softsign": ("normal", lambda t, x: t.nn.functional.softsign(x), ""),
    "logsigmoid": ("normal", lambda t, x: t.nn.functional.logsigmoid(x), ""),
    "tanhshrink": ("normal", lambda t, x: t.nn.functional.tanhshrink(x), ""),
    "clip": ("normal", lambda t, x: t.clamp(x, -8, 8), ", -8, 8"),  # at the limits the gradients differ by definition
    "nan_to_num": ("normal", lambda t, x: t.nan_to_num(x, 0.0, 65504.0, -65504.0), ""),
}
#: Functions of one tensor without a gradient: PyTorch's call, and the dtype of the result.
STEPS: Final[dict[str, tuple[Theirs, str]]] = {
    "sign": (lambda t, x: t.sign(x), ""),
    "floor": (lambda t, x: t.floor(x), ""),
    "round": (lambda t, x: t.round(x), ""),
    "ceil": (lambda t, x: t.ceil(x), ""),
    "trunc": (lambda t, x: t.trunc(x), ""),
    "isnan": (lambda t, x: t.isnan(x), "b1"),
    "isinf": (lambda t, x: t.isinf(x), "b1"),
    "isfinite": (lambda t, x: t.isfinite(x), "b1"),
}
PAIRS: Final[dict[str, tuple[str, Theirs, bool]]] = {
    "add": ("normal", lambda t, x, y: x + y, True),
    "sub": ("normal", lambda t, x, y: x - y, True),
    "mul": ("normal", lambda t, x, y: x * y, True),
    "div": ("positive", lambda t, x, y: x / y, True),
    "minimum": ("normal", lambda t, x, y: t.minimum(x, y), True),
    "maximum": ("normal", lambda t, x, y: t.maximum(x, y), True),
    "atan2": ("normal", lambda t, x, y: t.atan2(x, y), True),
    "power": ("positive", lambda t, x, y: t.pow(x, y), True),
    "fmod": ("positive", lambda t, x, y: t.fmod(x, y), False),
    "floordiv": ("positive", lambda t, x, y: t.floor_divide(x, y), False),
    "mod": ("positive", lambda t, x, y: t.remainder(x, y), False),
}
COMPARISONS: Final[dict[str, Theirs]] = {
    "lt": lambda t, x, y: x < y,
    "le": lambda t, x, y: x <= y,
    "gt": lambda t, x, y: x > y,
    "ge": lambda t, x, y: x >= y,
    "eq": lambda t, x, y: x == y,
    "ne": lambda t, x, y: x != y,
}
#: Functions of bools or of integers: the inputs' dtype and number of values, PyTorch's call.
INTEGERS: Final[dict[str, tuple[str, int, int, Theirs]]] = {
    "logical_and": ("b1", 2, 2, lambda t, x, y: t.logical_and(x, y)),
    "logical_or": ("b1", 2, 2, lambda t, x, y: t.logical_or(x, y)),
    "logical_not": ("b1", 1, 2, lambda t, x: t.logical_not(x)),
    "bitwise_and": ("i32", 2, 1 << 16, lambda t, x, y: x & y),
    "bitwise_or": ("i32", 2, 1 << 16, lambda t, x, y: x | y),
    "bitwise_xor": ("i32", 2, 1 << 16, lambda t, x, y: x ^ y),
    "bitwise_not": ("i32", 1, 1 << 16, lambda t, x: ~x),
    "bitwise_left_shift": ("i32", 2, 8, lambda t, x, y: x << y),
    "bitwise_right_shift": ("i32", 2, 8, lambda t, x, y: x >> y),
}
_NARROW: Final = ("relu", "gelu", "tanh")  # one cheap, one dear, one common: all the shapes


def cases(sizes: Sizes) -> Iterator[Case]:
    flat = sizes.flat()
    for name, (kind, theirs, more) in SMOOTH.items():
        for shape in flat if name in _NARROW else ("huge", "tiny", "odd"):
            yield Case(name, shape, {"x": Tensor(flat[shape], kind)}, f"{name}(x{more})", theirs, ("x",))
        if name in _NARROW:
            yield _transposed(name, flat["huge"], theirs)
    for name, (theirs, dtype) in STEPS.items():
        for shape in ("huge", "tiny"):
            yield Case(name, shape, {"x": Tensor(flat[shape])}, f"{name}(x)", theirs, out=(f"{dtype} 2",))
    for name, (kind, theirs, smooth) in PAIRS.items():
        for shape, x, y in _pairs(flat):
            wrt = ("x", "y") if smooth else ()
            two = {"x": Tensor(x, kind), "y": Tensor(y, kind)}
            yield Case(name, shape, two, f"{name}(x, y)", theirs, wrt)
    for name, theirs in COMPARISONS.items():
        for shape, x, y in _pairs(flat):
            yield Case(name, shape, {"x": Tensor(x), "y": Tensor(y)}, f"{name}(x, y)", theirs, out=("b1 2",))
    for name, (dtype, count, high, theirs) in INTEGERS.items():
        for shape in ("huge", "tiny"):
            each = {n: Tensor(flat[shape], "below", dtype, high) for n in "xy"[:count]}
            yield Case(name, shape, each, f"{name}({', '.join(each)})", theirs, out=(f"{dtype} 2",))
    yield from _others(flat)


def _pairs(flat: dict[str, tuple[int, int]]) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    for shape in ("huge", "tiny", "odd"):
        yield shape, flat[shape], flat[shape]
    rows, columns = flat["huge"]
    yield "a row", (rows, columns), (columns,)
    yield "a column", (rows, columns), (rows, 1)


def _transposed(name: str, shape: tuple[int, int], theirs: Theirs) -> Case:
    """The same on a transposed input, and the result as it is in memory."""
    ours = f"transpose({name}(transpose(x)))"
    return Case(name, "huge", {"x": Tensor(shape)}, ours, lambda t, x: theirs(t, x.T).T, ("x",), layout="columns")


def _others(flat: dict[str, tuple[int, int]]) -> Iterator[Case]:
    for shape in ("huge", "tiny", "odd"):
        x, mask = Tensor(flat[shape]), Tensor(flat[shape], "below", "b1")
        two = {"c": mask, "x": x, "y": x}
        yield Case("where", shape, two, "where(c, x, y)", lambda t, c, x, y: t.where(c, x, y), ("x", "y"), ("2",))
        alone = {"x": x}
        yield Case("cast", shape, alone, 'cast(x, "i32")', lambda t, x: x.to(t.int32), out=("i32 2",))
        weight = {"x": x, "prelu.weight": Tensor((1,))}
        yield Case("prelu", shape, weight, "prelu(x)", lambda t, x, w: t.nn.functional.prelu(x, w), (*weight,))
    for shape in ("huge", "tiny"):
        rows, columns = flat[shape]
        yield Case("cast", f"{shape} to float", {"x": ids((rows, columns), 1 << 16)}, 'cast(x, "float")',
                   lambda t, x: x.to(t.float32), out=("2",))  # fmt: skip
        pairs = {"x": Tensor((rows, 2 * columns))}
        yield Case("glu", shape, pairs, "glu(x)", lambda t, x: t.nn.functional.glu(x), ("x",))
    rows, columns = flat["huge"]
    column = {"c": Tensor((rows, 1), "below", "b1"), "x": Tensor((rows, columns)), "y": Tensor((columns,))}
    yield Case("where", "a column of masks", column, "where(c, x, y)", lambda t, c, x, y: t.where(c, x, y), ("x", "y"),
               ("2",))  # fmt: skip
    for shape, part, theirs in (
        ("every third row", "x[::3]", lambda t, x: t.relu(x[::3])),
        ("every second column", "x[:, ::2]", lambda t, x: t.relu(x[:, ::2])),
        ("backwards", "x[::-1, ::-1]", lambda t, x: t.relu(x.flip(0, 1))),
        ("inside", "x[1:-1, 3:-5]", lambda t, x: t.relu(x[1:-1, 3:-5])),
    ):
        yield Case("relu", shape, {"x": Tensor(flat["odd"])}, f"relu({part})", theirs, ("x",))
    pairs = {"x": Tensor((2 * rows, columns))}
    yield Case("glu", "first axis", pairs, "glu(x, axis=0)", lambda t, x: t.nn.functional.glu(x, 0), ("x",))
