"""The global norm of many tensors: two launches, equal bits for equal numbers of any dtype; compiled, against f64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.llvm import library, lookup
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.grad_norm import Squares
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

#: One element, less than a vector, whole vectors, nothing, a chunk, two chunks and a rest.
SHAPES = ((), (3, 2), (16,), (0, 3), (2, 4096), (8203,))


def node_of(dtypes: list[DType], shapes: tuple[tuple[int, ...], ...]) -> Node:
    values = [value(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    return Builder(name="here").node(OPS["global_norm"], *values)


def norm_of(dtypes: list[DType], shapes: tuple[tuple[int, ...], ...] = SHAPES) -> tuple[Node, list[np.ndarray]]:
    rng = np.random.default_rng(len(dtypes))
    xs = [simulator.held(rng.normal(size=shape), dtype) for dtype, shape in zip(dtypes, shapes, strict=True)]
    return node_of(dtypes, shapes), xs


def exact(xs: list[np.ndarray]) -> float:
    return math.sqrt(math.fsum(float(v) ** 2 for x in xs for v in x.flat))


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No table of blocks fits: a block searches for its tensor."""
    monkeypatch.setattr(lookup, "_MAX_TABLE", 0)
    library.writer_of.cache_clear()
    yield
    library.writer_of.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.F64])
def test_as_compiled(dtype: DType) -> None:
    node, xs = norm_of([dtype] * len(SHAPES))
    [got] = on_machine(node, xs)
    assert got == pytest.approx(exact(xs), rel=1e-14 if dtype is DType.F64 else 2e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("searching")
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_as_compiled_with_a_search_for_the_tensor(count: int) -> None:
    shapes = tuple((7 * i % 5,) for i in range(1, count)) + ((8200,),)
    node, xs = norm_of([DType.F32] * count, shapes)
    [got] = on_machine(node, xs)
    assert got == pytest.approx(exact(xs), rel=2e-7)


@pytest.mark.parametrize("dtypes", [[DType.F32] * 6, [DType.F32, DType.BF16, DType.F64] * 2, [DType.F16] * 6])
def test_a_launch_for_each_dtype(dtypes: list[DType]) -> None:
    node, xs = norm_of(dtypes)
    launches = lower(node) or []
    assert [type(launch.spec) for launch in launches[:-1]] == [Squares] * len(set(dtypes))
    assert sorted(start for launch in launches[:-1] for start in launch.spec.starts) == [0, 1, 2, 3, 4]
    [got] = simulated(node, xs) or []
    assert got == pytest.approx(exact(xs), rel=1e-6)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_equal_numbers_give_equal_bits(dtype: DType) -> None:
    wide, xs = norm_of([DType.F32] * 3 + [dtype] * 3)
    xs = [simulator.held(x, dtype) for x in xs]
    [wanted] = simulated(wide, xs) or []
    for dtypes in ([dtype] * 6, [DType.F32, dtype] * 3):
        assert (simulated(node_of(dtypes, SHAPES), xs) or [])[0] == wanted


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_what_is_not_finite_is_found(bad: float) -> None:
    node, xs = norm_of([DType.F32] * len(SHAPES))
    xs[-1][8202] = bad
    [got] = simulated(node, xs) or []
    assert math.isnan(got) if math.isnan(bad) else math.isinf(got)


def test_a_model_of_many_parameters_has_few_launches() -> None:
    launches = lower(node_of([DType.F32] * 1203, ((768,), (768, 768), (3, 0)) * 401)) or []
    assert [len(launch.spec.sizes) for launch in launches[:-1]] == [500, 302]
    assert [launch.spec.starts[:3] for launch in launches[:-1]] == [(0, 1, 73), (18250, 18251, 18323)]
    assert launches[-1].reads[0].bytes == 4 * 401 * (1 + 72)


def test_a_tensor_beyond_the_range_of_an_index() -> None:
    huge = value(DType.F32, (2**31 + 1,))
    node = Builder(name="here").node(OPS["global_norm"], value(DType.F32, (5,)), huge, value(DType.F32, (5,)))
    launches = lower(node) or []
    [narrow] = [launch for launch in launches if isinstance(launch.spec, Squares)]
    assert narrow.spec.starts == (0, 1 + 2**31 // 4096 + 1) and huge not in narrow.reads
    assert len(launches) > 3, "its own launches and the root"
