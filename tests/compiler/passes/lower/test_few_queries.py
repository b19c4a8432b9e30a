"""few_queries: which attention is computed in parts of the keys. Its numbers are those of test_put_rows.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphs.cached_attention import compiled, ops

from dslc.cli.views.graphs import difference
from dslc.compiler.ir.text import format_graph


def test_golden(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    before, after = (compiled(tmp_path, after=name).graph for name in ("transposes", "few_queries"))
    golden("passes/few_queries.txt", difference(format_graph(before), format_graph(after)))


def test_many_queries_are_computed_in_tiles(tmp_path: Path) -> None:
    assert "few_queries_sdpa" not in ops(compiled(tmp_path, tokens=16))
    assert "few_queries_sdpa" not in ops(compiled(tmp_path, tokens=5, heads=4))  # ten rows of each head of k
