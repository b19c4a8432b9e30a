"""Contractions of other sizes share code: their numbers are arguments, and the results are those of constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_kernels.kernels import runnable_levels
from cpu_kernels.native import Native
from op_laws.evaluation import values_of
from thinning import taken

from dslc.compiler.codegen.cpu.contraction.kernel import Contraction
from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ops import registry

OPS = registry.ops()
LINES = {"groups": 1, "pad": (1, 1), "stride": (1, 1), "dilation": (1, 1)}


def node_of(name: str, shapes: list[tuple[int, ...]], **attrs: Any) -> tuple[Node, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return Builder(name="here").node(OPS[name], *values_of(xs), **attrs), xs


def product(rows: int, depth: int, lanes: int, a: bool = False, b: bool = False) -> tuple[Node, list[np.ndarray]]:
    shapes = [(depth, rows) if a else (rows, depth), (lanes, depth) if b else (depth, lanes)]
    return node_of("matmul", shapes, transpose_a=a, transpose_b=b)


def conv(batch: int, channels: int, out: int, size: int) -> tuple[Node, list[np.ndarray]]:
    return node_of("conv", [(batch, channels, size, size), (out, channels, 3, 3)], **LINES)


def contractions(node: Node) -> list[Launch]:
    return [x for x in lower(node) or () if isinstance(x.spec, Contraction)]


PAIRS = {
    "rows": (product(480, 96, 128), product(960, 96, 128)),
    "depth": (product(384, 128, 128), product(384, 320, 128)),
    "lanes": (product(384, 128, 256, b=True), product(384, 128, 512, b=True)),
    "sides turned": (product(384, 128, 512, a=True, b=True), product(384, 160, 768, a=True, b=True)),
    "channels": (conv(2, 32, 64, 28), conv(2, 64, 64, 28)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_products_that_differ_in_given_numbers_have_one_kernel(name: str) -> None:
    [one], [other] = (contractions(node) for node, _ in PAIRS[name])
    assert one.symbol == other.symbol
    assert one.scalar_args != other.scalar_args


def test_many_units_of_few_products_have_constants() -> None:
    node, _ = node_of("matmul", [(40, 6, 8), (40, 8, 16)], transpose_a=False, transpose_b=False)
    for launch in contractions(node):
        assert not launch.scalar_args


@pytest.mark.parametrize(
    ("sizes", "level"),
    taken(
        (
            (s, level)
            for s in [(98, 130, 80), (100, 1100, 70), (7, 600, 33), (129, 64, 49), (270, 800, 40)]
            for level in runnable_levels()
        ),
        3,
    ),
    ids=str,
)
def test_products_have_the_bits_of_constants(sizes: tuple[int, int, int], level: str) -> None:
    for a, b in ((False, False), (True, False), (False, True)):
        same_bits(*product(*sizes, a=a, b=b), level)


@pytest.mark.parametrize(
    ("size", "level"), taken(((size, level) for size in (7, 14, 17) for level in runnable_levels()), 3)
)
def test_convolutions_have_the_bits_of_constants(size: int, level: str) -> None:
    same_bits(*conv(2, 24, 40, size), level)


def same_bits(node: Node, xs: list[np.ndarray], level: str) -> None:
    got, wanted = Native(node, level).run(xs, splits=2), Native(node, level, known=True).run(xs)
    for g, w in zip(got, wanted, strict=True):
        assert g.tobytes() == w.tobytes()
