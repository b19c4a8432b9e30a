"""Long regions whose length, or whose rows' length, no vector divides: whole vectors and single elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.ptx_comparison import compared
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import whole_vectors
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


def node(dtype: DType, *shapes: tuple[int, ...]) -> Node:
    """x0 * x1 + x2 and so on, of tensors."""
    values = [Input(f"x{i}", Kind.DATA, TensorType(dtype, s)).value for i, s in enumerate(shapes)]
    body = [("mul", (0, 1), ()), *(("add", (len(shapes) + i, 2 + i), ()) for i in range(len(shapes) - 2))]
    return Builder(name="here").node(OPS["fused"], *values, body=tuple(body))


def launches(made: Node) -> list[Launch]:
    found = lower(made)
    assert found is not None
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short regions are cut, too."""
    monkeypatch.setattr(whole_vectors, "_LEAST", 16)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("shape", "dtype"), [((17, 31), DType.BF16), ((17, 31), DType.F32), ((1031,), DType.F16), ((3, 5, 7, 9), DType.F64)]
)
def test_each_element_once(shape: tuple[int, ...], dtype: DType) -> None:
    rng = np.random.default_rng(math.prod(shape))
    xs = [simulator.held(rng.normal(size=s), dtype) for s in (shape, shape, ())]
    made = node(dtype, *(x.shape for x in xs))
    [launch] = launches(made)
    assert launch.spec.flat is not None and launch.spec.flat.rest == math.prod(shape) % launch.spec.flat.vector != 0
    assert any(f"_{v}(" in source_of("k", launch.code).text for v in (2, 4, 8)), "vectors"
    found = simulated(made, xs)
    assert found is not None
    np.testing.assert_array_equal(found[0], simulator.held(simulator.held(xs[0] * xs[1], dtype) + xs[2], dtype))
    compared(made, xs, threads=256)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_neighbours_move_short_vectors_of_odd_rows(step: int, dtype: DType) -> None:
    x = simulator.held(np.random.default_rng(1).normal(size=(17, 40)), dtype)
    given = Input("x", Kind.DATA, TensorType(dtype, x.shape)).value
    ends = {"starts": (0, 3), "stops": (17, 34)} if step == 1 else {"starts": (0, 33), "stops": (17, 2)}
    [launch] = launches(made := Builder(name="here").node(OPS["slice"], given, **ends, steps=(1, step)))
    vector = 16 // dtype.itemsize
    whole = Flat(17 * 31, vector, 1, rest=17 * 31 % vector)  # rows that are contiguous: only their loads are short
    assert launch.spec.flat == (whole if step == 1 else Flat(17 * 31, 1, vector, apart=True))
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x[:, 3:34][:, ::step])
    compared(made, [x], threads=256)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("dtype", "columns"), [(DType.BF16, 12), (DType.F16, 20), (DType.F32, 6)])
def test_rows_of_halves_of_vectors_are_moved_by_halves(dtype: DType, columns: int) -> None:
    """Rows of 12 elements of 16 bits: each third vector of 16 bytes would lie in two rows."""
    x = simulator.held(np.random.default_rng(0).normal(size=(17, 2 * columns)), dtype)
    given, half = Input("x", Kind.DATA, TensorType(dtype, x.shape)).value, 8 // dtype.itemsize
    attrs = {"starts": (0, columns), "stops": (17, 2 * columns), "steps": (1, 1)}
    [launch] = launches(made := Builder(name="here").node(OPS["slice"], given, **attrs))
    assert launch.spec.flat is not None and (launch.spec.flat.vector, launch.spec.flat.held) == (half, 2)
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x[:, columns:])
    compared(made, [x], threads=256)


@pytest.mark.usefixtures("short")
def test_a_short_row_is_repeated_by_whole_vectors() -> None:
    x = simulator.held(np.random.default_rng(0).normal(size=(1, 31)), DType.BF16)
    given = Input("x", Kind.DATA, TensorType(DType.BF16, x.shape)).value
    made = Builder(name="here").node(OPS["expand"], given, shape=(17, 31))
    [launch] = launches(made)
    assert launch.spec.flat == Flat(17 * 31, 8, 1, rest=7)
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], np.broadcast_to(x, (17, 31)))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("shape", "perm", "dtype"),
    [
        ((3, 5, 4, 33), (0, 2, 1, 3), DType.BF16),
        ((4, 3, 5, 9), (2, 1, 0, 3), DType.F16),
        ((2, 3, 5, 4, 7), (3, 1, 0, 2, 4), DType.F32),
    ],
)
def test_rows_that_change_their_order_are_written_by_whole_vectors(
    shape: tuple[int, ...], perm: tuple[int, ...], dtype: DType
) -> None:
    x = simulator.held(np.random.default_rng(2).normal(size=shape), dtype)
    given = Input("x", Kind.DATA, TensorType(dtype, shape)).value
    [launch] = launches(made := Builder(name="here").node(OPS["transpose"], given, perm=perm))
    vector = 16 // dtype.itemsize
    assert launch.spec.flat == Flat(x.size, vector, 1, rest=x.size % vector)
    assert f"store_if_{dtype.value}_{vector}(" in source_of("k", launch.code).text
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x.transpose(perm))
    compared(made, [x], threads=256)


