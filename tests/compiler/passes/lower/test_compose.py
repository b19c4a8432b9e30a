"""compose: an op of a package becomes its parts, down to ops that are none; on a GPU its kernel stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_packages.installed import GATE, imported

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options

NESTED = (
    GATE.replace(
        "class Gate(Function)",
        '''class TwiceOp(Composed):
    """gates.twice(x): twice the gate."""

    name = "gates.twice"

    def compose(self, f, x):
        return f.mul(2, f.emit(op, x))

    def meaning(self, xs, attrs):
        return [2 * op.meaning(xs, attrs)[0]]


class Gate(Function)''',
    ).replace("return call.emit(op, x)", "return call.emit(twice, x)")
    + "\ntwice = register(TwiceOp())\n"
)
MODEL = """nn 1
use "entry:gates" (gate)
dim B in 1..4 = 4
model Gated(x: [B, 8]) -> [B, 4] {
  return gate(x)
}
"""


@pytest.mark.parametrize(
    ("target", "precision", "left"),
    [("cpu", "f32", []), ("cpu", "f64", []), ("sm_90", "f32", ["gates.gate"]), ("sm_90", "bf16", ["gates.gate"])],
)
def test_parts_take_the_place_of_an_op_without_a_kernel(
    target: str, precision: str, left: list[str], tmp_path: Path
) -> None:
    (tmp_path / "gates.nn").write_text(MODEL)
    with imported(tmp_path / "site", NESTED, "gates"):
        checked = check_file(tmp_path / "gates.nn")
        options = Options(target=target, precision=precision, provider="own")
        program, _ = pipeline.compile_entry(checked, "predict", {"B": 4}, options, after="compose")
        assert [node.op.name for node in program.graph.nodes if "." in node.op.name] == left
        assert {str(t.dtype) for node in program.graph.nodes for t in node.types} <= {precision, "f32"}
        pipeline.compile_entry(checked, "predict", {"B": 4}, options)
