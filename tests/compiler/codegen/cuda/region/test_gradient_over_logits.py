"""softmax_cross_entropy_both writes the gradient over the logits: short rows, long rows, columns, and split rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import simulator
from gpu_kernels.on_ptx_machine import on_machine, run_launches

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import split_choice
from dslc.compiler.codegen.device_model import SplitLimits
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

MODEL = """nn 1
dim B in 1..64 = 64
model Net(x: [B, 32]) -> [B, 40] { return x |> linear(40) as head }
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""


def case(shape: tuple[int, ...], axis: int, dtype: DType) -> tuple[Node, list[np.ndarray]]:
    """A node, and its inputs."""
    rest = shape[:axis] + shape[axis + 1 :]
    types = [TensorType(dtype, shape), TensorType(DType.I32, rest)]
    values = [Input(name, Kind.DATA, t).value for name, t in zip("xt", types)]
    node = Builder(name="here").node(OPS["softmax_cross_entropy_both"], *values, axis=axis, smoothing=0.1, dy=0.5)
    rng = np.random.default_rng(shape)
    target = rng.integers(0, shape[axis], rest).astype(np.int32)
    return node, [simulator.held(rng.standard_normal(shape).astype(np.float32), dtype), target]


@pytest.mark.parametrize(("shape", "axis", "dtype", "split", "backwards"), [
    ((5, 70), 1, DType.F32, False, True), ((2, 1237), 1, DType.BF16, False, False),
    ((5, 6), 0, DType.BF16, False, True), ((2, 300), 1, DType.F32, True, False), ((2, 301), 1, DType.BF16, True, True),
])  # fmt: skip
def test_in_place_is_what_it_is_apart(
    shape: tuple[int, ...], axis: int, dtype: DType, split: bool, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if split:
        monkeypatch.setattr(split_choice, "GPU_ROW_SPLITS", SplitLimits(busy=64, wanted=8, min_elements=1, min_part=64))
    node, xs = case(shape, axis, dtype)
    assert (len(lower(node) or []) > 1) is split
    assert node.op.in_place(node) == ((0, 1),)
    loss, gradient = on_machine(node, xs)
    known: dict[Any, np.ndarray] = {
        v: simulator.memory(x.reshape(-1), v.type.dtype) for v, x in zip(node.inputs, xs, strict=True)
    }
    known[node.outputs[0]] = np.zeros_like(simulator.memory(loss.reshape(-1), node.types[0].dtype))
    known[node.outputs[1]] = known[node.inputs[0]]
    run_launches(lower(node) or [], known, backwards=backwards)
    for value, apart in zip(node.outputs, (loss, gradient), strict=True):
        assert simulator.values(known[value], value.type.dtype).tobytes() == apart.reshape(-1).tobytes()


def test_a_plan_has_one_place_for_both(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(MODEL)
    checked = check_file(tmp_path / "net.nn")
    program, _ = compile_entry(checked, "train_step", {"B": 64}, Options(target="sm_90", provider="own", streams=1))
    [node] = [n for n in program.graph.nodes if n.op.name == "softmax_cross_entropy_both"]
    assert program.memory is not None
    assert program.memory.places[node.inputs[0]] == program.memory.places[node.outputs[1]]