LINES = {
    "odd rows": ([(3, 2, 1031), (3, 1, 1031)], DType.BF16),
    "a row and a column": ([(5, 1031), (1, 1031), (5, 1), ()], DType.BF16),
    "in f32": ([(2, 3, 1025), (2, 1, 1025), (3, 1)], DType.F32),
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", LINES)
def test_a_block_has_a_piece_of_one_long_row(name: str) -> None:
    shapes, dtype = LINES[name]
    rng = np.random.default_rng(len(name))
    xs = [simulator.held(rng.normal(size=s), dtype) for s in shapes]
    [launch] = launches(made := node(dtype, *shapes))
    flat = launch.spec.flat
    assert flat is not None and flat.line == shapes[0][-1]
    each = flat.vector * 256 * flat.pieces  # elements of the vectors of one number of all threads of a line
    assert (flat.held - 1) * each < flat.line <= flat.held * each
    found = simulated(made, xs)
    assert found is not None
    wanted = simulator.held(xs[0] * xs[1], dtype)
    for x in xs[2:]:
        wanted = simulator.held(wanted + x, dtype)
    np.testing.assert_array_equal(found[0], wanted)
    compared(made, xs, threads=256)


ROW_VALUES = {
    "a column": ([(5, 1031), (5, 1)], DType.BF16),
    "two columns and a number": ([(5, 1031), (5, 1), (5, 1), ()], DType.BF16),
    "columns of several axes": ([(3, 2, 1025), (2, 1), (3, 1, 1), (3, 2, 1)], DType.F32),
    "rows as short as a vector": ([(37, 9), (37, 1)], DType.F16),
    "no element left": ([(16, 21), (16, 1)], DType.BF16),
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ROW_VALUES)
def test_whole_vectors_across_the_ends_of_rows(name: str) -> None:
    shapes, dtype = ROW_VALUES[name]
    rng = np.random.default_rng(len(name))
    xs = [simulator.held(rng.normal(size=s), dtype) for s in shapes]
    [launch] = launches(made := node(dtype, *shapes))
    count, vector = math.prod(shapes[0]), 16 // dtype.itemsize
    assert launch.spec.flat == Flat(count, vector, 1, rest=count % vector)
    loads = [line for line in source_of("k", launch.code).text.splitlines() if " = load" in line]
    once = sum(s in (shapes[0], ()) for s in shapes)
    assert len(loads) == 2 * len(shapes) - once + bool(count % vector) * len(shapes)
    found = simulated(made, xs)
    assert found is not None
    wanted = simulator.held(xs[0] * xs[1], dtype)
    for x in xs[2:]:
        wanted = simulator.held(wanted + x, dtype)
    np.testing.assert_array_equal(found[0], wanted)
    compared(made, xs, threads=256)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("axis", [0, 1])
def test_long_rows_are_repeated_and_put_next_to_each_other(axis: int) -> None:
    x = simulator.held(np.random.default_rng(0).normal(size=(1, 2051) if axis == 0 else (6, 1)), DType.BF16)
    given = Input("x", Kind.DATA, TensorType(DType.BF16, x.shape)).value
    made = Builder(name="here").node(OPS["expand"], given, shape=(6, 2051))
    [launch] = launches(made)
    if axis:
        assert launch.spec.flat == Flat(6 * 2051, 8, 1, rest=6 * 2051 % 8)
    else:
        assert launch.spec.flat is not None and launch.spec.flat.line == 2051
        assert launch.spec.geometry.grid[0] == 6 * launch.spec.flat.pieces == 6
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], np.broadcast_to(x, (6, 2051)))
    both = [Input(n, Kind.DATA, TensorType(DType.BF16, (6, n_))).value for n, n_ in (("a", 2051), ("b", 1025))]
    joined = Builder(name="here").node(OPS["concat"], *both, axis=1)
    ys = [simulator.held(np.random.default_rng(n).normal(size=v.type.ints), DType.BF16) for n, v in enumerate(both)]
    found = simulated(joined, ys)
    assert found is not None
    np.testing.assert_array_equal(found[0], np.concatenate(ys, 1))
    compared(joined, ys, threads=256)


@pytest.mark.usefixtures("short")
def test_what_keeps_its_own_schedule() -> None:
    for shapes in ([(16, 32), (16, 32)], [(16, 32), (16, 1)], [(2, 4, 32), (2, 1, 32), (4, 1)], [(3, 5), (3, 5)]):
        # vectors divide rows, of which some arguments have one value; short
        assert [launch.spec.flat for launch in launches(node(DType.BF16, *shapes))] == [None], shapes


def test_long_regions_with_the_same_rest_share_their_code() -> None:
    assert launches(node(DType.BF16, (255, 255), (255, 255)))[0].spec.flat is None
    one, other = (launches(node(DType.BF16, s, s))[0] for s in ((2049, 2051), (2051 * 2049 + 2048,)))
    assert one.symbol == other.symbol and one.scalar_args != other.scalar_args


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_short_vectors_of_elements_that_are_apart(dtype: DType) -> None:
    """A thread's mask holds for each place of its vectors."""
    x = simulator.held(np.random.default_rng(1).normal(size=(35, 122)), dtype)
    given = Input("x", Kind.DATA, TensorType(dtype, x.shape)).value
    attrs = {"starts": (0, 4), "stops": (35, 118), "steps": (1, 3)}
    [launch] = launches(made := Builder(name="here").node(OPS["slice"], given, **attrs))
    assert launch.spec.flat is not None and launch.spec.flat.apart and launch.spec.flat.vector == 2
    found = simulated(made, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x[:, 4:118:3])
    compared(made, [x], threads=256)
