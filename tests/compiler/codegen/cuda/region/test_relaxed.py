"""Functions for results of 16 bits: their errors over all numbers of bf16 and f16, each instruction at its worst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gpu_kernels import dropout_graphs, simulator, sixteen_bits
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.ptx_comparison import compared
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.fast_math import relaxed, relaxed_exponentials
from dslc.compiler.ir.graph import Graph, order
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.scalar import Expr, argument, call, evaluate
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph

pytestmark = pytest.mark.slow

CASES = list(sixteen_bits.cases())
X, Y, Z = map(argument, range(3))


def test_ops_that_are_computed_otherwise() -> None:
    wanted = {"exp", "tanh", "sigmoid", "silu", "gelu", "gelu_grad", "sqrt", "rsqrt", "div"}
    for dtype in sixteen_bits.FORMAT:
        assert wanted <= {name for name, _, d in CASES if d is dtype}


@pytest.mark.parametrize(("name", "attrs", "dtype"), CASES, ids=[f"{n}-{d}-{i}" for i, (n, _, d) in enumerate(CASES)])
def test_all_numbers(name: str, attrs: Mapping[str, Any], dtype: DType) -> None:
    tree = relaxed(sixteen_bits.tree_of(name, attrs), dtype)
    found = sixteen_bits.judged(name, attrs, dtype, lambda xs: sixteen_bits.evaluated(tree, xs))
    assert not found.wrong


@pytest.mark.parametrize(
    "tree",
    [
        X * Y - Z,
        Z - X * Y,
        X * Y + Z,
        Z + X * Y,
        (X * 4) * (Y * 0.25),
        (X * 3) * (0.5 * Y),
        X * Y / 8,
        1 - X * X,
        -X * Y,
    ],
)
def test_sums_and_products_stay_what_they_are(tree: Expr) -> None:
    xs = [x.astype(np.float32) for x in np.random.default_rng(5).normal(size=(3, 100))]
    found = sixteen_bits.evaluated(relaxed(tree, DType.F16), xs)
    assert np.allclose(found, evaluate(tree, [x.astype(np.float64) for x in xs]), rtol=1e-5, atol=1e-6)


def test_tanh_by_itself_is_one_instruction_for_bf16_alone() -> None:
    t = call("tanh", X)
    assert relaxed(t, DType.BF16) == Expr("fast_tanh", (X,))
    assert "fast_tanh" not in repr(relaxed(t, DType.F16)) + repr(relaxed(X * t, DType.BF16))


@pytest.mark.parametrize("function", ["floor", "round", "sign", "log", "sin"])
def test_nothing_changes_below_a_function_that_jumps_or_magnifies(function: str) -> None:
    tree = call(function, X / Y)
    assert relaxed(tree, DType.BF16) == tree
    tree = call("select", X / Y > 1, X, 0)
    assert relaxed(tree, DType.BF16) == tree


def test_a_quotient_by_what_is_not_small_or_large_takes_one_step() -> None:
    e = call("exp", -call("abs", X))
    assert [x.function for x in relaxed(X / (1 + e), DType.F16).args] == ["arg", "fast_inverse"]
    assert relaxed(X / (1 + call("exp", X)), DType.F16).function == "fast_div"


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_fused_is_unfused(dtype: DType) -> None:
    x, y = (dropout_graphs.value(name, dtype, 9, 40) for name in "xy")
    b = Builder(name="here")
    gated = b(OPS["mul"], b(OPS["tanh"], x.value), b(OPS["sigmoid"], y.value))
    last = b(OPS["div"], b(OPS["gelu"], gated, approximate=True), b(OPS["exp"], y.value))
    apart = Graph((x, y), order([last]), {"y": last})
    together = fuse_graph(apart)
    assert len(together.nodes) == 1 < len(apart.nodes)
    [one], [other] = dropout_graphs.run(apart), dropout_graphs.run(together)
    assert one.tobytes() == other.tobytes() and np.unique(one).size > 100


@pytest.mark.parametrize(("dtype", "fast"), [(DType.BF16, True), (DType.F16, True), (DType.F32, False)])
def test_exponentials_inside_an_op_that_reads_16_bits(dtype: DType, fast: bool) -> None:
    """Losses are as near to f64 as f32 has them."""
    rng = np.random.default_rng(6)
    x, target = simulator.held(3 * rng.normal(size=(40, 1000)), dtype), rng.integers(0, 1000, 40).astype(np.int32)
    values = [value(dtype, x.shape), value(DType.I32, target.shape)]
    node = Builder(name="here").node(OPS["softmax_cross_entropy"], *values, axis=1, smoothing=0.0)
    [launch] = lower(node) or []
    assert ("flushed_exp2" in source_of("k", launch.code).text) is fast
    found = simulated(node, [x, target])
    assert found is not None
    wide = x.astype(np.float64)
    lse = np.log(np.exp(wide).sum(axis=1))
    np.testing.assert_allclose(found[1] + np.log(found[2]), lse, rtol=5e-7)
    np.testing.assert_allclose(found[0], lse - wide[np.arange(40), target], rtol=1e-6, atol=2e-6)


def test_other_exponentials_stay() -> None:
    found = relaxed_exponentials(call("exp", X - Z) + call("exp", Y), {0})
    assert [x.function for x in found.args] == ["flushed_exp2", "exp"]


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "exp", "sqrt", "gelu"])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_as_compiled(name: str, dtype: DType) -> None:
    """The compiler's code gives the bits of the text."""
    xs = [simulator.held(np.random.default_rng(4).normal(size=64), dtype)]
    attrs = {"approximate": False} if name == "gelu" else {}
    compared(Builder(name="here").node(OPS[name], value(dtype, (64,)), **attrs), xs, threads=8)


def test_f32_stays() -> None:
    for name in ("tanh", "sigmoid", "exp", "sqrt", "div", "gelu"):
        attrs = {"approximate": False} if name == "gelu" else {}
        op = OPS[name]
        node = Builder(name="here").node(op, *(value(DType.F32, (64,)) for _ in range(op.arity)), **attrs)
        [launch] = lower(node) or []
        text = source_of("k", launch.code).text
        assert "fast" not in text and "fma" not in text
