"""The pass that gives products the panels of their weights as nodes, which the next pass prepares."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sources.in_memory import files

from dslc.compiler.check.model import check_program
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

HEAD = "nn 1\ndim B in 1..1_000_000 = 1\nmodel Net(x: [B, 512]) -> [B, 512] {\n"


def passed(body: str, rows: int, **options: object) -> tuple[dict[str, Program], Program]:
    """The program after each pass, by its name, and at the end."""
    checked = check_program(files(HEAD + body + "\n}\n"))
    kept: dict[str, Program] = {}
    given = Options(sizes={"predict": {"B": (rows,)}}, **options)  # type: ignore[arg-type]
    return kept, compile_entry(checked, "predict", {"B": rows}, given, keep=kept.__setitem__)[0]


def test_the_example(golden: Callable[[str, str], None]) -> None:
    kept, _ = passed("return linear(x, 512, bias=false)", 97)
    names = list(kept)
    before, after = kept[names[names.index("pack_weights") - 1]].graph, kept["pack_weights"].graph
    golden("passes/pack_weights.txt", f"before\n\n{format_graph(before)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize(
    ("body", "rows", "packs"),
    [
        ("return linear(x, 512)", 97, True),
        ("return linear(x, 512)", 20_000, False),  # the product takes much longer
        ("return linear(x, 512)", 1, False),  # the kernel reads a row in place
        ("return x @ x.T @ x", 97, False),
    ],
)
def test_panels_of_weights_are_prepared_on_a_cpu(body: str, rows: int, packs: bool) -> None:
    plain, packed = (passed(body, rows, prepare=word)[1] for word in ("never", "auto"))
    prepared = [] if packed.prepared is None else [node.op.name for node in packed.prepared.nodes]
    names = [node.op.name for node in packed.graph.nodes]
    assert ("of_panels" in names) == ("panels" in prepared) == packs and "panels" not in names
    symbols = [sorted(x.symbol for found in p.kernels.values() for x in found) for p in (plain, packed)]
    if packs:  # the same kernels but for the one that packs
        assert len(symbols[0]) == len(symbols[1]) + 1 and set(symbols[1]) < set(symbols[0])
        assert not packed.scratch and plain.scratch
    else:
        assert symbols[0] == symbols[1]
    assert "of_panels" not in {n.op.name for n in passed(body, rows, target="sm_90")[1].graph.nodes}
