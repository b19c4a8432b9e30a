"""few_rows_epilogue: a product of few rows and its reader are one kernel, whatever the provider; the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of

from dslc.cli.views.graphs import difference
from dslc.compiler.check.model import check_file
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

PASS = "few_rows_epilogue"
MODEL = """\
nn 1
dim B in 1..64 = 1

model M(x: [B, 256]) -> [B, 256] {
  y = x |> linear(512) as wide |> gelu
  x = x + (y |> linear(256) as narrow)
  return x |> linear(256, bias=false) as last
}
"""


def compiled(
    folder: Path, rows: int = 1, *, provider: str = "vendor", precision: str = "bf16", target: str = "sm_90",
    after: str | None = None, text: str = MODEL,
) -> Program:  # fmt: skip
    (folder / "m.nn").write_text(text)
    with chdir(folder):
        checked = check_file("m.nn")
    options = Options(target=target, provider=provider, precision=precision)
    return compile_entry(checked, "predict", {"B": rows}, options, after=after)[0]


@pytest.mark.parametrize("provider", ["vendor", "own"])
@pytest.mark.parametrize("precision", ["bf16", "f16", "f32"])
def test_each_product_is_one_launch(tmp_path: Path, provider: str, precision: str) -> None:
    for rows in (1, 8):
        program = compiled(tmp_path, rows, provider=provider, precision=precision)
        launched = [len(found) for found in program.kernels.values()]
        products = [n for n in program.kernels if n.op.name in ("contraction", "matmul")]
        assert launched == [1] * len(launched) and len(products) == 3
        assert len(launched) == (4 if precision != "f32" else 3), "and a cast of x to 16 bits"


@pytest.mark.parametrize("precision", ["bf16", "f32"])
def test_the_numbers_stay(tmp_path: Path, precision: str) -> None:
    before, after = (compiled(tmp_path, 3, precision=precision, after=name).graph for name in ("fuse", PASS))
    assert Counter(n.op.name for n in after.nodes)["contraction"] >= 2
    feeds = feeds_of(before, 5)
    old, new = evaluate(before, feeds), evaluate(after, feeds)
    for name, known in old.items():
        np.testing.assert_allclose(new[name], known, rtol=1e-12, err_msg=name)


def test_many_rows_stay(tmp_path: Path) -> None:
    before, after = (compiled(tmp_path, 9, after=name).graph for name in ("fuse", PASS))
    assert format_graph(before) == format_graph(after)


def test_other_targets_are_as_before(tmp_path: Path) -> None:
    program = compiled(tmp_path, target="cpu", provider="own", precision="f32")
    assert "contraction" not in {n.op.name for n in program.graph.nodes}


def test_golden(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    before, after = (compiled(tmp_path, after=name).graph for name in ("fuse", PASS))
    golden("passes/few_rows_epilogue.txt", difference(format_graph(before), format_graph(after)))
