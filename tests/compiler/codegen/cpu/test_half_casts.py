"""Casts from and to f16 and bf16 on the CPU, exact to the bit: of all their values and of the middles between them."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.sample_cases import OPS
from thinning import taken

from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.cpu.object.compile import object_of
from dslc.compiler.ir.graph import Input, Kind, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType

HALVES = [DType.F16, DType.BF16]
BITS = np.arange(1 << 16, dtype=np.uint16)
DIGITS = {DType.F16: (11, -14, 15), DType.BF16: (8, -126, 127)}  # of a significand; the exponents of normal numbers


def value(dtype: DType, *shape: int) -> Value:
    return Input("x", Kind.DATA, TensorType(dtype, shape), None).value


def cast(source: DType, target: DType, x: np.ndarray) -> np.ndarray:
    node = Builder(name="here").node(OPS["cast"], value(source, *x.shape), dtype=target)
    return Native(node).run([x])[0]


def numbers(dtype: DType) -> np.ndarray:
    """All values of a dtype, in f64: their significands times powers of two, then the infinities; no nan."""
    digits, least, most = DIGITS[dtype]
    size = BITS[: 1 << 15].astype(np.int64)
    exponent, low = size >> (digits - 1), size & ((1 << digits - 1) - 1)
    whole = np.where(exponent > 0, low + (1 << digits - 1), low)
    found = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - 1 + least - (digits - 1))
    last = most - least + 1
    found = np.where(exponent > last, np.where(low == 0, np.inf, np.nan), found)
    return np.concatenate([found, -found])


def held(x: np.ndarray, dtype: DType) -> np.ndarray:
    """As the CPU's memory holds them."""
    return x.view(np.float16) if dtype is DType.F16 else x


