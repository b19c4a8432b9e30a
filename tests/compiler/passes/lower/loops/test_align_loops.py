"""Sequences of loops whose elements take multiples of 16 bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loops import CELLS, data, model
from op_laws.evaluation import run

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.scan import Loop, scan
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.loops.align_loops import VECTOR, align_loops
from dslc.compiler.pipeline import compile_entry


@pytest.mark.parametrize("name", ["lstm", "two sequences", "nested"])
def test_values_are_kept(name: str, tmp_path: Path, fuzz_seed: int) -> None:
    text = model(CELLS[name], 3, written_out=False, reverse=True).replace("B, T, 4]", "B, T, 4]")
    (tmp_path / "net.nn").write_text(text)
    program, _ = compile_entry(check_file(tmp_path / "net.nn"), "predict", {"B": 1}, Options(), after="precision")
    rng, given = np.random.default_rng(fuzz_seed), data(3, fuzz_seed)
    graph = program.graph
    feeds = {
        i.value: given[i.name][:1] if i.kind is Kind.DATA else rng.standard_normal(i.value.type.ints).astype("f4")
        for i in graph.inputs
    }
    changed = align_loops(graph)
    verify_graph(changed)
    for one, other in zip(run(graph.roots, feeds), run(changed.roots, feeds), strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_gpu_takes_steps_of_any_size(tmp_path: Path) -> None:
    text = (
        "nn 1\nmodel Net(x: [5, 3], on: b1[5, 3]) -> [5, 3] {\n  param w: [3] = 1\n  h = zeros([3])\n"
        "  scan xt, m in x, on along 0 carry h into y { h = where(m, h * w + xt, h); yield h }\n  return y\n}\n"
        "train Net(t: [5, 3]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    (tmp_path / "net.nn").write_text(text)
    for entry in ("predict", "train_step"):
        options = Options(target="sm_90", provider="own")
        program, _ = compile_entry(check_file(tmp_path / "net.nn"), entry, {}, options)
        loops = [Loop.of(node) for node in program.graph.nodes if node.op is scan]
        assert loops
        for loop in loops:
            elements = (*(s.value for s in loop.sequence_inputs), *loop.graph.outputs.values())
            assert all(v.type.bytes % VECTOR == 0 for v in elements)
