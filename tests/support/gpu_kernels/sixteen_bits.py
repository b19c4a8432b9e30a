"""All numbers of bf16 and f16 through the trees of pointwise ops, and how far from f64 the results are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.sample_nodes import OPS, SAMPLES

from dslc.compiler.codegen.cuda.region.fast_math import relaxed
from dslc.compiler.ir import scalar
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.elementwise.arithmetic import Elementwise

COUNT = 1 << 16
#: Mantissa bits after the first, the least exponent of a normal number, the greatest number.
FORMAT = {DType.BF16: (7, -126, 3.3895313892515355e38), DType.F16: (10, -14, 65504.0)}
#: Results below are not held to anything: inside these ops f32 that is not normal may be 0, a power is too large, or
#: terms cancel near zeros.
LEAST = {
    **dict.fromkeys(("gelu", "gelu_grad", "sigmoid", "silu"), 2.0**-119), "powi": 2.0**-126,
    "lgamma": 2.0**-14, "polygamma 0": 2.0**-9,
}  # fmt: skip

_erfc = np.vectorize(math.erfc, otypes=[float])
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715


def _inside(x: np.ndarray) -> np.ndarray:
    return (x + x * x * x * _CUBIC) * _ROOT


def _gelu_grad_by_tanh(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    e = np.exp(-2 * np.abs(_inside(x)))
    slope = 2 * x * e / (1 + e) ** 2 * (1 + 3 * _CUBIC * x * x) * _ROOT
    return dy * (np.where(_inside(x) < 0, e, 1) / (1 + e) + slope)


#: In f64 without the cancellation that the ops' formulas have for numbers below 0: by name and ``approximate``.
EXACT: dict[tuple[str, bool], Callable[..., np.ndarray]] = {
    ("gelu", False): lambda x: x * 0.5 * _erfc(-x * math.sqrt(0.5)),
    ("gelu", True): lambda x: x / (1 + np.exp(-2 * _inside(x))),
    ("gelu_grad", False): lambda x, dy: (
        dy * (0.5 * _erfc(-x * math.sqrt(0.5)) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))
    ),
    ("gelu_grad", True): _gelu_grad_by_tanh,
}


def cases() -> Iterator[tuple[str, Mapping[str, Any], DType]]:
    """Name, attributes and dtype of every pointwise op of the samples that takes floats and whose tree is another for
    a result of 16 bits."""
    for name in sorted(SAMPLES):
        op, seen = OPS.get(name), list[Any]()
        if not isinstance(op, Pointwise) or (isinstance(op, Elementwise) and op.accepts == "int"):
            continue
        for attrs in (sample.attrs for sample in SAMPLES[name]):
            if DType.FLOAT in attrs.values() or attrs in seen:
                continue
            seen.append(attrs)
            yield from ((name, attrs, d) for d in FORMAT if relaxed(tree_of(name, attrs), d) != tree_of(name, attrs))


def tree_of(name: str, attrs: Mapping[str, Any]) -> Expr:
    op = OPS[name]
    assert isinstance(op, Pointwise)
    return op.scalar(attrs, *(scalar.argument(n) for n in range(op.arity)))


def arguments(name: str, dtype: DType) -> list[np.ndarray]:
    """f32 of all 65,536 numbers, and a second operand: of all sizes for a quotient, else normally distributed."""
    rng = np.random.default_rng(COUNT)
    op, bits = OPS[name], np.arange(COUNT, dtype=np.uint16)
    assert isinstance(op, Pointwise)
    with np.errstate(invalid="ignore"):  # signalling nan
        every = simulator.values(bits if dtype is DType.BF16 else bits.view(np.float16), dtype)
    others = [
        every[rng.permutation(COUNT)] if name == "div" else simulator.held(rng.normal(size=COUNT), dtype)
        for _ in range(op.arity - 1)
    ]
    return [every, *(np.asarray(x, np.float32) for x in others)]


def exact(name: str, attrs: Mapping[str, Any], xs: list[np.ndarray]) -> np.ndarray:
    """The results in f64."""
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64) for x in xs]
        known = EXACT.get((name, bool(attrs.get("approximate"))))
        return np.asarray(known(*wide) if known else scalar.evaluate(tree_of(name, attrs), wide))


def evaluated(expr: Expr, xs: list[np.ndarray]) -> Any:
    """A tree, relaxed or not, in f32."""
    if expr.function == "arg":
        return xs[expr.index]
    if expr.function == "const":
        return expr.value if isinstance(expr.value, bool) else np.float32(expr.value)
    values = [evaluated(x, xs) for x in expr.args]
    return (simulator.fast if expr.function in simulator.FAST else simulator._scalar)(expr.function, *values)


@dataclass(frozen=True)
class Judged:
    """Errors in units of the last place of what f64 has: the greatest, and the root mean square of all; that of f64 and
    that of the op's tree in f32, rounded. How many are nan where the tree in f32 is not, or the other way round."""

    most: float
    rms: float
    rounded: float
    accurate: float
    other_nan: int
    allowed: float

    @property
    def wrong(self) -> list[str]:
        found = [] if self.most <= self.allowed else [f"an error of {self.most:.2f} units"]
        if self.rms > 1.1 * self.rounded:
            found.append(f"{self.rms / self.rounded:.2f} times the error of rounding")
        return found + [f"{self.other_nan} other nan"] * bool(self.other_nan)


def judged(name: str, attrs: Mapping[str, Any], dtype: DType, compute: Callable[..., np.ndarray]) -> Judged:
    """``compute(xs)`` gives an op's results for all numbers, in f32 or as they are rounded."""
    xs = arguments(name, dtype)
    wanted = exact(name, attrs, xs)
    with np.errstate(all="ignore"):
        found, accurate, nearest = (
            simulator.held(np.asarray(x, np.float32), dtype)
            for x in (compute(xs), evaluated(tree_of(name, attrs), xs), wanted)
        )
        bits, least, greatest = FORMAT[dtype]
        held = LEAST.get(f"{name} {attrs['n']}" if "n" in attrs else name, 0)
        counted = np.isfinite(nearest) & (np.abs(wanted) <= greatest) & ((np.abs(wanted) >= held) | (wanted == 0))
        counted &= np.isfinite(accurate)  # but for products beyond f32 inside the op
        unit = np.ldexp(1.0, np.maximum(np.frexp(wanted)[1] - 1, least) - bits)
        off = [np.abs(x.astype(np.float64) - wanted)[counted] / unit[counted] for x in (found, nearest, accurate)]
    rms = (float(np.sqrt(np.mean(x**2))) for x in off)
    nan = int(np.sum(np.isnan(found) != np.isnan(accurate)))
    # where gelu is least its gradient's terms cancel, of whose 24 bits f16 shows more than its own
    allowed = 3 if name == "gelu_grad" and dtype is DType.F16 else 0.63  # half by rounding, an eighth by tanh
    return Judged(float(off[0].max()), *rms, nan, allowed)
