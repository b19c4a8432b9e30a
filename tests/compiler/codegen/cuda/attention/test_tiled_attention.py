"""Attention in tiles: where it is taken, that its kernels fit, and how they compile. What it computes is seen on a GPU
(tests/support/make_kernels.py)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_kernels.sample_nodes import OPS
from thinning import thinned

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.attention import tiled
from dslc.compiler.codegen.cuda.attention.tiled import TiledAttention
from dslc.compiler.codegen.cuda.attention.tiles import TILES, tile_of, tiles_of, width_of
from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.compound.strided_attention import MOST_IN_TF32, View

LEAST_SHARED = 163 << 10  # bytes of shared memory of a block on sm_80


def value(dtype: DType, *shape: int) -> Any:
    return Input("x", Kind.DATA, TensorType(dtype, shape)).value


def node(
    dtype: DType, features: int, keys: int = 96, values: int | None = None, mask: tuple[int, ...] = (),
    scale: float = 0.125, tf32: bool = False,
) -> Node:  # fmt: skip
    q, k, v = (value(dtype, 2, 3, n, f) for n, f in ((96, features), (keys, features), (keys, values or features)))
    masks = [value(DType.B1, *mask)] if mask else []
    more = {"tf32": True} if tf32 else {}
    return Builder(name="here").node(OPS["sdpa"], q, k, v, *masks, causal=keys == 96, scale=scale, **more)


def gradient(of: Node) -> Node:
    q, k, v, *mask = of.inputs
    dy = value(q.type.dtype, *of.types[0].ints)
    return Builder(name="here").node(OPS["sdpa_grad"], q, k, v, *of.outputs, dy, *mask, **of.attrs)


def is_tiled(of: Node) -> bool:
    launches = lower(of)
    assert launches is not None
    found = [isinstance(x.spec, TiledAttention) for x in launches]
    assert any(found) == (all(found) if of.op.name == "sdpa" else found[:3] == [False, True, True])
    return any(found)


@pytest.mark.parametrize("features", [1, 8, 16, 25, 32, 40, 50, 64, 80, 128, 136, 255, 256])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
def test_tiles_are_taken(dtype: DType, features: int) -> None:
    if dtype is DType.F32 and features > MOST_IN_TF32:
        return
    for keys in (96, 7):
        of = node(dtype, features, keys, tf32=dtype is DType.F32)
        assert is_tiled(of) and is_tiled(gradient(of))
        assert all(
            cuda_compile.geometry(launch.spec).shared_bytes <= BLOCK_SHARED_BYTES for launch in (lower(of) or [])
        )


@pytest.mark.parametrize("mask", [(96, 7), (2, 1, 1, 7), (2, 3, 96, 7), (3, 1, 7), (2, 1, 96, 1), (1,)])
def test_tiles_take_any_mask_where_it_lies(mask: tuple[int, ...]) -> None:
    of = node(DType.BF16, 64, 7, mask=mask)
    assert is_tiled(of) and is_tiled(gradient(of))
    [launch] = tiled.sdpa(of)
    spec, numbers = launch.spec, np.arange(np.prod(mask)).reshape(mask)
    start, outer, inner, query, key = spec.mask
    view = View((6 // spec.inner, spec.inner, 96, 7), (outer, inner, query, key), start).of(numbers)
    np.testing.assert_array_equal(view.reshape(2, 3, 96, 7), np.broadcast_to(numbers, (2, 3, 96, 7)))
    assert not launch.scratch


@pytest.mark.parametrize(
    ("keys", "mask", "features", "chunk"),
    [
        (96, (96, 96), 64, 16), (104, (2, 1, 96, 104), 64, 8), (100, (2, 1, 1, 100), 32, 4), (7, (96, 7), 64, 0),
        (96, (96, 1), 64, 0), (96, (96, 96), 256, 0),
    ],
)  # fmt: skip
def test_a_mask_comes_with_the_tiles_where_that_is_possible(
    keys: int, mask: tuple[int, ...], features: int, chunk: int
) -> None:
    """Lines that end between two copies, keys that share a byte, and tiles that leave no room are read by threads."""
    [launch] = tiled.sdpa(node(DType.BF16, features, keys, mask=mask))
    bare = replace(launch.spec, mask=())
    assert launch.spec.mask_chunk == chunk and bare.mask_chunk == 0
    assert (launch.spec.geometry.shared_bytes > bare.geometry.shared_bytes) == (chunk > 0)
    assert launch.spec.geometry.shared_bytes <= BLOCK_SHARED_BYTES


def test_grouped_heads_are_read_where_they_lie() -> None:
    """The stack counts heads of q for y and dq, heads of k for dk and dv; both find k by the same strides."""
    q, k = value(DType.BF16, 2, 6, 96, 64), value(DType.BF16, 2, 2, 96, 64)
    of = Builder(name="here").node(OPS["sdpa"], q, k, k, causal=True, window=7, scale=0.125)
    assert is_tiled(of) and is_tiled(gradient(of))
    forward, back = tiled.sdpa(of)[0].spec, tiled.sdpa_grad(gradient(of))[2].spec
    assert (forward.stack, forward.inner, forward.share, forward.window) == (12, 12, 3, 7)
    assert (back.stack, back.inner, back.share, back.window) == (12, 12, 3, 7)  # three parts of each head of k
    assert back.parts == 3 and len(tiled.sdpa_grad(gradient(of))) == 5
    assert [layout[2] for layout in forward.layouts] == [96 * 64] * 4


def test_a_mask_that_two_strides_do_not_describe_goes_in_parts() -> None:
    q = value(DType.BF16, 2, 3, 4, 16, 64)
    of = Builder(name="here").node(OPS["sdpa"], q, q, q, value(DType.B1, 1, 3, 1, 16, 16), causal=False, scale=0.125)
    assert not is_tiled(of) and not is_tiled(gradient(of))


@pytest.mark.parametrize(
    ("dtype", "changed"),
    [
        (DType.F32, {}),
        (DType.BF16, {"features": 264}),
        (DType.BF16, {"values": 32}),
        (DType.BF16, {"scale": 0.0}),
        (DType.F16, {"scale": -1.0}),
        (DType.F32, {"features": 136, "tf32": True}),
        (DType.F64, {}),
    ],
)
def test_other_attention_goes_in_parts(dtype: DType, changed: dict[str, Any]) -> None:
    of = node(dtype, **{"features": 64, **changed})
    assert not is_tiled(of) and not is_tiled(gradient(of))


@pytest.mark.parametrize(
    ("dtype", "mode", "features"), thinned([(d, *key) for d in (DType.BF16, DType.F32) for key in tiles_of(d)], 7)
)
@pytest.mark.slow
def test_a_kernel_fits_and_keeps_its_sums_in_registers(dtype: DType, mode: Any, features: int) -> None:
    rows = ((0, 200 * features, 0, features),) * len(tiled._ROWS[mode])
    tile = tiles_of(dtype)[mode, features]
    spec = TiledAttention(mode, dtype, 6, 1, 1, 1, rows, (), (), 200, 200, features, True, 0, 0.125, tile)
    geometry = cuda_compile.geometry(spec)
    assert geometry.shared_bytes <= LEAST_SHARED and geometry.grid[0] == 6 * -(-200 // spec.tile.rows)
    masked = replace(spec, mask=(0, 200, 0, 0, 1))
    grouped = replace(spec, inner=3, share=3, window=70)
    narrow = replace(spec, features=features - 8, layouts=((0, 200 * features, 0, features - 8),) * len(rows))
    old = replace(spec, dtype=DType.F16) if dtype.is_half else spec
    cases = (("sm_80", old), *(("sm_90", one) for one in (spec, masked, grouped, narrow)))
    for architecture, one in cases:
        ptx = cuda_compile.compiled(one, "k", architecture).ptx.decode("ascii")
        kind = one.dtype.value if dtype.is_half else "tf32"
        assert "ldmatrix" in ptx and f".f32.{kind}.{kind}.f32" in ptx
        assert ".local" not in ptx and not re.search(r"\b(red|atom)\.", ptx) and ".f64" not in ptx


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_backward_needs_one_number_a_query_of_scratch_memory(dtype: DType) -> None:
    launches = tiled.sdpa_grad(gradient(node(dtype, 64, tf32=dtype is DType.F32)))
    assert {x.bytes for launch in launches for x in launch.scratch} == {2 * 3 * 96 * 4}


@pytest.mark.parametrize(
    ("mode", "features", "own", "stack", "tall"),
    [
        ("forward", 64, 1088, 8, 2),  # 136
        ("forward", 64, 64, 512, 1),  # as many blocks as with twice the rows, of which half would be none
        ("forward", 64, 49, 4096, 1),
        ("forward", 64, 128, 512, 2),
        ("dkdv", 64, 1024, 8, 1),
        ("dkdv", 64, 1024, 64, 2),
        ("dq", 64, 1024, 64, 1),  # as measured
    ],
)
def test_few_blocks_have_fewer_rows_each(mode: Any, features: int, own: int, stack: int, tall: int) -> None:
    assert tile_of(DType.F16, mode, features, own, own, stack) == replace(TILES[mode, features], tall=tall)


@pytest.mark.parametrize(
    ("dtype", "features", "own", "other", "stack", "others", "stages"),
    [
        (DType.BF16, 64, 197, 197, 12, 112, 3),  # two steps, both in flight
        (DType.BF16, 64, 1024, 1024, 8, 128, 2),  # 128 blocks: one for each of 132 multiprocessors
        (DType.BF16, 64, 16, 16, 12, 16, 2),
        (DType.BF16, 32, 100, 950, 8, 128, 5),
        (DType.F16, 128, 256, 256, 16, 64, 2),
        (DType.F16, 200, 256, 256, 8, 32, 2),
        (DType.F32, 64, 77, 77, 8, 48, 3),
        (DType.F32, 128, 256, 256, 16, 32, 2),
    ],
)
def test_blocks_with_a_multiprocessor_for_themselves_take_few_steps(
    dtype: DType, features: int, own: int, other: int, stack: int, others: int, stages: int
) -> None:
    tile = tile_of(dtype, "forward", features, own, other, stack)
    assert (tile.tall, tile.others, tile.stages) == (1, others, stages)
    steps = -(-other // others)
    assert steps == 1 or (steps - 1) * others < other <= steps * others
    table = tiles_of(dtype)["forward", width_of(features)]
    assert tile_of(dtype, "forward", features, own, other, stack, window=64) == replace(table, tall=1)
