"""The kernel of sums of products, as compiled, thread by thread: tiles, divisions, steps in flight, edges, windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from gpu_kernels import ptx_machine, simulator
from gpu_kernels.accesses import Race
from gpu_kernels.sample_nodes import OPS
from op_laws.evaluation import apply, values_of
from thinning import thinned

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda import cuda_cpp
from dslc.compiler.codegen.cuda.contraction.kernel import Contract, Mma
from dslc.compiler.codegen.cuda.contraction.tile_tables import Tile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType


def launched(node: Node, xs: list[np.ndarray], tile: Tile, split: int = 1) -> np.ndarray:
    """The node's result by the kernel with this tile, added up here where the sum is divided."""
    launches = lower(node) or []
    spec = launches[0].spec
    assert isinstance(spec, Contract)
    depth = replace(spec.problem, split=split).part(tile.depth)
    split = -(-spec.problem.count("k") // depth)
    spec = replace(spec, tile=tile, problem=replace(spec.problem, split=split))
    order = [list(node.inputs).index(v) for v in launches[0].reads]
    got = np.full((split, *node.types[0].ints), np.nan, np.float32)
    code = cuda_compile.compiled(spec.code, "k", "sm_90")
    arguments = [np.ascontiguousarray(a).reshape(-1) for a in (*(xs[i] for i in order), got)]
    geometry = spec.geometry
    assert geometry.shared_bytes == 0
    ptx_machine.run(code.ptx.decode("ascii"), geometry.grid, geometry.block[0], arguments, spec.scalar_args)
    return arguments[-1].reshape(got.shape).sum(0)


def case(op: str, *shapes: tuple[int, ...], **attrs: Any) -> tuple[Node, list[np.ndarray], np.ndarray]:
    """A node of random inputs, these, and what it comes to."""
    rng = np.random.default_rng(sum(map(sum, shapes)))
    xs = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    [wanted] = apply(OPS[op], xs, attrs)
    return Builder(name="here").node(OPS[op], *values_of(xs), **attrs), xs, wanted


def near(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)


TILES = [
    Tile(16, 32, 4, 4, 16, 1),  # through registers
    Tile(16, 32, 4, 4, 16, 2),
    Tile(16, 32, 4, 4, 16, 4),
    Tile(32, 16, 4, 4, 16, 3),
    Tile(16, 32, 4, 4, 32, 2, 4),  # slices
    Tile(16, 16, 4, 4, 32, 2, 8),
    Tile(16, 32, 4, 4, 32, 1, 2),
]


@pytest.mark.parametrize("number", thinned(range(len(TILES)), 4))
def test_a_product(number: int) -> None:
    """Edges of the tile, in rows, columns and depth, of operands that lie both ways."""
    tile, turned = TILES[number], number % 2 == 1
    shapes = ((21, 17), (34, 21)) if turned else ((17, 21), (21, 34))
    node, xs, wanted = case("matmul", *shapes, transpose_a=turned, transpose_b=turned)
    near(launched(node, xs, tile), wanted)


@pytest.mark.parametrize(
    ("tile", "turned"),
    thinned(
        [(TILES[2], (False, False)), (TILES[4], (False, True)), (TILES[1], (True, False)), (TILES[4], (True, True))], 4
    ),
    ids=str,
)
def test_whole_words(tile: Tile, turned: tuple[bool, bool]) -> None:
    """Operands that come 16 bytes at a time, along k and along their sides."""
    shapes = ((36, 20) if turned[0] else (20, 36), (12, 36) if turned[1] else (36, 12))
    node, xs, wanted = case("matmul", *shapes, transpose_a=turned[0], transpose_b=turned[1])
    spec = (lower(node) or [])[0].spec
    text = replace(spec, tile=tile).code.text
    assert "WHOLE_A = 1;" in text and "WHOLE_B = 1;" in text
    near(launched(node, xs, tile), wanted)


@pytest.mark.parametrize("tile", thinned([TILES[2], TILES[4]], 2), ids=str)
def test_a_sum_in_parts(tile: Tile) -> None:
    """Of which the last is shorter than a step."""
    node, xs, wanted = case("matmul", (5, 75), (75, 6), transpose_a=False, transpose_b=False)
    near(launched(node, xs, tile, split=3), wanted)


@pytest.mark.slow
def test_a_stack() -> None:
    node, xs, wanted = case("matmul", (2, 1, 5, 20), (2, 3, 20, 6), transpose_a=False, transpose_b=False)
    near(launched(node, xs, TILES[1]), wanted)


def test_windows_beyond_the_edge() -> None:
    attrs = {"stride": (2, 1), "pad": (1, 2), "dilation": (1, 2), "groups": 1}
    node, xs, wanted = case("conv", (2, 3, 7, 6), (5, 3, 3, 3), **attrs)
    near(launched(node, xs, TILES[2]), wanted)


def test_epilogue_steps() -> None:
    each, body = (("transpose_a", False), ("transpose_b", False)), (("add", (0, 1), ()), ("relu", (2,), ()))
    node, xs, wanted = case("contraction", (5, 20), (20, 6), (6,), product="matmul", each=each, body=body)
    assert (wanted == 0).any()
    near(launched(node, xs, TILES[2]), wanted)


TF32_TILES = [
    Tile(16, 16, 16, 16, 32, 3, 4),
    Tile(32, 32, 16, 16, 16, 2),
    Tile(16, 32, 16, 16, 16, 1),  # through registers
    Tile(32, 32, 16, 32, 32, 2, 2),
]


@pytest.mark.parametrize(
    ("number", "size"), thinned(product(range(len(TF32_TILES)), [(17, 21, 34), (20, 36, 12)]), 3), ids=str
)
def test_products_of_tf32(number: int, size: tuple[int, int, int]) -> None:
    """On tensor cores, of operands that lie each way; one by one, and whole words."""
    m, k, n = size
    turned = (number % 2 == 1, number // 2 == 1)
    shapes = ((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
    _, xs, exact = case("matmul", *shapes, transpose_a=turned[0], transpose_b=turned[1])
    node = Builder(name="here").node(
        OPS["matmul"], *values_of(xs), transpose_a=turned[0], transpose_b=turned[1], tf32=True
    )
    a, b = (((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in xs)
    got = launched(node, xs, TF32_TILES[number])
    near(got, (a.T if turned[0] else a) @ (b.T if turned[1] else b))
    assert np.abs(got - exact).max() > 1e-4, "factors are as they were"


@pytest.mark.slow
def test_tf32_with_windows_steps_and_parts() -> None:
    conv = {"stride": (2, 1), "pad": (1, 2), "dilation": (1, 2), "groups": 1}
    body = (("mul", (0, 1), ()), ("relu", (2,), ()))
    attrs: dict[str, Any] = {"product": "conv", "each": tuple(sorted(conv.items())), "body": body, "tf32": True}
    node, xs, _ = case("contraction", (2, 3, 7, 6), (5, 3, 3, 3), (2, 5, 4, 6), **attrs)
    xs[:2] = (((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for x in xs[:2])
    [wanted] = apply(OPS["contraction"], xs, attrs)
    near(launched(node, xs, TF32_TILES[0]), wanted)
    node, xs, _ = case("matmul", (5, 75), (75, 6), transpose_a=False, transpose_b=False, tf32=True)
    xs = [((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for x in xs]
    near(launched(node, xs, TF32_TILES[1], split=3), xs[0] @ xs[1])


def test_a_copy_that_is_not_waited_for_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    node, xs, _ = case("matmul", (5, 75), (75, 6), transpose_a=False, transpose_b=False)
    real = cuda_cpp.kernel_text
    late = real("contract.cu").replace('"n"(STAGES - 2)', '"n"(STAGES - 1)')
    assert late != real("contract.cu")
    monkeypatch.setattr(cuda_cpp, "kernel_text", lambda name: late if name == "contract.cu" else real(name))
    with pytest.raises(Race, match="on its way"):
        launched(node, xs, TILES[2])


MMA_TILE = Tile(64, 64, 32, 32, 64, 3)


def multiplied(
    kind: DType, shapes: list[tuple[int, int]], turned: tuple[bool, bool], split: int, tile: Tile = MMA_TILE
) -> None:
    """By tensor cores, against the same in f64."""
    rng = np.random.default_rng(split)
    types = [TensorType(kind, shape) for shape in shapes]
    xs = [rng.normal(size=shape).astype(np.float16) for shape in shapes]
    if kind is DType.BF16:
        xs = [simulator.bf16_bits(x) for x in xs]
    values = [Input(f"x{i}", Kind.DATA, t).value for i, t in enumerate(types)]
    node = Builder(name="here").node(OPS["matmul"], *values, transpose_a=turned[0], transpose_b=turned[1])
    launch = (lower(node) or [])[0]
    spec = launch.spec
    assert isinstance(spec, Mma)
    kept = kind if split == 1 else DType.F32
    spec = Mma(replace(spec.problem, split=split, c=replace(spec.problem.c, dtype=kept)), tile)
    shape = node.types[0].ints
    got = np.zeros((split, *shape), xs[0].dtype if split == 1 else np.float32)
    arguments = [a.reshape(-1) for a in (*(xs[list(node.inputs).index(v)] for v in launch.reads), got)]
    code, geometry = cuda_compile.compiled(spec.code, "k", "sm_90"), spec.geometry
    ptx_machine.run(
        code.ptx.decode("ascii"), geometry.grid, geometry.block[0], arguments, spec.scalar_args,
        geometry.shared_bytes,
    )  # fmt: skip
    a, b, c = ((simulator.bf16_values(x) if x.dtype == np.uint16 else x).astype(np.float64) for x in (*xs, got))
    wanted = (a.T if turned[0] else a) @ (b.T if turned[1] else b)
    np.testing.assert_allclose(c.sum(0), wanted, rtol=8e-3 if split == 1 else 1e-5, atol=4e-2 if split == 1 else 1e-4)


@pytest.mark.parametrize(("turned",), thinned([((False, False),), ((False, True),), ((True, False),)], 3))
def test_tensor_cores(turned: tuple[bool, bool]) -> None:
    """Edges in rows, columns and depth, of operands that lie both ways."""
    shapes = [(72, 40) if turned[0] else (40, 72), (24, 72) if turned[1] else (72, 24)]
    multiplied(DType.BF16 if turned[1] else DType.F16, shapes, turned, 1)


#: As of narrow groups of channels: their lines in shared memory are shorter than its banks.
NARROW_TILES = [Tile(128, 32, 32, 32, 64, 4), Tile(128, 16, 32, 16, 64, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "turned"),
    thinned(product(NARROW_TILES, [(False, False), (False, True), (True, False)]), 4),
    ids=str,
)
def test_tensor_cores_of_few_columns(tile: Tile, turned: tuple[bool, bool]) -> None:
    shapes = [(72, 40) if turned[0] else (40, 72), (24, 72) if turned[1] else (72, 24)]
    multiplied(DType.BF16 if turned[1] else DType.F16, shapes, turned, 1, tile)


@pytest.mark.slow
def test_tensor_cores_of_several_tiles() -> None:
    """Two rows of tiles and two columns: fewer rows than a band has."""
    multiplied(DType.F16, [(72, 16), (16, 72)], (False, False), 1)


@pytest.mark.slow
def test_tensor_cores_in_parts() -> None:
    multiplied(DType.BF16, [(16, 136), (136, 16)], (False, False), 2)


#: Of small problems: teams of warps share the depth of a tile.
SLICED_TILES = [Tile(32, 32, 16, 16, 64, 3, 2), Tile(64, 32, 32, 16, 128, 2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "turned", "split"),
    thinned(product(SLICED_TILES, [(False, False), (False, True), (True, False)], [1, 2]), 4),
    ids=str,
)
def test_teams_of_tensor_cores_add_their_sums(tile: Tile, turned: tuple[bool, bool], split: int) -> None:
    shapes = [(200, 40) if turned[0] else (40, 200), (40, 200) if turned[1] else (200, 40)]
    multiplied(DType.BF16 if turned[1] else DType.F16, shapes, turned, split, tile)