def nearest(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The bits of the nearest values of a dtype, of two the even one: by a search in all of them."""
    finite = numbers(dtype)[: 1 << 15]
    count = int(np.isfinite(finite).sum())
    grid = np.append(finite[:count], 2 * finite[count - 1] - finite[count - 2])  # the last stands for infinity
    size = np.minimum(np.abs(x.astype(np.float64)), 1e39)
    above = np.clip(np.searchsorted(grid, size), 0, count)
    below = np.maximum(above - 1, 0)
    middle = (grid[below] + grid[above]) / 2  # exact: one more digit
    up = (size > middle) | ((size == middle) & (above % 2 == 0))
    found = np.where((size == grid[above]) | up, above, below)
    return np.where(np.signbit(x), found + (1 << 15), found).astype(np.uint16)


@pytest.mark.parametrize("wide", [DType.F32, DType.F64])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_value_there_and_back(dtype: DType, wide: DType) -> None:
    want = numbers(dtype)
    found = cast(dtype, wide, held(BITS, dtype))
    np.testing.assert_array_equal(found, want)
    assert np.array_equal(np.signbit(found[want == 0]), [False, True])
    back = cast(wide, dtype, found).view(np.uint16)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(back[known], BITS[known])
    exponent = numbers(dtype)
    assert np.isnan(exponent[back[~known]]).all()


@pytest.mark.parametrize("wide", [DType.F32, DType.F64])
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_between_two_values_and_their_neighbours(dtype: DType, wide: DType) -> None:
    """Every middle of two neighbours goes to the even one, and what is next to a middle to the nearer one."""
    kind = np.float32 if wide is DType.F32 else np.float64
    all_of = numbers(dtype)
    finite = np.unique(all_of[np.isfinite(all_of)])
    beyond = 2 * finite[-1] - finite[-2]
    grid = np.concatenate([[-beyond], finite, [beyond]])
    with np.errstate(over="ignore"):
        middle = ((grid[:-1] + grid[1:]) / 2).astype(kind)
        xs = np.concatenate([middle, np.nextafter(middle, kind(np.inf)), np.nextafter(middle, kind(-np.inf))])
    xs = np.concatenate([xs, np.array([0.0, -0.0, np.inf, -np.inf, 1e38, -1e38, 1e-45, -1e-45], kind)])
    got = cast(wide, dtype, xs).view(np.uint16)
    want = nearest(xs, dtype)
    np.testing.assert_array_equal(got, want)
    assert (cast(wide, dtype, np.array([np.nan, -np.nan], kind)).view(np.uint16) & 0x7FFF > nearest(
        np.array([np.inf]), dtype)).all()  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
def test_an_f64_is_rounded_once(dtype: DType) -> None:
    """An f32 in between would be a half, and would go to the wrong side."""
    digits = DIGITS[dtype][0]
    ulp = 2.0 ** (1 - digits)
    xs = np.array([1 + ulp / 2 + 2.0**-40, 1 + ulp * 3 / 2 - 2.0**-40, -1 - ulp / 2 - 2.0**-45, 1e300, -1e300, 1e-300])
    got = cast(DType.F64, dtype, xs).view(np.uint16)
    one = int(nearest(np.array([1.0]), dtype)[0])
    top = int(nearest(np.array([np.inf]), dtype)[0])
    assert got.tolist() == [one + 1, one + 1, (one + 1) | 0x8000, top, top | 0x8000, 0]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("source", [d for d in DType if d.is_int or d is DType.B1], ids=str)
def test_integers(source: DType, dtype: DType) -> None:
    rng = np.random.default_rng(0)
    low, high = (0, 1) if source is DType.B1 else source.limits
    low, high = max(low, -(2**53)), min(high, 2**53)
    name = {"b": "bool", "i": "int", "u": "uint"}[source.value[0]] + source.value[1:] * source.is_int
    shift = rng.integers(0, 53, 2000)
    xs = np.array([low, high, 0, 1, *(int(v) >> int(s) for v, s in zip(rng.integers(low, high, 2000), shift))], name)
    got = cast(source, dtype, xs)
    np.testing.assert_array_equal(got.view(np.uint16), nearest(xs.astype(np.float64), dtype))
    back = np.array([0.0, 0.5, 1.9, -1.9, 100.4, 300.0, -300.0, 65504.0, np.inf, -np.inf, np.nan])
    narrow = held(np.where(np.isnan(back), 0x7FFF, nearest(back, dtype)).astype(np.uint16), dtype)
    want = OPS["cast"].meaning([numbers(dtype)[narrow.view(np.uint16)]], {"dtype": source.value})[0]
    np.testing.assert_array_equal(cast(dtype, source, narrow), want)


def _nodes(dtype: DType, size: int) -> list[Node]:
    x, ids = value(dtype, 3, size), value(DType.U16, 2)
    b = Builder(name="here")
    return [
        b.node(OPS["cast"], x, dtype=DType.F32),
        b.node(OPS["cast"], value(DType.F32, 3, size), dtype=dtype),
        b.node(OPS["cast"], value(DType.F64, 3, size), dtype=dtype),
        b.node(OPS["transpose"], x, perm=(1, 0)),
        b.node(OPS["full"], value=0.1, dtype=dtype, shape=(size,)),
        b.node(OPS["pad"], x, low=(0, 1), high=(1, 2), interior=(0, 0), value=float("-1.5")),
        b.node(OPS["gather_rows"], x, ids),
        b.node(OPS["concat"], x, x, axis=1),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
def test_code_for_every_level(dtype: DType) -> None:
    """Vectors of all lengths, also on processors other than this one."""
    for size in taken((1, 2, 3, 5, 7, 16, 31), 4):
        for node in _nodes(dtype, size):
            for launch in lower(node) or []:
                for level in LEVELS:
                    assert object_of({launch.symbol: launch.code}, level)


@pytest.mark.parametrize("dtype", HALVES)
def test_ops_that_move_elements_keep_all_bits(dtype: DType) -> None:
    x = held(
        np.random.default_rng(0).integers(0, 0x7C00 if dtype is DType.F16 else 0x7F80, (3, 7)).astype(np.uint16), dtype
    )
    for node in _nodes(dtype, 7)[3:]:
        given = [x] * len(node.inputs)
        if node.op.name == "gather_rows":
            given[1] = np.array([2, 9], np.uint16)
        [got] = Native(node).run(given)
        bits = got.view(np.uint16)
        if node.op.name == "full":
            assert (bits == nearest(np.array([np.float32(0.1)]), dtype)[0]).all()
        elif node.op.name == "gather_rows":
            assert np.array_equal(bits[0], x.view(np.uint16)[2]) and np.isnan(numbers(dtype)[bits[1]]).all()
        elif node.op.name == "pad":
            assert np.array_equal(bits[:3, 1:8], x.view(np.uint16))
            assert (bits[3] == nearest(np.array([-1.5]), dtype)[0]).all()
        else:
            [want] = node.op.meaning([x.view(np.uint16)] * len(node.inputs), node.attrs)
            np.testing.assert_array_equal(bits, want)
