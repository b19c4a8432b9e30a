"""wide_rows: what lies between products of odd rows is computed with their aligned rows; results stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.layout.pad_widths import pad_widths
from dslc.compiler.passes.lower.layout.wide_rows import wide_rows
from dslc.compiler.pipeline import compile_entry

B, ROWS, WIDTH = Builder(name="here"), 2048, 515

#: ``between(y, vector, column)``: from the first product, [ROWS, WIDTH], to what the second one reads; other results.
Between: TypeAlias = Callable[[Value, Value, Value], tuple[Value, list[Value]]]


def full(number: float, like: Value) -> Value:
    return B(OPS["full"], value=number, dtype=like.type.dtype, shape=())


def normed(y: Value, vector: Value, _: Value) -> tuple[Value, list[Value]]:
    """As a batchnorm with relu: its sums are results, too."""
    total = B(OPS["sum_to"], y, shape=(1, WIDTH))
    mean = B(OPS["div"], total, full(ROWS, y))
    centred = B(OPS["sub"], y, mean)
    spread = B(OPS["sum"], B(OPS["mul"], centred, centred), over=(0,), keep=True)
    scale = B(OPS["rsqrt"], B(OPS["add"], B(OPS["div"], spread, full(ROWS, y)), full(1e-3, y)))
    found = B(OPS["add"], B(OPS["mul"], B(OPS["mul"], centred, scale), vector), vector)
    return B(OPS["relu"], found), [total, scale]


def masked(y: Value, vector: Value, column: Value) -> tuple[Value, list[Value]]:
    """As a gradient through relu, of rows that have a factor each."""
    zero = full(0.0, y)
    kept = B(OPS["where"], B(OPS["le"], y, zero), zero, B(OPS["mul"], y, vector))
    return B(OPS["mul"], kept, column), []


def moved(y: Value, vector: Value, _: Value) -> tuple[Value, list[Value]]:
    """Other axes may move."""
    apart = B(OPS["reshape"], B(OPS["mul"], y, vector), shape=(4, ROWS // 4, WIDTH))
    none = (0, 0, 0)
    more = B(OPS["pad"], apart, low=(0, 2, 0), high=none, interior=none, value=0.0)
    less = B(OPS["slice"], more, starts=(0, 1, 0), steps=(1, 1, 1), stops=(4, 1 + ROWS // 4, WIDTH))
    turned = B(OPS["transpose"], less, perm=(1, 0, 2))
    return B(OPS["reshape"], turned, shape=(ROWS, WIDTH)), []


def shifted(y: Value, vector: Value, _: Value) -> tuple[Value, list[Value]]:
    """Not zeros from zeros."""
    return B(OPS["exp"], B(OPS["mul"], y, vector)), []


def graph(between: Between, dtype: DType = DType.BF16) -> Graph:
    """Two products and what lies between them."""
    x, w = input_of("x", Kind.DATA, ROWS, 256, dtype=dtype), input_of("w", Kind.DATA, WIDTH, 256, dtype=dtype)
    v, vector = input_of("v", Kind.DATA, 128, WIDTH, dtype=dtype), input_of("vector", Kind.DATA, 1, WIDTH, dtype=dtype)
    column = input_of("column", Kind.DATA, ROWS, 1, dtype=dtype)
    y = B(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=True)
    middle, others = between(y, vector.value, column.value)
    z = B(OPS["matmul"], middle, v.value, transpose_a=False, transpose_b=True)
    results = {"z": z, **{f"other{i}": value for i, value in enumerate(others)}}
    return pad_widths(graph_of([x, w, v, vector, column], results))


def copies(graph: Graph) -> list[str]:
    """Those between odd and aligned rows, but not of weights."""
    return [
        node.op.name for node in graph.nodes
        if node.op.name in ("pad", "slice") and node.types[0].ints[-1] != node.input_types[0].ints[-1]
        and np.prod(node.types[0].ints[:-1]) == ROWS
    ]  # fmt: skip


def same(before: Graph, after: Graph) -> None:
    verify_graph(after)
    feeds = feeds_of(before, 3)
    one, other = evaluate(before, feeds), evaluate(after, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("between", [normed, masked, moved])
def test_nothing_is_copied_between_products(between: Between) -> None:
    before = graph(between)
    assert copies(before) == ["slice", "pad"]
    after = wide_rows(before)
    assert copies(after) == [] and wide_rows(after) is after
    same(before, after)


def test_what_adds_no_zeros_is_padded() -> None:
    before = graph(shifted)
    assert wide_rows(before) is before or copies(wide_rows(before)).count("pad") == 1
    same(before, wide_rows(before))


def test_other_readers_of_odd_rows_get_a_slice() -> None:
    """One copy stays of two; a softmax reads rows, so that aligned ones would change it."""

    def between(y: Value, vector: Value, _: Value) -> tuple[Value, list[Value]]:
        found = B(OPS["relu"], B(OPS["mul"], y, vector))
        return B(OPS["relu"], B(OPS["add"], found, found)), [B(OPS["softmax"], found, axis=1)]

    before = graph(between)
    after = wide_rows(before)
    assert copies(after) == ["slice"]
    same(before, after)


def test_groups_that_save_nothing_stay() -> None:
    """Two other tensors would have to be padded, to save two copies."""

    def between(y: Value, vector: Value, column: Value) -> tuple[Value, list[Value]]:
        others = [B(OPS["softmax"], B(OPS["mul"], column, each), axis=1) for each in (vector, B(OPS["exp"], vector))]
        third = B(OPS["softmax"], B(OPS["mul"], column, B(OPS["sin"], vector)), axis=1)
        return B(OPS["add"], B(OPS["add"], B(OPS["add"], y, others[0]), others[1]), third), []

    before = graph(between)
    assert wide_rows(before) is before


def test_golden(golden: Callable[[str, str], None]) -> None:
    before = graph(masked)
    golden("passes/wide_rows.txt", f"{format_graph(before)}\nbecomes\n\n{format_graph(wide_rows(before))}")


NET = """nn 1
dim B in 1..64 = 8
model Net(image: [B, 16, 24, 24]) -> [B, 16] {
  return image |> conv(45, 3, pad=1, bias=false) as a |> batchnorm as norm |> relu |> conv(16, 3, pad=1) as b
    |> mean(over=[2, 3])
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.01)
}
"""


@pytest.mark.slow
def test_a_step_of_convolutions_has_the_same_results(tmp_path: Path) -> None:
    """Forward and backward, with the sums of the batchnorm."""
    path = tmp_path / "net.nn"
    path.write_text(NET)
    options = Options(target="sm_90", provider="vendor", precision="bf16")
    kept: dict[str, Program] = {}
    compile_entry(check_file(path), "train_step", {"B": 8}, options, after="wide_rows", keep=kept.__setitem__)
    before, after = kept["pad_widths"].graph, kept["wide_rows"].graph
    odd = [sum(t.ints[:1] == (8,) and t.ints[-1] == 45 for n in g.nodes for t in n.types) for g in (before, after)]
    assert odd[0] > 10 and odd[1] == 0
    verify_graph(after)
    feeds = feeds_of(before, 3)
    one, other = evaluate(before, feeds), evaluate(after, feeds)
    for name, x in one.items():
        np.testing.assert_allclose(other[name], x, rtol=1e-9, atol=1e-9, err_msg=name)
