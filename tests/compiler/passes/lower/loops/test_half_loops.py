"""half_loops: casts to 16 bits leave loops, and values keep their bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.pass_examples import evaluate, feeds_of
from loops import CELLS, model

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Graph, Kind
from dslc.compiler.ir.scan import Loop, scan
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.loops.half_loops import half_loops
from dslc.compiler.passes.lower.loops.prune_loops import prune_loops
from dslc.compiler.pipeline import compile_entry


def looped(name: str, folder: Path, precision: str, reverse: bool, after: str) -> Graph:
    (folder / "net.nn").write_text(model(CELLS[name], 3, written_out=False, reverse=reverse))
    options = Options(target="sm_90", precision=precision, provider="own")
    return compile_entry(check_file(folder / "net.nn"), "train_step", {"B": 2}, options, after=after)[0].graph


def loops_of(graph: Graph) -> list[Loop]:
    return [Loop.of(node) for node in graph.nodes if node.op is scan]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", sorted(CELLS))
def test_values_are_kept(name: str, reverse: bool, tmp_path: Path, fuzz_seed: int) -> None:
    graph = looped(name, tmp_path, "bf16", reverse, "half_reads")
    found = half_loops(graph)
    verify_graph(found)
    assert half_loops(found) is found
    assert not any(t.dtype is DType.FLOAT for node in graph.nodes for t in node.types)
    feeds = feeds_of(graph, fuzz_seed)
    before, after = evaluate(graph, feeds), evaluate(found, feeds)
    assert before.keys() == after.keys()
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_products_in_loops_have_16_bit_factors_cast_once(precision: str, tmp_path: Path) -> None:
    graph = looped("lstm", tmp_path, precision, False, "after_loops")
    first, second = loops_of(graph)
    for loop in (first, second):
        inputs = {source.value for source in loop.graph.inputs}
        for node in loop.graph.nodes:
            if node.op.name == "matmul":
                assert all(t.dtype.value == precision for t in node.input_types) and node.types[0].dtype is DType.F32
            halves = node.op.name == "cast" and node.types[0].dtype.is_half
            assert not halves or node.inputs[0] not in inputs, "a cast of what comes from outside or the last step"
    carried = [source.value.type.dtype.value for source in first.graph.inputs if source.kind is Kind.BUFFER]
    assert sorted(carried) == sorted([precision, "f32"]), "of the state c, and of h as the product reads it"
    assert {v.type.dtype.value for v in first.graph.outputs.values()} == {precision, "f32"}


def test_a_model_of_32_bits_is_left_alone(tmp_path: Path) -> None:
    graph = prune_loops(looped("lstm", tmp_path, "f32", False, "half_reads"))
    assert half_loops(graph) is graph
