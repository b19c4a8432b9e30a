"""Every variant of a node's kernels computes the node, has its own name and code, and is one that a lock can name."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.on_ptx_machine import on_machine, threads_of
from gpu_kernels.sample_nodes import SAMPLES, node_of, tolerance, wanted
from graphs.random_graphs import input_of
from thinning import thinned

from dslc.base.errors import BuildError
from dslc.compiler.codegen.cuda.attention.tiled import TiledAttention
from dslc.compiler.codegen.cuda.compile import geometry
from dslc.compiler.codegen.cuda.variants import lower_variant
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.choice import OWN, Choice
from dslc.compiler.ir.graph import Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType

SM_90 = target_of("sm_90")
MANY = 600  # threads that the simulator runs in a fraction of a second
CONTRACTIONS = ("matmul", "conv_last", "conv_dgrad", "conv_wgrad_last", "contraction")


def product(m: int, n: int, k: int, dtype: DType, **attrs: bool) -> Node:
    a, b = (input_of(name, Kind.DATA, *shape, dtype=dtype).value for name, shape in (("a", (m, k)), ("b", (k, n))))
    return Builder(name="here").node(OPS["matmul"], a, b, transpose_a=False, transpose_b=False, **attrs)


PRODUCTS = [
    product(*sizes, dtype, **({"tf32": True} if tf32 else {}))
    for sizes in ((64, 512, 784), (2048, 2048, 2048), (25, 6, 50176), (512, 1000, 2048), (1, 1, 1))
    for dtype, tf32 in ((DType.BF16, False), (DType.F32, False), (DType.F32, True), (DType.F64, False))
]


@pytest.mark.parametrize(("name", "dtype"), thinned(((n, d) for n in CONTRACTIONS for d in ("f32", "bf16")), 3))
def test_every_variant_computes_the_node(name: str, dtype: str) -> None:
    """Of the op's sample with the most variants that is small enough to simulate: all with DSLC_SOAK=1, else one."""
    nodes = [node_of(name, number, dtype) for number in range(len(SAMPLES[name]))]
    small = [(node, xs) for node, xs in nodes if 0 < threads_of(node) <= MANY]
    node, xs = max(small, key=lambda each: len(SM_90.variants(each[0])))
    rtol, atol = tolerance(name, dtype)
    assert len(SM_90.variants(node)) > 4
    found = SM_90.variants(node)
    first = 1 + CONTRACTIONS.index(name) * 2 + (dtype == "f32")  # each op another one
    for variant in found if os.environ.get("DSLC_SOAK") == "1" else [found[first % len(found)]]:
        for got, expected in zip(on_machine(node, xs, variant=variant), wanted(node, xs, dtype) or (), strict=True):
            np.testing.assert_allclose(got, expected, rtol, atol, err_msg=variant)


def sums(name: str, dtype: DType, *shape: int, **attrs: Any) -> Node:
    x = input_of("x", Kind.DATA, *shape, dtype=dtype).value
    return Builder(name="here").node(OPS[name], x, **attrs)


SUMS = [
    (sums("softmax", DType.F32, 5, 300, axis=1), 2),
    (sums("softmax", DType.F32, 9, 10, axis=1), 4),
    (sums("sum", DType.F32, 37, 24, over=(0,), keep=False), 3),
    (sums("sum", DType.F32, 2, 1 << 17, over=(1,), keep=False), 1),
]


@pytest.mark.parametrize(("node", "count"), SUMS, ids=lambda n: str(n.input_types[0]) if isinstance(n, Node) else "")
def test_every_launch_shape_computes_the_sums(node: Node, count: int) -> None:
    found = SM_90.variants(node)
    assert len(found) > count
    xs = [np.random.default_rng(0).normal(size=t.ints).astype(np.float32) for t in node.input_types]
    [expected] = node.op.meaning([x.astype(np.float64) for x in xs], node.attrs)
    ways = set()
    for variant in found:
        launches = lower_variant(node, Choice(OWN, variant)) or []
        ways.add(tuple(x.symbol for x in launches))
        if sum(geometry(x.spec).grid[0] * geometry(x.spec).block[0] for x in launches) <= MANY:
            [got] = on_machine(node, xs, variant=variant)
            np.testing.assert_allclose(got, expected, 2e-5, 2e-5, err_msg=variant)
    assert len(ways) == len(found)


