"""Every abstract float gets a dtype; casts stand exactly where compute, state and boundary meet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels.simulator import bf16_bits
from graphs.random_graphs import evaluate, feeds_of, graph_of, input_of
from sources.in_memory import files

import dslc
from dslc.base.errors import DslcError
from dslc.compiler.check.model import check_program
from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.graph import Graph, Input, Kind, Phase
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.dtypes.precision import precision
from dslc.compiler.pipeline import build


def _graph() -> Graph:
    x, w = input_of("x", Kind.DATA, 4, dtype=DType.FLOAT), input_of("w", Kind.PARAM, 4, dtype=DType.FLOAT)
    ids = input_of("ids", Kind.DATA, 4, dtype=DType.I32)
    lr = Input("lr", Kind.SCALAR, TensorType(DType.FLOAT, ()))
    b = Builder(name="a")
    y = b(OPS["mul"], b(OPS["add"], x.value, b(OPS["cast"], ids.value, dtype=DType.FLOAT)), w.value)
    update = Builder(name="w", phase=Phase.UPDATE)
    new = update(OPS["sub"], w.value, update(OPS["mul"], y, lr.value))
    exact = b(OPS["cast"], y, dtype=DType.F64)
    return graph_of([x, ids, w, lr], {"result.y": y, "result.exact": exact, "result.ids": ids.value}, [(w, new)])


def _after(graph: Graph, compute: DType, params: DType) -> Graph:
    build = Build(precision=Precision(compute, params))
    after = precision(Program("train_step", {}, graph), build)
    verify_graph(after.graph)
    assert "float" not in format_graph(after.graph)
    assert precision(after, build).graph is after.graph
    return after.graph


@pytest.mark.parametrize("compute", [DType.F32, DType.F64])
@pytest.mark.parametrize("params", [DType.F32, DType.F64])
def test_dtypes_of_every_part(compute: DType, params: DType) -> None:
    graph = _after(_graph(), compute, params)
    types = {i.name: i.value.type.dtype for i in graph.inputs}
    assert types == {"x": compute, "ids": DType.I32, "w": params, "lr": compute}
    assert [v.type.dtype for v in graph.outputs.values()] == [compute, DType.F64, DType.I32]
    for node in graph.nodes:
        if node.op.name != "cast":
            assert node.types[0].dtype is (params if node.phase is Phase.UPDATE else compute)
    casts = sum(n.op.name == "cast" for n in graph.nodes)
    assert casts == 2 + (3 if compute is not params else 0)  # ids and exact; w, y and lr where they differ
    feeds = feeds_of(graph, 1)
    out = evaluate(graph, feeds)
    x, ids, w, lr = (feeds[n].astype(np.float64) for n in ("x", "ids", "w", "lr"))
    np.testing.assert_allclose(out["update w"], w - (x + ids) * w * lr, rtol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_dtype_that_the_target_lacks(target: str) -> None:
    with pytest.raises(DslcError) as caught:
        precision(Program("predict", {}, _graph(), target), Build(target, precision=Precision(params=DType.F16)))
    assert caught.value.code == "E0602" and caught.value.help == "--precision f32"


def test_a_dtype_that_numpy_lacks() -> None:
    build = Build(provider="reference", precision=Precision(compute=DType.BF16))
    with pytest.raises(DslcError, match="numpy has no bf16") as caught:
        precision(Program("predict", {}, _graph()), build)
    assert caught.value.code == "E0602" and "--precision f32" in str(caught.value.help)


def test_golden(golden: Callable[[str, str], None]) -> None:
    graph = _graph()
    after = _after(graph, DType.F32, DType.F64)
    golden("passes/precision.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


def test_statistics_and_the_train_section_stay_in_f32_with_bf16() -> None:
    x = input_of("x", Kind.DATA, 2, 3, dtype=DType.FLOAT)
    vectors = [input_of(n, Kind.PARAM, 3, dtype=DType.FLOAT) for n in ("weight", "bias")]
    b = Builder(name="norm")
    y = b.node(OPS["layernorm"], x.value, *(v.value for v in vectors), axis=1, eps=1e-5).outputs[0]
    loss = Builder(name="train.mean")(OPS["mean"], Builder(name="train")(OPS["exp"], y), over=(0, 1), keep=False)
    graph = graph_of([x, *vectors], {"loss": loss, "result.y": Builder(name="out")(OPS["exp"], y)}, [])
    build = Build(target="sm_90", precision=Precision(DType.BF16, DType.F32))
    after = precision(Program("train_step", {}, graph), build).graph
    verify_graph(after)
    found = {(n.op.name, n.name): [t.dtype for t in (*n.input_types, *n.types)] for n in after.nodes}
    f32, bf16 = DType.F32, DType.BF16
    assert found["layernorm", "norm"] == [bf16, f32, f32, bf16, f32, f32]
    assert found["exp", "train"] == [f32, f32] and found["mean", "train.mean"] == [f32, f32]
    assert found["exp", "out"] == [f32, f32]  # a result of the model is f32


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_a_loss_inside_of_a_model_of_16_bits(dtype: DType) -> None:
    """Its value, its statistics and the incoming gradient are f32."""
    logits, dy = (input_of(n, Kind.DATA, *s, dtype=DType.FLOAT) for n, s in (("x", (4, 5)), ("dy", (4,))))
    target = input_of("t", Kind.DATA, 4, dtype=DType.I32)
    at = Builder(name="a.cross_entropy")
    attrs = {"axis": 1, "smoothing": 0.1}
    loss, *statistics = at.node(OPS["softmax_cross_entropy"], logits.value, target.value, **attrs).outputs
    slope = at(OPS["softmax_cross_entropy_grad"], logits.value, target.value, *statistics, dy.value, **attrs)
    graph = graph_of([logits, target, dy], {"result.l": loss, "result.g": slope})
    build = Build(target="sm_90", precision=Precision(dtype, DType.F32))
    after = precision(Program("train_step", {}, graph), build).graph
    verify_graph(after)
    [node] = [n for n in after.nodes if n.op.name == "softmax_cross_entropy_grad"]
    assert [t.dtype for t in node.input_types] == [dtype, DType.I32, DType.F32, DType.F32, DType.F32]


STATE = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 5]) -> [B, 5] {
  param a: [5] = normal(0.3)
  param b: [5] = trunc_normal(0.2)
  param c: [5, 5] = orthogonal
  param d: [5] = constant(0.1)
  param e: [5] = uniform(-0.5, 0.5)
  return (x * a + b * e + d) @ c
}
train Net(t: [B, 5]) {
  loss      = mse(output, t)
  optimizer = sgd(lr=0.1)
}
"""


@pytest.mark.parametrize("asked", ["bf16", "f16", "bf16 params"])
def test_initial_values_are_not_rounded_to_the_dtype_of_the_products(asked: str, tmp_path: Path) -> None:
    """They are those of an f32 model; parameters of 16 bits hold these, rounded once."""

    def state(text: str, precision: str | None = None) -> dict[str, np.ndarray]:
        path = tmp_path / "net.dslc"
        path.write_bytes(build(check_program(files(text)), Options(precision=precision)).artifact)
        with dslc.load(path, device="cpu", weights="init", seed=4) as session:
            return {name: np.array(value) for name, value in session.state_tensors().items()}

    full = state(STATE)
    if asked == "bf16 params":
        found = state(STATE + "precision { compute = bf16; params = bf16 }\n")
        full = {name: bf16_bits(value) for name, value in full.items()}
    else:
        found = state(STATE, asked)
    assert found.keys() >= full.keys()  # f16 has a loss scale, too
    for name, value in full.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
