"""Which tile computes a product without tensor cores, and into how many parts its sum is divided."""

from __future__ import annotations

import random

import pytest

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.contraction.kernel import Contract, Mma, contract
from dslc.compiler.codegen.cuda.contraction.problem import Operand, problem
from dslc.compiler.codegen.cuda.contraction.tile_tables import Tile
from dslc.compiler.ir.types import DType


def chosen(m: int, n: int, k: int, dtype: DType = DType.F32) -> Contract:
    a = Operand(dtype, m * k, (("row", k), ("sum", 1)))
    b = Operand(dtype, k * n, (("sum", n), ("col", 1)))
    c = Operand(dtype, m * n, (("row", n), ("col", 1)))
    [found], _ = contract([problem({"m": [("row", m)], "n": [("col", n)], "k": [("sum", k)]}, a, b, c)])
    assert isinstance(found, Contract)
    return found


@pytest.mark.parametrize(("m", "n", "k"), [(25, 6, 50176), (64, 512, 784), (64, 10, 512), (64, 120, 400)])
def test_few_results_of_long_sums_fill_the_device(m: int, n: int, k: int) -> None:
    found = chosen(m, n, k)
    tiles, parts, _ = found.geometry.grid
    assert found.problem.split == parts > 4
    assert tiles * parts >= 60  # blocks, of 132 multiprocessors
    assert found.problem.part(found.tile.depth) // found.tile.depth <= 8  # steps that follow each other


@pytest.mark.parametrize(("m", "n", "k", "tile"), [(16, 80, 1 << 18, (16, 128)), (64, 576, 50176, (64, 64))])
def test_long_sums_of_few_large_tiles_have_parts_for_four_blocks_of_a_multiprocessor(
    m: int, n: int, k: int, tile: tuple[int, int]
) -> None:
    """Measured on an H200: 71 and 149 us, with 64 parts 178 and 148 with two blocks of the tiles before."""
    found = chosen(m, n, k)
    assert (found.tile.rows, found.tile.cols) == tile
    assert 3.5 * 132 < found.geometry.grid[0] * found.problem.split <= 4 * 132


def test_large_products_take_the_largest_tile_whole() -> None:
    found = chosen(4096, 4096, 4096)
    assert (found.tile.rows, found.tile.cols, found.problem.split) == (128, 128, 1)
    assert chosen(512, 784, 8).problem.split == 1  # nothing to divide
    large = chosen(2048, 768, 768)  # too few blocks otherwise
    assert (large.tile.rows, large.tile.cols, large.problem.split) == (128, 128, 2)


def test_a_tile_of_wide_numbers_fits_into_shared_memory() -> None:
    assert chosen(64, 512, 512).tile == Tile(16, 16, 4, 4, 32, 4, 8)
    for m, n, k in ((64, 512, 512), (512, 512, 64), (64, 64, 64)):
        found = chosen(m, n, k, DType.F64)
        assert cuda_compile.compiled(found.code, "k", "sm_90").cubin, "two tiles of 8 bytes are too much for some"


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I32])
def test_every_part_has_something_to_add(dtype: DType) -> None:
    draw = random.Random(7)
    for _ in range(200):
        m, n, k = (draw.choice((1, 3, 17, 64, 130, 1000)), draw.choice((1, 10, 65, 512)), draw.randint(1, 60000))
        found = chosen(m, n, k, dtype)
        part = found.problem.part(found.tile.depth)
        assert (found.problem.split - 1) * part < k <= found.problem.split * part
        assert 2 * found.tile.depth * (found.tile.rows + found.tile.cols + 8) * dtype.computed.itemsize <= 48 << 10


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 512, 784), (25, 6, 50176), (512, 784, 64), (300, 3000, 700), (2048,) * 3]
)
def test_tiles_of_tf32_fit_into_what_needs_no_asking(m: int, n: int, k: int) -> None:
    """In threads, in shared memory, and as operands lie each way."""
    for turned in range(4):
        steps = ((1, m) if turned & 1 else (k, 1)), ((1, k) if turned & 2 else (n, 1))
        a = Operand(DType.F32, m * k, (("row", steps[0][0]), ("sum", steps[0][1])))
        b = Operand(DType.F32, k * n, (("sum", steps[1][0]), ("col", steps[1][1])))
        c = Operand(DType.F32, m * n, (("row", n), ("col", 1)))
        [found], _ = contract([problem({"m": [("row", m)], "n": [("col", n)], "k": [("sum", k)]}, a, b, c)], tf32=True)
        assert isinstance(found, Contract) and found.tf32 and found.geometry.block[0] <= 512
        assert cuda_compile.compiled(found.code, "k", "sm_80").cubin


@pytest.mark.parametrize(("m", "n", "k", "rows", "parts"), [
    (49, 512, 4608, 64, 15), (196, 1024, 256, 64, 1), (3136, 64, 64, 32, 1), (49, 2048, 512, 32, 1),
])  # fmt: skip
def test_small_products_of_16_bits_have_small_tiles(m: int, n: int, k: int, rows: int, parts: int) -> None:
    """As measured on an H200 of convolutions of one image."""
    a = Operand(DType.BF16, m * k, (("row", k), ("sum", 1)))
    b = Operand(DType.BF16, k * n, (("sum", 1), ("col", k)))
    c = Operand(DType.BF16, m * n, (("row", n), ("col", 1)))
    [found], _ = contract([problem({"m": [("row", m)], "n": [("col", n)], "k": [("sum", k)]}, a, b, c)])
    assert isinstance(found, Mma) and (found.tile.rows, found.problem.split) == (rows, parts)
    tiles, _, _ = found.geometry.grid
    assert found.geometry.shared_bytes <= 99 << 10 and 64 <= tiles * parts <= 8 * 132