def test_rows_that_are_split_may_stay_whole() -> None:
    node = SUMS[-1][0]
    whole = lower_variant(node, Choice(OWN, "split=1"))
    assert whole is not None and len(whole) == 1 < len(lower_variant(node, Choice(OWN)) or ())
    with pytest.raises(BuildError, match="E0609"):
        lower_variant(SUMS[0][0], Choice(OWN, "split=1"))


@pytest.mark.parametrize("features", [32, 64, 128])
@pytest.mark.parametrize("name", ["sdpa", "sdpa_grad"])
def test_tiles_of_attention_differ_in_one_kernel(name: str, features: int) -> None:
    shape = (2, 3, 70, features)
    tensors = [input_of(n, Kind.DATA, *shape, dtype=DType.BF16).value for n in ("q", "k", "v", "y", "dy")]
    lse = input_of("lse", Kind.DATA, *shape[:-1], dtype=DType.F32).value
    inputs = tensors[:3] if name == "sdpa" else [*tensors[:4], lse, tensors[4]]
    node = Builder(name="here").node(OPS[name], *inputs, causal=True, scale=0.125)
    default = lower_variant(node, Choice(OWN)) or []
    found = SM_90.variants(node)
    assert len(found) > 3 and len(set(found)) == len(found)
    mode = "forward" if name == "sdpa" else "dkdv"  # of few rows: a lock may name the tile that they have
    [own] = [launch.spec.tile for launch in default if getattr(launch.spec, "mode", "") == mode]
    named = f"{mode}: tall=1 others={own.others} stages={own.stages} held={int(own.held)}"
    assert own.tall == 1 and named not in found and lower_variant(node, Choice(OWN, named)) == default
    for variant in found[1:]:
        launches = lower_variant(node, Choice(OWN, variant)) or []
        assert sum(a != b for a, b in zip(launches, default, strict=True)) == 1
        assert variant.split(":")[0] in {x.spec.mode for x in launches if isinstance(x.spec, TiledAttention)}
        assert all(geometry(x.spec).shared_bytes <= 99 << 10 for x in launches)


@pytest.mark.parametrize("name", ["strided_sdpa", "strided_sdpa_grad"])
def test_tiles_of_attention_on_views_have_code_of_their_own(name: str) -> None:
    """The launches of a node on views are those of plain tensors, placed on others: a changed tile is other code."""
    nodes = [node_of(name, number, "bf16")[0] for number in range(len(SAMPLES[name]))]
    tiled = [node for node in nodes if len(SM_90.variants(node)) > 3]
    assert tiled
    for node in tiled:
        found = {v: lower_variant(node, Choice(OWN, v)) or [] for v in SM_90.variants(node)}
        assert len({tuple(launch.symbol for launch in launches) for launches in found.values()}) == len(found)
        assert all(launch.symbol == Launch(launch.spec, (), ()).symbol for each in found.values() for launch in each)


def test_a_launch_never_has_the_code_of_another_kernel() -> None:
    nodes = [node_of("strided_sdpa", number, "bf16")[0] for number in range(len(SAMPLES["strided_sdpa"]))]
    placed = next(launches[0] for node in nodes if (launches := lower_variant(node, Choice(OWN))))
    assert placed.with_spec("other").symbol == Launch("other", (), ()).symbol != placed.symbol
    with pytest.raises(AssertionError, match="another kernel"):
        replace(placed, spec="other")


@pytest.mark.parametrize("node", PRODUCTS, ids=lambda n: f"{n.input_types[0]} {n.input_types[1]} {dict(n.attrs)}")
def test_each_variant_is_another_way(node: Node) -> None:
    found = SM_90.variants(node)
    assert found[0] == "" and 4 < len(found) <= 13
    ways = set()
    for variant in found:
        launches = lower_variant(node, Choice(OWN, variant))
        assert launches and launches[-1].writes[0] is node.out
        ways.add(tuple((x.symbol, geometry(x.spec), x.scalar_args) for x in launches))
        assert all(geometry(x.spec).shared_bytes <= 227 << 10 and geometry(x.spec).grid[1] < 1 << 16 for x in launches)
    assert len(ways) == len(found)
    assert SM_90.variants(node) == found


