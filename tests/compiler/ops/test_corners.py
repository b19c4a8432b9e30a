"""Values at the corners of each domain: 0, infinities, nan, ties, limits; and what an op refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import apply
from op_laws.language import check, evaluate
from op_laws.recorder import Recorder
from op_laws.sample_cases import gradients_of, node_of

from dslc.base.errors import DslcError
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.special import choose, erf
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.registry import ops

INF, NAN = math.inf, math.nan
BIG = 1000.0
GEOMETRY = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1)}

CORNERS = [
    ("exp", {}, [INF, -INF, NAN, BIG, -BIG], [INF, 0, NAN, INF, 0]),
    ("log", {}, [0, -0.0, -1, INF, NAN], [-INF, -INF, NAN, INF, NAN]),
    ("log1p", {}, [-1, -2, INF, 1e-30, NAN], [-INF, NAN, INF, 1e-30, NAN]),
    ("expm1", {}, [INF, -INF, 1e-30, NAN], [INF, -1, 1e-30, NAN]),
    ("sqrt", {}, [0, INF, -1, NAN], [0, INF, NAN, NAN]),
    ("rsqrt", {}, [0, INF, -1, NAN], [INF, 0, NAN, NAN]),
    ("sin", {}, [INF, NAN, 0], [NAN, NAN, 0]),
    ("tanh", {}, [INF, -INF, NAN], [1, -1, NAN]),
    ("erf", {}, [INF, -INF, NAN, 0], [1, -1, NAN, 0]),
    ("sigmoid", {}, [INF, -INF, NAN, BIG, -BIG, 0], [1, 0, NAN, 1, 0, 0.5]),
    ("softplus", {}, [INF, -INF, NAN, BIG, -BIG], [INF, 0, NAN, BIG, 0]),
    ("relu", {}, [INF, -INF, NAN, -0.0], [INF, 0, NAN, 0]),
    ("leaky_relu", {"slope": 0.5}, [INF, -INF, NAN, 0], [INF, -INF, NAN, 0]),
    ("elu", {"alpha": 1.0}, [INF, -INF, NAN, 0], [INF, -1, NAN, 0]),
    ("silu", {}, [INF, NAN, BIG, -BIG], [INF, NAN, BIG, 0]),
    ("gelu", {"approximate": False}, [INF, NAN, BIG, -BIG], [INF, NAN, BIG, 0]),
    ("gelu", {"approximate": True}, [INF, NAN, BIG, -BIG], [INF, NAN, BIG, 0]),
    ("abs", {}, [-INF, NAN, -0.0], [INF, NAN, 0]),
    ("sign", {}, [-INF, NAN, 0], [-1, NAN, 0]),
    ("floor", {}, [-INF, NAN, -0.5], [-INF, NAN, -1]),
    ("round", {}, [0.5, 1.5, 2.5, -0.5, NAN], [0, 2, 2, 0, NAN]),
    ("clip", {"low": -1.0, "high": 1.0}, [INF, -INF, NAN], [1, -1, NAN]),
    ("powi", {"exponent": 0}, [0, INF, NAN], [1, 1, 1]),
    ("powi", {"exponent": -1}, [0, INF, NAN], [INF, 0, NAN]),
    ("asin", {}, [1.5, -2, NAN, -0.0], [NAN, NAN, NAN, -0.0]),
    ("acos", {}, [1, 1.5, INF, NAN], [0, NAN, NAN, NAN]),
    ("tan", {}, [INF, NAN, -0.0], [NAN, NAN, -0.0]),
    ("sinh", {}, [INF, -INF, NAN, BIG, -0.0], [INF, -INF, NAN, INF, -0.0]),
    ("cosh", {}, [INF, -INF, NAN, BIG, 0], [INF, INF, NAN, INF, 1]),
    ("asinh", {}, [INF, -INF, NAN, 1e-30, -0.0], [INF, -INF, NAN, 1e-30, -0.0]),
    ("acosh", {}, [1, 0.5, -2, INF, NAN], [0, NAN, NAN, INF, NAN]),
    ("atanh", {}, [1, -1, 2, 1e-30, NAN, -0.0], [INF, -INF, NAN, 1e-30, NAN, -0.0]),
    ("exp2", {}, [INF, -INF, NAN, 2000, -2000, 3], [INF, 0, NAN, INF, 0, 8]),
    ("log2", {}, [0, -0.0, -1, INF, NAN, 8], [-INF, -INF, NAN, INF, NAN, 3]),
    ("log10", {}, [0, -0.0, -1, INF, NAN, 1], [-INF, -INF, NAN, INF, NAN, 0]),
    ("erfc", {}, [INF, -INF, NAN, 0, 50], [0, 2, NAN, 1, 0]),
    ("lgamma", {}, [INF, -INF, NAN, 0, -3, 1, 2, -BIG], [INF, INF, NAN, INF, INF, 0, 0, INF]),
    ("polygamma", {"n": 0}, [INF, NAN, 0], [INF, NAN, -INF]),
    ("polygamma", {"n": 1}, [INF, NAN, 0, -1], [0, NAN, INF, INF]),
    ("polygamma", {"n": 2}, [INF, NAN, 0], [-0.0, NAN, -INF]),
    ("ceil", {}, [-INF, NAN, -0.5, 0.5], [-INF, NAN, -0.0, 1]),
    ("trunc", {}, [-INF, NAN, -0.5, 1.5], [-INF, NAN, -0.0, 1]),
    ("frac", {}, [INF, NAN, -1.5], [NAN, NAN, -0.5]),
    ("nan_to_num", {"nan": 5.0, "posinf": 7.0, "neginf": -9.0}, [INF, -INF, NAN, BIG], [7, -9, 5, BIG]),
    ("mish", {}, [INF, NAN, BIG, -BIG], [INF, NAN, BIG, 0]),
    ("softsign", {}, [INF, -INF, NAN, 0], [1, -1, NAN, 0]),
    ("logsigmoid", {}, [INF, -INF, NAN, BIG, -BIG], [0, -INF, NAN, 0, -BIG]),
    ("celu", {"alpha": 2.0}, [INF, -INF, NAN, 0], [INF, -2, NAN, 0]),
    ("hardsigmoid", {}, [INF, -INF, NAN, -3, 3], [1, 0, NAN, 0, 1]),
    ("hardtanh", {"low": -1.0, "high": 1.0}, [INF, -INF, NAN], [1, -1, NAN]),
    ("hardshrink", {"lambd": 0.5}, [INF, -INF, NAN, 0.5], [INF, -INF, NAN, 0]),
    ("softshrink", {"lambd": 0.5}, [INF, -INF, NAN, 0.5], [INF, -INF, NAN, 0]),
    ("threshold", {"threshold": 0.0, "value": 3.0}, [INF, -INF, NAN, 0], [INF, 3, NAN, 3]),
    ("cumprod", {"axis": 0, "reverse": False}, [2, INF, 0], [2, INF, NAN]),
    ("softmax", {"axis": 0}, [-INF, -INF], [NAN, NAN]),
    ("softmax", {"axis": 0}, [BIG, -BIG], [1, 0]),
    ("log_softmax", {"axis": 0}, [BIG, -BIG], [0, -2 * BIG]),
    ("max", {"over": (0,), "keep": False}, [1, NAN, 2], NAN),
    ("min", {"over": (0,), "keep": False}, [1, -INF, 2], -INF),
    ("logsumexp", {"over": (0,), "keep": False}, [NAN, 0], NAN),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "attrs", "xs", "expected"), CORNERS)
def test_corner_values(
    name: str, attrs: dict[str, object], xs: list[float], expected: list[float], dtype: type
) -> None:
    [y] = apply(ops()[name], [np.array(xs, dtype)], attrs)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.array(expected, dtype))


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("div", [1, -1, 0, INF], [0, 0, 0, INF], [INF, -INF, NAN, NAN]),
        ("pow", [0, 0, -1, -1, NAN, 1], [0, -1, 0.5, INF, 0, NAN], [1, INF, NAN, 1, 1, 1]),
        ("minimum", [NAN, 1, -INF], [1, NAN, INF], [NAN, NAN, -INF]),
        ("maximum", [NAN, 1, -INF], [1, NAN, INF], [NAN, NAN, INF]),
        ("mod", [5, -5, 5, 1], [3, 3, -3, 0], [2, 1, -1, NAN]),
        ("floordiv", [5, -5, 1], [3, 3, 0], [1, -2, INF]),
        ("fmod", [5, -5, 5, 1, INF, 3, -0.0], [3, 3, -3, 0, 2, INF, 2], [2, -2, 2, NAN, NAN, 3, -0.0]),
        ("atan2", [0, 0, INF, NAN], [-1, 0, INF, 1], [math.pi, 0, math.pi / 4, NAN]),
    ],
)
def test_corner_values_of_two(name: str, x: list[float], y: list[float], expected: list[float]) -> None:
    [z] = apply(ops()[name], [np.array(x, float), np.array(y, float)], {})
    np.testing.assert_array_equal(z, np.array(expected, float))


@pytest.mark.parametrize(
    ("name", "xs"),
    [
        ("ceil", [-0.5, -0.0, 0.0]),
        ("trunc", [-0.5, -0.0, 0.5]),
        *((name, [-0.0, 0.0]) for name in ("asin", "atan", "asinh", "atanh", "sinh", "tan", "softsign")),
    ],
)
def test_a_zero_has_the_sign_of_the_argument(name: str, xs: list[float]) -> None:
    """And ``fmod`` has the sign of its first argument."""
    for dtype in (np.float32, np.float64):
        x = np.array(xs, dtype)
        assert (np.signbit(apply(ops()[name], [x], {})[0]) == np.signbit(x)).all()
        zeros, two = np.array([-0.0, 0.0, -4.0, 4.0], dtype), np.array(2, dtype)
        assert np.signbit(apply(ops()["fmod"], [zeros, two], {})[0]).tolist() == [True, False, True, False]


def test_a_power_does_not_depend_on_how_its_exponent_lies() -> None:
    """(-inf)^0.5 is inf and (-0.0)^0.5 is 0.0, as C has them: no square root where one exponent serves all."""
    x = np.array([-INF, -0.0, 4.0], np.float32)
    for y in (np.array(0.5, np.float32), np.array([0.5], np.float32), np.full(3, 0.5, np.float32)):
        [z] = apply(ops()["pow"], [x, y], {})
        assert z.tolist() == [INF, 0.0, 2.0] and not np.signbit(z).any()


def test_comparisons_with_nan_are_false() -> None:
    for name in ("lt", "le", "gt", "ge", "eq"):
        assert not apply(ops()[name], [np.array([NAN, 1.0]), np.array([1.0, NAN])], {})[0].any()
    assert apply(ops()["ne"], [np.array([NAN]), np.array([NAN])], {})[0].all()


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_cast_of_a_float_holds_at_the_limits(dtype: str) -> None:
    bits = int(dtype[1:])
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for source in (np.float32, np.float64):
        xs = np.array([1e30, -1e30, INF, -INF, NAN, 1.9, -0.9, 3.0], source)
        [y] = apply(ops()["cast"], [xs], {"dtype": dtype})
        assert y.tolist() == [high, low, high, low, 0, 1, 0, 3]
    [scalar] = apply(ops()["cast"], [np.array(-1e30)], {"dtype": dtype})
    assert scalar.shape == () and scalar == low


def _gradient(name: str, xs: list[list[float]], attrs: dict[str, object] | None = None) -> list[list[float]]:
    arrays = [np.array(x, float) for x in xs]
    op = ops()[name]
    ys = apply(op, arrays, attrs or {})
    node = node_of(op, arrays, dict(attrs or {}))
    feeds = dict(zip((*node.inputs, *node.outputs), (*arrays, *ys)))
    return [g.tolist() for g in gradients_of(op, node, feeds, [np.ones_like(ys[0])])]


def test_gradients_at_ties_and_kinks() -> None:
    assert _gradient("maximum", [[1, 2, 3], [1, 3, 2]]) == [[0.5, 0, 1], [0.5, 1, 0]]
    assert _gradient("minimum", [[1, 2, 3], [1, 3, 2]]) == [[0.5, 1, 0], [0.5, 0, 1]]
    assert _gradient("hardtanh", [[-1, 0, 1, 2]], {"low": -1.0, "high": 1.0}) == [[0, 1, 0, 0]]
    assert _gradient("hardshrink", [[-0.5, 0.5, 0.6]], {"lambd": 0.5}) == [[0, 0, 1]]
    assert _gradient("threshold", [[0, 1]], {"threshold": 0.0, "value": 3.0}) == [[0, 1]]
    assert _gradient("nan_to_num", [[INF, NAN, 2]], {"nan": 0.0, "posinf": 1.0, "neginf": 1.0}) == [[0, 0, 1]]
    assert _gradient("atan2", [[0.0], [0.0]]) == [[0.0], [0.0]]
    assert _gradient("cumprod", [[2, 0, 3, 0, 5]], {"axis": 0, "reverse": False}) == [[1, 8, 0, 0, 0]]
    assert _gradient("max", [[3, 1, 3, 3]], {"over": (0,), "keep": False}) == [[1 / 3, 0, 1 / 3, 1 / 3]]
    assert _gradient("min", [[1, 1, 2]], {"over": (0,), "keep": True}) == [[0.5, 0.5, 0]]
    assert _gradient("relu", [[0.0, 1.0, -1.0]]) == [[0, 1, 0]]
    assert _gradient("abs", [[0.0, 2.0, -2.0]]) == [[0, 1, -1]]
    assert _gradient("clip", [[-1.0, 0.0, 1.0, 2.0]], {"low": -1.0, "high": 1.0}) == [[1, 1, 1, 0]]
    assert _gradient("pow", [[0.0, 2.0], [0.0, 0.0]]) == [[0, 0], [0, math.log(2)]]


def test_erf_against_the_math_library() -> None:
    x = np.concatenate([np.linspace(-7, 7, 40_001), [1.0, -1.0, 1e-30, 5e-324, 0.0]])
    expected = np.array([math.erf(v) for v in x])
    assert np.abs(erf(x) - expected).max() < 2e-16
    assert np.abs(erf(x.astype(np.float32)) - np.array([math.erf(v) for v in x.astype(np.float32)])).max() < 2e-7
    assert math.copysign(1, erf(np.array([-0.0]))[0]) == -1
    assert (np.diff(erf(np.linspace(-3, 3, 2001))) > 0).all()


@pytest.mark.parametrize("ids", [[0, 5], [-1, 0], [255]])
def test_an_id_outside_the_table_gives_nan(ids: list[int]) -> None:
    wrong = np.array(ids, np.int64)
    table, lost = np.ones((5, 2)), ~np.isin(wrong, range(5))
    [rows] = apply(ops()["gather_rows"], [table, wrong], {})
    assert np.isnan(rows).all(1).tolist() == np.isnan(rows).any(1).tolist() == lost.tolist()
    [sums] = apply(ops()["scatter_rows_add"], [np.ones((len(ids), 2)), wrong], {"count": 5})
    assert np.isnan(sums).all()
    [hot] = apply(ops()["one_hot"], [wrong], {"count": 5, "dtype": "f64"})
    assert np.isnan(hot).all(1).tolist() == np.isnan(hot).any(1).tolist() == lost.tolist()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_of_one_id_are_added_in_their_order(width: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([-np.zeros((1, width)), rng.normal(size=(40, width))]).astype(dtype)
    ids = np.concatenate([[2], rng.integers(0, 2, 40)])
    wanted = np.zeros((3, width), dtype)
    for i, row in zip(ids, rows):
        wanted[i] += row
    [sums] = apply(ops()["scatter_rows_add"], [rows, ids], {"count": 3})
    [same] = apply(ops()["scatter_add"], [rows, np.broadcast_to(ids[:, None], rows.shape)], {"axis": 0, "count": 3})
    assert sums.tobytes() == same.tobytes() == wanted.tobytes()


def test_an_integer_divided_by_zero_is_zero() -> None:
    x, zero = np.array([1, -7, 2**31 - 1], np.int32), np.zeros(3, np.int32)
    assert apply(ops()["floordiv"], [x, zero], {})[0].tolist() == [0, 0, 0]
    assert apply(ops()["mod"], [x, zero], {})[0].tolist() == [0, 0, 0]


def test_products_of_empty_sides_are_zero() -> None:
    [y] = apply(ops()["matmul"], [np.zeros((2, 0)), np.zeros((0, 3))], {"transpose_a": False, "transpose_b": False})
    assert y.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "i2", "u1", "?"])
def test_a_choice_has_the_bits_of_where(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = np.array([0.0, -0.0, 1.0, 7.0, *rng.uniform(0, 9, 60)]).astype(dtype)
    if x.dtype.kind == "f":
        x[:4] = [NAN, INF, -INF, -0.0]
    for shape, other in (((64,), (64,)), ((4, 16), (16,)), ((8, 8), ()), ((0,), (0,)), ((), ())):
        first, second = (np.resize(v, s).astype(dtype) for v, s in ((x, shape), (x[::-1], other)))
        condition = rng.random(shape) < 0.5
        for a, b in ((first, second), (second, first)):
            expected = np.where(condition, a, b)
            got = choose(condition, a, b)
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "code"),
    [
        ("conv", [(2, 4, 5, 5), (3, 2, 3, 3)], GEOMETRY | {"groups": 2}, "E0303"),
        ("conv", [(2, 3, 5, 5), (4, 1, 3, 3)], GEOMETRY | {"groups": 2}, "E0303"),
        ("conv_dgrad", [(2, 3, 3, 3), (3, 2, 3, 3)], GEOMETRY | {"groups": 2, "size": (5, 5)}, "E0303"),
        ("conv_wgrad", [(2, 4, 5, 5), (2, 3, 3, 3)], GEOMETRY | {"groups": 2, "size": (3, 3)}, "E0303"),
        ("pad", [(3, 4)], {"low": (-1, 2), "high": (3, 0), "interior": (0, 0), "value": 0.0}, "E0209"),
        ("pad", [(3, 4)], {"low": (1, 2), "high": (3, -1), "interior": (0, 0), "value": 0.0}, "E0209"),
        ("pad", [(3, 4)], {"low": (1, 2), "high": (3, 0), "interior": (-1, 0), "value": 0.0}, "E0209"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_op_itself(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], code: str
) -> None:
    """Whoever makes it: a layer, another op's gradient, a pass."""
    with pytest.raises(Mismatch) as caught:
        ops()[op].infer([TensorType(DType.F32, s) for s in shapes], attrs)
    assert caught.value.code == code


