"""replacements: scatters that replace elements become one op along any axis, without a transpose; same results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs.replacing import replaced, same

from dslc.compiler.ir.text import format_graph
from dslc.compiler.passes.fuse.indexed.replacements import replacements


@pytest.mark.parametrize("axis", [0, 1])
def test_kernels_of_any_axis_need_no_transpose(axis: int) -> None:
    assert same(replacements, replaced(axis, gradient=False), -1) == ["scatter_last"]
    names = same(replacements, replaced(axis, gradient=True), -1)
    assert "last_places" in names and "transpose" not in names


def test_example(golden: Callable[[str, str], None]) -> None:
    graph = replaced(0, gradient=True)
    texts = format_graph(graph), format_graph(replacements(graph))
    golden("passes/replacements.txt", "before\n\n{}\nafter\n\n{}".format(*texts))
