"""One launch for many tensors: optimizer steps, casts, flags put together; in the simulator, and as they compile."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import STEPS, update, value
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.copies import pick
from dslc.compiler.codegen.cuda.ops.multi_tensor import Foreach
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

#: Whole chunks, rests of vectors, less than a vector, one element.
SHAPES = ((3, 5), (2, 4096), (1,), (4103,), (), (16,))


def launches_of(node: Node) -> list[Any]:
    return [x.spec for x in lower(node) or [] if isinstance(x.spec, Foreach)]


@pytest.mark.parametrize("narrow", [DType.F32, DType.BF16, DType.F16])
@pytest.mark.parametrize("step", STEPS)
def test_all_steps_are_one_launch_of_the_same_numbers(step: str, narrow: DType) -> None:
    node, xs = update(step, SHAPES, narrow)
    [spec] = launches_of(node)
    assert spec.sizes == tuple(prod(s) for s in SHAPES)
    got = simulated(node, xs)
    wanted = node.op.meaning(xs, node.attrs)
    assert got is not None and got[-1].tolist() == [False, True, False, False, False, False]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-6, atol=1e-7)
    broken = (1 + STEPS[step][0]) * 1
    assert got[broken].reshape(-1)[-1] == xs[broken].reshape(-1)[-1], "its element stays as it was"


def test_kernels_take_a_bounded_number_of_arguments() -> None:
    node, xs = update("rmsprop_centered_momentum_update", [(2,)] * 64)
    specs = launches_of(node)
    assert [len(s.sizes) for s in specs] == [55, 9] and max(s.arguments for s in specs) <= 512
    got = simulated(node, xs)
    assert got is not None and np.flatnonzero(got[-1]).tolist() == [1]
    for g, w in zip(got, node.op.meaning(xs, node.attrs), strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_casts_are_one_launch(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    node = Builder(name="here").node(OPS["casts"], *(value(DType.F32, s) for s in SHAPES), dtype=dtype)
    assert len(launches_of(node)) == len(lower(node) or []) == 1
    for x, got in zip(xs, simulated(node, xs) or [], strict=True):
        assert np.array_equal(got, simulator.held(x, dtype))


@pytest.mark.parametrize("dtypes", [(DType.F16,), (DType.F32,), (DType.F16, DType.F32)])
def test_who_looks_for_what_is_not_finite_is_a_launch_for_a_dtype(dtypes: tuple[DType, ...]) -> None:
    rng, bad = np.random.default_rng(2), {1: np.inf, 3: np.nan, 5: -np.inf}
    xs = [rng.normal(size=shape) for shape in SHAPES * len(dtypes)]
    for number, what in bad.items():
        xs[number].reshape(-1)[-1] = what
    which = [dtype for dtype in dtypes for _ in SHAPES]
    node = Builder(name="here").node(OPS["nonfinite"], *(value(d, x.shape) for d, x in zip(which, xs)))
    specs = launches_of(node)
    assert [(spec.first, len(spec.sizes)) for spec in specs] == [(6 * i, 6) for i in range(len(dtypes))]
    [found] = simulated(node, [simulator.held(x, d) for d, x in zip(which, xs)]) or []
    assert found.tolist() == [i in bad for i in range(len(xs))]


def test_a_block_has_a_chunk_of_one_tensor() -> None:
    [spec] = launches_of(update("adam_update", SHAPES)[0])
    assert spec.chunks == (1, 4, 1, 3, 1, 1) and cuda_compile.geometry(spec).grid == (11, 1, 1)


def test_the_code_holds_no_table_in_local_memory() -> None:
    for node in (update("sgd_momentum_update", SHAPES)[0], update("adam_update", [(64, 3)] * 64, DType.BF16)[0]):
        [spec] = launches_of(node)
        ptx = cuda_compile.compiled(spec, "k", "sm_90").ptx.decode("ascii")
        assert ".local" not in ptx and len(re.findall(r"\.param \.u64", ptx)) == spec.arguments
        assert re.search(r"ld\.global\.v4\.f32", ptx) and "fma.rn.f32" not in ptx
    picked = pick.Pick(DType.B1, 3, (0, 2, 1), (0, 0, 4))
    assert ".local" not in cuda_compile.compiled(picked, "k", "sm_80").ptx.decode("ascii")


def test_the_source_is_a_matter_of_the_description_alone() -> None:
    one, other = (launches_of(update("adam_update", SHAPES)[0])[0] for _ in range(2))
    assert one.source("k") == other.source("k")