def test_limits_of_clip_have_the_kind_of_the_tensor() -> None:
    """Floats take any number; ints take integers, however they are written."""
    for dtype, limit, fits in (
        (DType.F32, 0.5, True), (DType.F32, 1.0, True), (DType.I32, 2.0, True), (DType.I32, 0.5, False),
    ):  # fmt: skip
        call = Recorder()
        x = call.tensor(3, dtype=dtype)
        if fits:
            assert call.build("clip", x, low=limit).type == x.type
        else:
            with pytest.raises(Mismatch) as caught:
                call.build("clip", x, low=limit)
            assert caught.value.code == "E0204"


def test_limits_of_clip_may_be_tensors_and_sizes(tmp_path: Path) -> None:
    """A limit gets the gradient of the elements that it replaces; a tie's goes half to each side; nan stays nan."""
    x = np.array([[-2.0, -1.0, 0.0, 1.0, 2.0, NAN]])
    low, high = np.array([-1.0, -1.0, 0.5, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    checked = check(tmp_path, "x: [1, 6], low: [6], high: [6]", """
  y = clip(x, low, high)
  return concat([y, gradient(y, x),
    reshape(gradient(y, low), [1, 6]), reshape(gradient(y, high), [1, 6])], axis=0)
""", "[4, 6]")  # fmt: skip
    found = evaluate(checked, {"x": x, "low": low, "high": high})
    np.testing.assert_array_equal(found[0], [-1.0, -1.0, 0.5, 1.0, 1.0, NAN])
    assert found[1:, :5].tolist() == [[0, 0.5, 0, 0.5, 0], [1, 0.5, 1, 0, 0], [0, 0, 0, 0.5, 1]]
    checked = check(tmp_path, "ids: i32[B]", "  return clip(ids - 2, -1, B // 2)", "i32[B]")
    assert evaluate(checked, {"ids": np.arange(8, dtype=np.int32)}, B=8).tolist() == [-1, -1, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(("limits", "code"), [("0, inf", "E0209"), ("nan", "E0209"), ("0, true", "E0202"),
                                              ("2, 1", "E0209"), ("", "E0201")])  # fmt: skip
def test_limits_of_clip_that_are_refused(limits: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(DslcError) as caught:
        check(tmp_path, "x: [B, 2]", f"  return clip(x{', ' + limits if limits else ''})", "[B, 2]")
    assert code in str(caught.value)


def test_scatter_names_the_axis_that_an_index_per_part_fits(tmp_path: Path) -> None:
    with pytest.raises(DslcError, match="`axis=0`"):
        check(tmp_path, "x: [9, 2], at: i32[B], y: [B, 2]", '  return scatter(x, at, y, mode="add")', "[9, 2]")