def test_a_variant_has_its_own_symbol() -> None:
    node = PRODUCTS[0]
    tiles = {v.split(" split")[0]: lower_variant(node, Choice(OWN, v)) for v in SM_90.variants(node) if v}
    symbols = [launches[0].symbol for launches in tiles.values() if launches]
    assert len(set(symbols)) == len(symbols) == len(tiles) > 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tile=128x64x64/64x32 stages=3 slices=1 split=500", "more parts than products"),
        ("tile=128x64x64/64x32 stages=9 slices=1 split=1", "no such tile"),
        ("tile=64x128x8/8x8 stages=2 slices=1 split=1", "a tile of f32"),
        ("tile=128x64x64/64x32 stages=3 slices=1 split=01", "not as it is written"),
        ("tile=128x64x64/64x32 stages=3 slices=1 split=1 ", "not as it is written"),
        ("tile=128x64x64/64x32", "not as it is written"),
        ("split=1", "not as it is written"),
    ],
)
def test_a_variant_that_a_node_does_not_have_is_refused(name: str, why: str) -> None:
    assert lower_variant(PRODUCTS[0], Choice(OWN, "tile=128x64x64/64x32 stages=3 slices=1 split=1")), why
    with pytest.raises(BuildError, match="no such variant") as caught:
        lower_variant(PRODUCTS[0], Choice(OWN, name))
    assert caught.value.code == "E0609"


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_nothing_to_add_has_no_variants(shape: tuple[int, int]) -> None:
    node = product(shape[0], 3, shape[1], DType.F32)
    assert SM_90.variants(node) == ("",)
    with pytest.raises(BuildError, match="E0609"):
        lower_variant(node, Choice(OWN, "tile=16x16x32/4x4 stages=4 slices=8 split=1"))


def test_no_node_without_a_kernel_has_variants() -> None:
    x = input_of("x", Kind.DATA, 4, 4, dtype=DType.BF16).value
    node = Builder(name="here").node(OPS["cumsum"], x, axis=1, reverse=False)
    assert target_of("cpu").variants(node) == ()
    assert SM_90.variants(node) == ("",)


def of_shapes(name: str, dtype: DType, *shapes: tuple[int, ...], **attrs: Any) -> Node:
    values = [input_of(f"x{i}", Kind.DATA, *shape, dtype=dtype).value for i, shape in enumerate(shapes)]
    return Builder(name="here").node(OPS[name], *values, **attrs)


def moved(dtype: DType) -> list[Node]:
    """Nodes whose arguments are aligned to less than a vector."""
    product = (("mul", (0, 1), ()), ("add", (3, 2), ()))
    return [
        of_shapes("concat", dtype, (4, 6, 58), (4, 6, 26), axis=2),
        of_shapes("concat", dtype, (8, 29), (8, 3), axis=1),  # single elements
        of_shapes("slice", dtype, (4, 6, 60), starts=(0, 1, 2), stops=(4, 5, 60), steps=(1, 1, 1)),
        of_shapes("fused", dtype, (8, 58), (58,), (8, 1), body=product),  # values of columns and of rows
    ]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
@pytest.mark.parametrize("number", range(4))
def test_short_vectors_move_the_same_values(number: int, dtype: DType) -> None:
    node, rng = moved(dtype)[number], np.random.default_rng(number)
    xs = [simulator.held(rng.normal(size=t.ints), dtype) for t in node.input_types]
    found = [name for name in SM_90.variants(node) if name]
    assert found and all(name.startswith("vectors=") for name in found)
    [expected] = on_machine(node, xs)
    for variant in found:
        [got] = on_machine(node, xs, variant=variant)
        np.testing.assert_array_equal(got, expected, err_msg=variant)


def test_neighbouring_threads_move_neighbouring_bytes() -> None:
    """ShuffleNetV2's halves of 58 channels: a thread moves pairs of bf16, four of them or eight."""
    node = of_shapes("concat", DType.BF16, (128, 28, 28, 58), (128, 28, 28, 58), axis=3)
    for variant in ("", "vectors=8"):
        launches = lower_variant(node, Choice(OWN, variant)) or []
        assert len(launches) == 2
        assert "store_bf16_2(" in source_of("k", launches[0].code).text, variant


def test_aligned_vectors_have_one_shape() -> None:
    node = of_shapes("concat", DType.BF16, (128, 28, 28, 64), (128, 28, 28, 64), axis=3)
    assert SM_90.variants(node) == ("",)
