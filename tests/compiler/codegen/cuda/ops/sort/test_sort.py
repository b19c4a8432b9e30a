"""The kernels of sort and topk for long lines, as compiled: in the order of the ops' meanings, bit for bit.

Samples have ties, nan, zeros of either sign and infinities. A tile has 512 elements here, so that lines have several.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import NUMPY, OPS, wanted

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.sort import radix_sort
from dslc.compiler.codegen.cuda.ops.sort.lines import Lines
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.runtime.artifact.dtypes import numpy_dtype

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40])


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(radix_sort, "largest_tile", lambda dtype: 512)
    yield


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(shape[0])
    if DType(dtype).is_float:
        x = rng.normal(size=shape).round(1)  # with ties
        x.reshape(-1)[rng.permutation(x.size)[: x.size // 4]] = rng.choice(SPECIAL, x.size // 4)
        return simulator.held(x.astype(NUMPY[dtype]), DType(dtype))
    info = np.iinfo(numpy_dtype(dtype))
    x = rng.integers(-9 if info.min else 0, 9, shape).astype(info.dtype)
    few = x.reshape(-1)[:: max(1, x.size // 9)]
    few[:] = rng.integers(info.min, info.max, few.shape, info.dtype, endpoint=True)
    return x


def node_of(op: str, x: np.ndarray, dtype: str, **attrs: int) -> Node:
    return Builder(name="here").node(OPS[op], Input("x", Kind.DATA, TensorType(DType(dtype), x.shape)).value, **attrs)


def check(node: Node, x: np.ndarray, dtype: str) -> None:
    values, places = on_machine(node, [x])
    expected = wanted(node, [x], dtype)
    assert expected is not None
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected[0]))


@pytest.mark.slow
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_lines_of_a_tile(dtype: str, descending: bool) -> None:
    x = numbers(dtype, (2, 300))
    check(node_of("sort", x, dtype, axis=1, descending=descending), x, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "descending"), [("bf16", False), ("i8", True)])
@pytest.mark.parametrize("count", [513, 1024])
def test_lines_of_several_tiles(dtype: str, count: int, descending: bool) -> None:
    x = numbers(dtype, (2, count))
    check(node_of("sort", x, dtype, axis=1, descending=descending), x, dtype)


def test_many_tiles_are_summed_in_pieces() -> None:
    """More tiles than a warp has threads: a sum over those before takes several rounds."""
    step = radix_sort.SortDigits(Lines(DType.I8, 512 * 70, 1, 1), 512, False, 0, 1)
    found = np.random.default_rng(1).integers(0, 9, (8, 70)).astype(np.int32)
    before, totals = found.copy(), np.zeros(8, np.int32)
    ptx = cuda_compile.compiled(step.code, "k", "sm_90").ptx.decode("ascii")
    ptx_machine.run(ptx, (1, 1, 1), 256, [found.reshape(-1), totals], step.scalar_args)
    np.testing.assert_array_equal(totals, before.sum(1))
    np.testing.assert_array_equal(found, np.cumsum(before, 1) - before)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 3), (2, 600, 3)])
def test_lines_along_other_axes(shape: tuple[int, ...]) -> None:
    x, axis = numbers("bf16", shape), len(shape) - 2
    check(node_of("sort", x, "bf16", axis=axis, descending=False), x, "bf16")
    check(node_of("topk", x, "bf16", axis=axis, k=2, largest=True), x, "bf16")


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "largest"), [("bf16", True), ("f32", False)])
@pytest.mark.parametrize(("count", "k"), [(300, 5), (300, 300), (1024, 100), (1100, 3), (1100, 100), (1100, 200)])
def test_the_first_of_long_lines(count: int, k: int, dtype: str, largest: bool) -> None:
    """Those of each tile first; all are sorted if they are many of a tile. The last tile may have fewer than k."""
    x = numbers(dtype, (2, count))
    check(node_of("topk", x, dtype, axis=1, k=k, largest=largest), x, dtype)


@pytest.mark.parametrize("axis", [0, 1])
def test_launches_do_not_depend_on_lines(axis: int) -> None:
    """One launch for a line that a block sorts, with copies before and after if it is not contiguous."""
    for count, launches in ((2, 1), (256, 1), (257, 1), (512, 1), (513, 6), (100_000, 6)):
        shape = (3, count) if axis else (count, 3)
        node = node_of("sort", np.zeros(shape), "bf16", axis=axis, descending=False)
        assert len(lower(node) or []) == launches + (0 if axis or count <= 256 else 3)
    few = node_of("topk", np.zeros((1, 1 << 22)), "bf16", axis=1, k=4, largest=True)
    assert [launch.spec.geometry.grid[0] for launch in lower(few) or []] == [8192, 64, 1]
