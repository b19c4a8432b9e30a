"""Dropout as a step of a kernel of elements or of sums: the same bits as by itself, whatever is the row and the
vector."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gpu_kernels.dropout_graphs import SCALARS, given, gradient, graph_with, net, run, value
from gpu_kernels.kernel_sources import source_of

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.ops import registry
from dslc.compiler.ops.random.philox import MULTIPLIERS
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.fuse.reduction.reduction_outputs import reduction_outputs

registry.load_all()


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.F64])
@pytest.mark.parametrize("shape", [(5, 64), (3, 20), (7, 9), (40, 128)])
def test_the_bits_are_those_of_the_op(dtype: DType, shape: tuple[int, int]) -> None:
    """Rows of 20 or 9 elements, the first of which has number 3: a thread's elements lie in two draws."""
    graph = net(dtype, *shape)
    joined = inline(fuse_graph(graph))
    verify_graph(joined)
    assert [n.op.name for n in joined.nodes] == ["fused"] and inline(joined) is joined
    [one], [other] = run(fuse_graph(graph)), run(joined)
    assert one.tobytes() == other.tobytes()
    r = given(graph)["r"]
    assert 0.1 < np.mean(other == r) < 0.9


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F64])
@pytest.mark.parametrize(
    ("shape", "over"),
    [
        ((5, 64), (0,)),
        ((700, 24), (0,)),
        ((301, 20), (0,)),
        ((7, 300), (1,)),
        ((33, 4), (1,)),
        ((3, 5, 8), (0, 1)),
        ((2, 3, 20, 12), (0, 2, 3)),  # a row of sums is two stretches of a tensor
        ((4, 6, 8), (0, 2)),
        ((4, 6, 8), (1,)),
        ((3600, 60), (0,)),  # in parts of several pieces
        ((1511, 104), (0,)),  # in parts, and a smaller part
        ((6, 60_000), (1,)),
    ],
)
def test_sums_draw_for_themselves(dtype: DType, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    graph = gradient(dtype, shape, over)
    joined = inline(graph)
    verify_graph(joined)
    assert [n.op.name for n in joined.nodes] == ["fused_sums"] and inline(joined) is joined
    assert len(joined.nodes[0].inputs) == 6
    apart, together = run(graph), run(joined)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(apart, together, strict=True))
    assert 0.1 < np.mean(together[1] == 0) < 0.5


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_a_gradient_that_others_want_is_dropped_where_it_is_summed(dtype: DType) -> None:
    """dy = where(x <= 0, 0, dz), dropped and kept for the products, and summed for the bias: one launch in place of
    three, and one to add up parts."""
    x, dz = value("x", dtype, 512, 256), value("dz", dtype, 512, 256)
    scalars = [value(name, DType.I64) for name in SCALARS]
    b = Builder(name="here", phase=Phase.BACKWARD)
    zero = b(OPS["full"], shape=(), dtype=dtype, value=0.0)
    dy = b(OPS["where"], b(OPS["le"], x.value, zero), zero, dz.value)
    attrs: dict[str, Any] = {"p": 0.25, "key": 5, "row_elements": 256}
    dropped = b(OPS["dropout"], dy, *(s.value for s in scalars), **attrs)
    graph = fuse_graph(graph_with([x, dz, *scalars], dropped, b(OPS["sum"], dropped, over=(0,), keep=False)))
    joined = reduction_outputs(inline(graph))
    verify_graph(joined)
    assert [n.op.name for n in joined.nodes] == ["fused_sums"] and len(lower(joined.nodes[0]) or []) == 2
    for one, other in zip(run(graph), run(joined), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_all_or_nothing_in_sums(p: float) -> None:
    graph = gradient(DType.F32, (5, 64), (0,), p)
    for one, other in zip(run(graph), run(inline(graph)), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_all_or_nothing(p: float) -> None:
    graph = net(DType.F32, 4, 8, p)
    [one], [other] = run(fuse_graph(graph)), run(inline(fuse_graph(graph)))
    assert one.tobytes() == other.tobytes()


def test_what_others_read_stays() -> None:
    graph = net(DType.F32, 4, 8)
    relu, drawn = (next(n for n in graph.nodes if n.op.name == name) for name in ("relu", "dropout"))
    several = graph_with(list(graph.inputs), *graph.outputs.values(), relu.out, drawn.out)
    found = inline(fuse_graph(several))
    verify_graph(found)
    assert [n.op.name for n in found.nodes].count("dropout") == 1


def test_masks_of_forward_and_backward_are_the_same() -> None:
    x, dy = value("x", DType.F32, 6, 12), value("dy", DType.F32, 6, 12)
    scalars = [value(name, DType.I64) for name in SCALARS]
    attrs: dict[str, Any] = {"p": 0.5, "key": 99, "row_elements": 12}
    b, back = Builder(name="here"), Builder(name="here", phase=Phase.BACKWARD)
    y = b(OPS["dropout"], b(OPS["exp"], x.value), *(s.value for s in scalars), **attrs)
    dx = back(OPS["mul"], back(OPS["dropout"], dy.value, *(s.value for s in scalars), **attrs), x.value)
    found = inline(graph_with([x, dy, *scalars], y, dx))
    assert [n.op.name for n in found.nodes] == ["fused", "fused"]
    forward, gradient = run(found)
    assert np.array_equal(forward == 0, gradient == 0) and 0 < np.mean(forward == 0) < 1


def _fused(dtype: DType, *shape: int) -> Node:
    [node] = inline(fuse_graph(net(dtype, *shape))).nodes
    return node


@pytest.mark.parametrize(
    ("dtype", "columns", "draws"), [(DType.BF16, 1024, 2), (DType.BF16, 1048, 1), (DType.F32, 1024, 1)]
)
def test_one_draw_serves_eight_elements(dtype: DType, columns: int, draws: int) -> None:
    """A thread of bf16 has two, where its elements are of one row."""
    [launch] = lower(_fused(dtype, 512, columns)) or []
    assert cuda_compile.geometry(launch.spec).grid == (512 * columns // (draws * 8 * 256), 1, 1)
    assert _products(launch) == 20 * draws, "ten rounds of two for each"


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_one_draw_serves_eight_elements_of_sums(dtype: DType) -> None:
    """A thread has two vectors of eight at once."""
    [node] = inline(gradient(dtype, (4096, 512), (0,))).nodes
    launch, _ = lower(node) or []
    assert _products(launch) == 40


def _products(launch: Launch) -> int:
    """Those by the numbers of Philox, in code without local memory."""
    ptx = cuda_compile.compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")
    assert ".local" not in ptx
    numbers = [found[1] for m in MULTIPLIERS for found in re.finditer(rf"mov\.u32 \s*(%r\d+), {m - (1 << 32)};", ptx)]
    return sum(len(re.findall(rf"\bmul\.wide\.u32 [^;]*, {n};", ptx)) for n in numbers)


@pytest.mark.parametrize(("dtype", "threads"), [(DType.BF16, 1024), (DType.F32, 512)])
def test_threads_that_draw_for_wide_vectors_have_twice_the_registers(dtype: DType, threads: int) -> None:
    [node] = inline(gradient(dtype, (4096, 512), (0,))).nodes
    source = source_of("k", (lower(node) or [])[0].code)
    assert source.threads * source.resident == threads
