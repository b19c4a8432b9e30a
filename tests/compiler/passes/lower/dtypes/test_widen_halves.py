"""widen_halves: ops on 16-bit floats become ops on f32 between casts; what only moves elements stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from graphs.random_graphs import graph_of, input_of

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.graph import Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.dtypes.widen_halves import widen_halves
from dslc.compiler.pipeline import compile_entry

MODEL = """nn 1
dim B in 1..8 = 4
model Net(image: [B, 3, 8, 8], ids: u16[B]) -> [B, 4] {
  x = image |> conv(4, 3, pad=1) |> batchnorm |> relu |> maxpool(2) |> flatten
  y = ids |> embedding(9, 64)
  return x + y |> layernorm |> dropout(0.2) |> linear(4) |> softmax
}
train Net(label: u8[B]) {
  loss = nll(log(output), label)
  optimizer = adamw(lr=0.1)
}
"""


def test_a_product_and_a_transpose(golden: Callable[[str, str], None]) -> None:
    x, w = (input_of(n, Kind.DATA, 8, 8, dtype=DType.BF16) for n in "xw")
    b, back = Builder(name="fc"), Builder(name="fc", phase=Phase.BACKWARD)
    y = b(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False)
    z = b(OPS["transpose"], b(OPS["exp"], y), perm=(1, 0))
    graph = graph_of([x, w], {"result.z": z, "result.g": back(OPS["neg"], y)})
    after = widen_halves(graph)
    verify_graph(after)
    assert widen_halves(after) is after, "a second run changes something"
    golden("passes/widen_halves.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("entry", ["train_step", "predict", "init"])
def test_all_of_a_model_runs_as_kernels(tmp_path: Path, entry: str, precision: str) -> None:
    """Nothing is left to numpy, which has no bf16; values wait for the backward pass in 16 bits."""
    (tmp_path / "net.nn").write_text(MODEL)
    options = Options(provider="own", precision=precision, fuse=False)
    program, _ = compile_entry(
        check_file(str(tmp_path / "net.nn")), entry, {"B": 4} if entry != "init" else {}, options
    )
    dtypes = {t.dtype.value for n in program.graph.nodes for t in n.types}
    assert precision in dtypes or entry == "init"
    for node in program.graph.nodes:
        if any(t.dtype.is_half for t in (*node.input_types, *node.types)):
            assert node.op.moves or node.op.name in ("cast", "full", "gather_rows", "nonfinite"), node
