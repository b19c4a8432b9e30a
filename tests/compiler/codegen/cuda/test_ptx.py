"""The PTX of kernels that choose among arguments or draw random bits, run by an interpreter: what the simulator gives
for their texts, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels import dropout_graphs, multi_tensor_nodes, ptx_machine, simulator
from gpu_kernels.ptx_comparison import compared
from gpu_kernels.ptx_steps import Registers, step_of
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.runtime.artifact.dtypes import numpy_dtype

SHAPES = ((3, 5), (1,), (37,), (16,))


@pytest.mark.parametrize("narrow", [DType.F32, DType.BF16])
@pytest.mark.parametrize("step", ["sgd_update", "sgd_momentum_update"])
def test_optimizer_steps_in_one_launch(step: str, narrow: DType) -> None:
    compared(*multi_tensor_nodes.update(step, SHAPES, narrow))


def test_many_groups() -> None:
    """A switch of 20 ways."""
    compared(*multi_tensor_nodes.update("sgd_momentum_update", [(2 + i % 5,) for i in range(20)]), threads=4)


def test_casts() -> None:
    xs = [np.random.default_rng(1).normal(size=s).astype(np.float32) for s in SHAPES]
    values = [multi_tensor_nodes.value(DType.F32, s) for s in SHAPES]
    compared(Builder(name="here").node(OPS["casts"], *values, dtype=DType.BF16), xs)


def test_picks() -> None:
    xs = [np.arange(n) % 3 == 1 for n in (5, 1, 9)]
    values = [multi_tensor_nodes.value(DType.B1, x.shape) for x in xs]
    attrs = {"source": (0, 2, 1, 0, 2, 2), "place": (1, 4, 0, 3, 8, 1)}
    compared(Builder(name="here").node(OPS["pick"], *values, **attrs), xs)


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32])
@pytest.mark.parametrize("name", ["and", "or", "xor", "left_shift", "right_shift"])
def test_bits_of_integers(name: str, dtype: DType) -> None:
    """Also shifts by the width, by more and by negative numbers."""
    info = np.iinfo(numpy_dtype(dtype.value))
    x = np.array([1, info.max, info.min, 77, 3, info.min, info.max, 5, info.min], info.dtype)
    y = np.array([3, info.bits - 1, 2, info.bits, 0, 127, 1, info.max, max(info.min, -1)], info.dtype)
    values = [multi_tensor_nodes.value(dtype, x.shape) for _ in range(2)]
    compared(Builder(name="here").node(OPS[f"bitwise_{name}"], *values), [x, y])


ROUNDED: list[tuple[str, dict[str, Any]]] = [
    ("ceil", {}), ("trunc", {}), ("isnan", {}), ("isinf", {}), ("isfinite", {}), ("softsign", {}), ("hardsigmoid", {}),
    ("nan_to_num", {"nan": 1.0, "posinf": 2.0, "neginf": -2.0}), ("hardshrink", {"lambd": 0.5}),
    ("softshrink", {"lambd": 0.5}), ("threshold", {"threshold": 0.5, "value": 3.0}),
    ("hardtanh", {"low": 0.0, "high": 6.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), ROUNDED, ids=[n for n, _ in ROUNDED])
def test_corners_of_functions_that_only_choose_and_round(name: str, attrs: dict[str, Any]) -> None:
    xs = [np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 1e30, -1e-40, np.inf, -np.inf, np.nan, 6.0, 3e38], np.float32)]
    compared(Builder(name="here").node(OPS[name], multi_tensor_nodes.value(DType.F32, xs[0].shape), **attrs), xs)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize("shape", [(5, 64), (3, 20), (7, 9)])
def test_dropout_within_a_kernel(dtype: DType, shape: tuple[int, int]) -> None:
    graph = dropout_graphs.net(dtype, *shape)
    [node] = inline(fuse_graph(graph)).nodes
    feeds = dropout_graphs.given(graph)
    names = {i.value: i.name for i in graph.inputs}
    compared(node, [feeds[names[v]] for v in node.inputs], threads=64)


@pytest.mark.parametrize(
    ("dtype", "shape", "over"),
    [
        (DType.F32, (5, 24), (0,)),
        (DType.BF16, (5, 24), (0,)),
        (DType.F32, (3, 20), (0,)),
        (DType.BF16, (3, 20), (0,)),
        (DType.F32, (2, 3, 5, 4), (0, 2, 3)),
    ],
)
def test_dropout_within_sums(dtype: DType, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    """With sums over the threads of a block, in shared memory and by exchange."""
    graph = dropout_graphs.gradient(dtype, shape, over)
    [node] = inline(graph).nodes
    feeds = dropout_graphs.given(graph)
    names = {i.value: i.name for i in graph.inputs}
    compared(node, [feeds[names[v]] for v in node.inputs], threads=None)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_blocks_that_go_from_the_end(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    xs = [simulator.held(rng.normal(size=2600), dtype) for _ in range(2)]
    node = Builder(name="here").node(OPS["add"], *(multi_tensor_nodes.value(dtype, x.shape) for x in xs))
    assert cuda_compile.geometry((lower(node) or [])[0].spec).grid[0] > 1
    compared(node, xs, threads=256)


SIZES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("add", [(6, 40), (40,)], {}),
    ("add", [(6, 7), (6, 1)], {}),
    ("mul", [(3, 5, 16), (5, 1)], {}),
    ("add", [(2, 3, 5, 7), (3, 1, 7)], {}),
    ("slice", [(6, 9)], {"starts": (1, 2), "stops": (6, 7), "steps": (1, 2)}),
    ("transpose", [(3, 4, 5)], {"perm": (2, 0, 1)}),
]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize(("name", "shapes", "attrs"), SIZES, ids=[f"{n}-{s[0]}" for n, s, _ in SIZES])
def test_sizes_that_a_kernel_is_called_with(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], dtype: DType
) -> None:
    rng = np.random.default_rng(3)
    xs = [simulator.held(rng.normal(size=s), dtype) for s in shapes]
    node = Builder(name="here").node(OPS[name], *(multi_tensor_nodes.value(dtype, s) for s in shapes), **attrs)
    assert any(launch.scalar_args for launch in lower(node) or [])
    compared(node, xs, threads=256)


def test_an_access_outside_of_memory_is_an_error() -> None:
    node, _ = multi_tensor_nodes.update("sgd_update", SHAPES)
    [launch] = [x for x in lower(node) or [] if len(x.reads) > 2]
    ptx = cuda_compile.compiled(launch.spec, launch.symbol, "sm_90").ptx.decode("ascii")
    with pytest.raises(AssertionError, match="outside"), np.errstate(all="ignore"):
        ptx_machine.run(ptx, 4, 8, [np.zeros(1, np.float32) for _ in (*launch.reads, *launch.writes)])


def test_an_unknown_instruction_is_an_error_where_a_thread_comes_to_it() -> None:
    """The kernel of a cosine adds with carry for angles above 1e5, to which no sample comes."""
    step = step_of(("madc", "hi", "u32"), ["%r1", "%r2", "%r3", "%r4"], str)
    assert step is not None
    with pytest.raises(NotImplementedError, match="madc"):
        step(None, Registers())
