"""Tiles of transposes whose axes are no multiples of 64, as compiled."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS
from gpu_kernels.simulation import simulated

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Tiles
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


def node_of(shape: tuple[int, ...], perm: tuple[int, ...], dtype: DType) -> Node:
    return Builder(name="here").node(OPS["transpose"], value(dtype, shape), perm=perm)


def tiles_of(node: Node) -> Tiles:
    [launch] = lower(node) or []
    found = schedule(launch.spec)
    assert isinstance(found, Tiles)
    return found


#: shape, permutation, dtype, sides and threads of a tile
CASES = [
    ((5, 65, 33), (0, 2, 1), DType.BF16, (33, 65, 256)),
    ((3, 33, 2, 37), (3, 0, 2, 1), DType.F32, (37, 33, 256)),
    ((2, 48, 3, 32), (0, 3, 2, 1), DType.BF16, (32, 48, 192)),
    ((2, 34, 66), (0, 2, 1), DType.F64, (66, 34, 192)),
    ((40, 77), (1, 0), DType.B1, (77, 40, 192)),
]


@pytest.mark.parametrize(("shape", "perm", "dtype", "sides"), CASES)
def test_tiles_fit_axes_that_are_no_multiples(
    shape: tuple[int, ...], perm: tuple[int, ...], dtype: DType, sides: tuple[int, int, int]
) -> None:
    node, rng = node_of(shape, perm, dtype), np.random.default_rng(0)
    x = rng.integers(0, 2, shape).astype(bool) if dtype is DType.B1 else simulator.held(rng.normal(size=shape), dtype)
    tiles = tiles_of(node)
    assert (tiles.tall, tiles.wide, tiles.threads) == sides
    assert tiles.tall % tiles.vector == tiles.wide % tiles.vector == 0
    found = simulated(node, [x])
    assert found is not None
    np.testing.assert_array_equal(found[0], x.transpose(perm))
    np.testing.assert_array_equal(on_machine(node, [x])[0], x.transpose(perm))


@pytest.mark.parametrize("shape", [(4096, 1024), (2049, 2051), (196, 384), (515, 129)])
def test_axes_of_which_squares_lose_little_have_squares(shape: tuple[int, int]) -> None:
    tiles = tiles_of(node_of(shape, (1, 0), DType.BF16))
    assert (tiles.tall, tiles.wide, tiles.threads, tiles.held * tiles.vector) == (64, 64, 256, 16)
