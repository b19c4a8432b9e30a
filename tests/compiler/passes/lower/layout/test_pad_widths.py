"""pad_widths: rows of large products become multiples of 8 elements; results stay, and small products too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.ir.graph import Graph, Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.lower.layout.pad_widths import pad_widths

FORWARD, BACK = Builder(name="fc"), Builder(name="fc", phase=Phase.BACKWARD)


def layer(rows: tuple[int, ...], width: int, out: int, dtype: DType = DType.BF16, reads: str = "relu") -> Graph:
    """A layer and both gradients; ``reads``: what reads its result."""
    x, dy = input_of("x", Kind.DATA, *rows, width, dtype=dtype), input_of("dy", Kind.DATA, *rows, out, dtype=dtype)
    w = input_of("w", Kind.DATA, out, width, dtype=dtype)
    y = FORWARD(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=True)
    dx = BACK(OPS["matmul"], dy.value, w.value, transpose_a=False, transpose_b=False)
    flat = [BACK(OPS["reshape"], v.value, shape=(int(np.prod(rows)), v.value.type.ints[-1])) for v in (dy, x)]
    dw = BACK(OPS["matmul"], *flat, transpose_a=True, transpose_b=False)
    if reads:
        y, dx = FORWARD(OPS[reads], y), BACK(OPS[reads], dx)
    return graph_of([x, w, dy], {"y": y, "dx": dx, "dw": dw})


def products(graph: Graph) -> list[tuple[int, ...]]:
    """The last axes of all that products read and write."""
    found = [node for node in graph.nodes if node.op.name == "matmul"]
    return [tuple(t.ints[-1] for t in (*node.input_types, *node.types)) for node in found]


@pytest.mark.parametrize(("width", "out"), [(513, 256), (256, 513), (515, 513), (514, 260)])
@pytest.mark.parametrize("rows", [(2048,), (4, 512)])
def test_rows_are_aligned_and_results_the_same(width: int, out: int, rows: tuple[int, ...]) -> None:
    graph = layer(rows, width, out)
    found = pad_widths(graph)
    verify_graph(found)
    assert pad_widths(found) is found
    assert len(products(found)) == 3 and all(size % 8 == 0 for sizes in products(found) for size in sizes)
    pads = [node.inputs[0] for node in found.nodes if node.op.name == "pad"]
    assert len(pads) == len(set(pads)), "a tensor is padded twice"
    feeds = feeds_of(graph, 3)
    one, other = evaluate(graph, feeds), evaluate(found, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("rows", "width", "out", "dtype"),
    [
        (2048, 512, 256, DType.BF16),  # aligned
        (2048, 513, 256, DType.F32),  # a library multiplies f32 without tensor cores
        (2048, 513, 1, DType.BF16),  # a sum of rows
        (2048, 50, 50, DType.BF16),  # fewer than a tile of a tensor core has
        (40, 1027, 1027, DType.BF16),  # the copies would take longer
    ],
)
def test_what_gains_nothing_stays(rows: int, width: int, out: int, dtype: DType) -> None:
    graph = layer((rows,), width, out, dtype)
    assert pad_widths(graph) is graph


def test_products_of_stacks_are_padded() -> None:
    x, y = (input_of(n, Kind.DATA, 64, *s, dtype=DType.F16) for n, s in (("x", (300, 513)), ("y", (513, 301))))
    product = FORWARD(OPS["matmul"], x.value, y.value, transpose_a=False, transpose_b=False)
    graph = graph_of([x, y], {"result": FORWARD(OPS["relu"], product)})
    found = pad_widths(graph)
    verify_graph(found)
    assert Counter(node.op.name for node in found.nodes) == {"pad": 2, "matmul": 1, "slice": 1, "relu": 1}
    [product] = (node for node in found.nodes if node.op.name == "matmul")
    assert [t.ints[1:] for t in product.input_types] == [(300, 520), (520, 304)]


def test_golden(golden: Callable[[str, str], None]) -> None:
    before = layer((2048,), 513, 256)
    golden("passes/pad_widths.txt", f"{format_graph(before)}\nbecomes\n\n{format_graph(pad_widths(before))}")
