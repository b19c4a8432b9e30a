"""Elements scattered along an axis by a sort, as compiled: indices with one element, with many; against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.scatter import scatter
from dslc.compiler.codegen.cuda.ops.scatter.scatter import ScatterSorted
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(7)
IDS = {
    "one": np.full(70, 3),
    "two": np.where(np.arange(70) % 3 == 1, 4, 0),
    "zipf": np.minimum(RNG.zipf(1.5, 70) - 1, 7),
    "runs": np.repeat(np.arange(8), [33, 1, 17, 16, 0, 1, 1, 1]),
    "different": RNG.permutation(70) % 70,
}
HOW: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 16 elements, and no atomic operations."""
    monkeypatch.setattr(scatter, "atomic_scatter", lambda *_: None)
    monkeypatch.setattr(scatter, "part_of", lambda length: 16)
    monkeypatch.setattr(scatter, "_BLOCK_THREADS", 32)


def scattered(ids: np.ndarray, how: str, count: int) -> tuple[Node, list[np.ndarray]]:
    """Along the middle axis of two lines; the second has the indices backwards."""
    rng = np.random.default_rng(1)
    index = np.stack([ids, ids[::-1]], 1)[None].astype(np.int32)
    src = rng.uniform(0.8, 1.25, index.shape).astype(np.float32) * rng.choice([-1, 1], index.shape).astype(np.float32)
    given, where = value(DType.F32, src.shape), value(DType.I32, index.shape)
    if how == "sum":
        return Builder(name="here").node(OPS["scatter_add"], given, where, axis=1, count=count), [src, index]
    x = rng.uniform(0.8, 1.25, (1, count, 2)).astype(np.float32)
    b = Builder(name="here")
    return b.node(OPS["scatter_reduce"], value(DType.F32, x.shape), given, where, axis=1, how=how), [x, src, index]


def exact(how: str, xs: list[np.ndarray], count: int) -> np.ndarray:
    *given, src, index = xs
    y = given[0].astype(np.float64) if given else np.zeros((1, count, 2))
    HOW[how].at(y, (0, index[0], np.arange(2)), src[0].astype(np.float64))
    return y


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", IDS)
def test_lines_are_exact(name: str, how: str) -> None:
    count = int(IDS[name].max()) + 2
    node, xs = scattered(IDS[name], how, count)
    [got] = on_machine(node, xs)
    np.testing.assert_allclose(got, exact(how, xs, count), rtol=5e-6, atol=2e-6)


@pytest.mark.parametrize("wrong", [-1, 8])
def test_an_unknown_index_among_many(wrong: int) -> None:
    """Its line is nan, the other one is not."""
    node, xs = scattered(IDS["runs"], "sum", 8)
    xs[1][0, 40, 0] = wrong
    [got] = on_machine(node, xs)
    assert np.isnan(got[0, :, 0]).all() and np.isfinite(got[0, :, 1]).all()


def test_few_indices_are_scanned_and_a_part_needs_no_second_step() -> None:
    for length, steps in ((64, 0), (65, 2)):
        specs = [launch.spec for launch in lower(scattered(np.zeros(length, int), "sum", 3)[0]) or []]
        assert [spec.step for spec in specs if isinstance(spec, ScatterSorted)] == list(range(steps))
