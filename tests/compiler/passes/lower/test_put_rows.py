"""put_rows: a token goes into its cache in place; and with few_queries, attention reads the cache where it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs.cached_attention import PUT, compiled, nodes, ops
from graphs.pass_examples import evaluate

from dslc.cli.views.graphs import difference
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.text import format_graph


def test_golden(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    before, after = (compiled(tmp_path, after=name).graph for name in ("simplify", "put_rows"))
    golden("passes/put_rows.txt", difference(format_graph(before), format_graph(after)))


@pytest.mark.parametrize("precision", ["bf16", "f32"])
@pytest.mark.parametrize(("heads", "rows", "tokens"), [(8, 1, 1), (4, 2, 1), (8, 2, 3), (8, 1, 16)])
def test_a_token_is_put_in_place_and_the_numbers_stay(
    tmp_path: Path, precision: str, heads: int, rows: int, tokens: int
) -> None:
    given = {"precision": precision, "heads": heads, "rows": rows, "tokens": tokens}
    before, after = (compiled(tmp_path, **given, after=name).graph for name in ("simplify", "few_queries"))  # type: ignore[arg-type]
    assert {"where", "scatter_reduce"} <= {n.op.name for n in before.nodes}
    assert not {"where", "scatter_reduce", "gather_rows"} & {n.op.name for n in after.nodes}
    rng = np.random.default_rng(3)
    feeds = {i.name: np.asarray(rng.normal(size=i.value.type.ints)) for i in before.inputs}
    for at in (0, 7, 320 - tokens, 320):  # the last one is outside of the cache
        feeds["at"] = np.array(at, np.int32)
        old, new = evaluate(before, feeds), evaluate(after, feeds)
        for name, known in old.items():
            np.testing.assert_allclose(new[name], known, rtol=1e-9, atol=1e-12, err_msg=name)
        assert np.isnan(new["result.output"]).all() == (at == 320)


def test_a_layer_has_one_put_and_one_attention(tmp_path: Path) -> None:
    """And nothing else that moves a cache: no copy, cast, transpose or mask of it."""
    for heads in (8, 4):
        program = compiled(tmp_path, heads=heads)
        found = ops(program)
        assert (found["put_rows"], found["few_queries_sdpa"]) == (2, 2)
        assert program.memory is not None and not program.memory.moves
        for source in program.graph.inputs:
            if source.kind is Kind.STATE and source.value.type.rank:
                [new] = [v for i, v in program.graph.updates if i is source]
                assert program.memory.places[new] == program.memory.places[source.value], "it is written in place"
        largest = 320 * heads * 8
        made = [n for n in nodes(program) if any(t.elements == largest for t in n.types) and not n.op.view]
        assert {n.op.name for n in made} == {"put_rows"}


def test_where_the_old_cache_is_read_later_it_stays(tmp_path: Path) -> None:
    put = PUT.replace("keys =", "old = keys\n  keys =", 1) + "\n  values = values + old"
    program = compiled(tmp_path, put=put)
    assert ops(program)["put_rows"] >= 2 and program.memory is not None
    put_nodes = [n for n in program.graph.nodes if n.op.name == "put_rows"]
    kept = {i.value: program.memory.places[i.value] for i in program.graph.inputs}
    places = [program.memory.places[y] == kept[x] for n in put_nodes for x, y in zip(n.inputs, n.outputs)]
    assert not all(places)


def test_many_rows_are_scattered(tmp_path: Path) -> None:
    assert "put_rows" in ops(compiled(tmp_path, tokens=256)) and "put_rows" not in ops(compiled(tmp_path, tokens=257))


def test_other_targets_keep_the_scatter(tmp_path: Path) -> None:
    assert not {"put_rows", "few_queries_sdpa"} & set(ops(compiled(tmp_path, target="cpu", precision="f32")))
    assert not {"put_rows", "few_queries_sdpa"} & set(ops(compiled(tmp_path, fuse=False)))
