"""The scratch blocks of a node's launches are numbered without a gap, as the memory plan wants them."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels.sample_nodes import OPS, SAMPLES, node_of
from op_laws.evaluation import values_of

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.passes.plan.select_kernels import _blocks

NAMES = sorted(n for n in SAMPLES if n in OPS and not OPS[n].view)


def blocks_of(node: Node) -> tuple[int, ...]:
    return _blocks(lower(node) or [])


def test_blocks_of_all_samples() -> None:
    found = [blocks_of(node_of(name, number, "f32")[0]) for name in NAMES for number in range(len(SAMPLES[name]))]
    assert max(map(len, found)) > 1


@pytest.mark.parametrize("length", [2, 64, 65, 1000, 5000, 100_000])
@pytest.mark.parametrize("name", ["scatter_add", "scatter_reduce", "scatter_rows_add", "sort", "topk"])
def test_blocks_at_sizes_of_each_way(name: str, length: int) -> None:
    x, ids, table = np.zeros((length,), np.float32), np.zeros((length,), np.int32), np.zeros((8,), np.float32)
    rows = np.zeros((length, 4), np.float32)
    given: dict[str, tuple[list[np.ndarray], dict[str, object]]] = {
        "scatter_add": ([x, ids], {"axis": 0, "count": 8}),
        "scatter_reduce": ([table, x, ids], {"axis": 0, "how": "max"}),
        "scatter_rows_add": ([rows, ids], {"count": 8}),
        "sort": ([x], {"axis": 0, "descending": False}),
        "topk": ([x], {"axis": 0, "k": 2, "largest": True}),
    }
    xs, attrs = given[name]
    blocks_of(Builder().node(OPS[name], *values_of(xs), **attrs))
