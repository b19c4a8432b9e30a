"""The nodes of a 16-bit model that compute in f32 by default: positions, exponents and sums, and no others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from graphs.random_graphs import evaluate, feeds_of
from places import MODELS

from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.graph import Graph, Phase
from dslc.compiler.ir.op import OPS
from dslc.compiler.ops.registry import load_all
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.dtypes.wide import WHY
from dslc.compiler.passes.queries import values_of_weights
from dslc.compiler.pipeline import compile_entry
from dslc.compiler.report.history import history, wanted

GPU = Options(target="sm_90")
HEAD = "nn 1\ndim B in 1..8 = 4\n"
TRAIN = "train Net(label: i32[B]) { loss = cross_entropy(output, label); optimizer = sgd(lr=0.1) }\n"
MODEL = HEAD + "model Net({inputs}) -> {result} {{\n{body}\n}}\nprecision {{ compute = bf16{more} }}\n"


def _checked(folder: Path, body: str, inputs: str = "x: [B, 32]", result: str = "[B, 8]", more: str = "",
             train: str = "") -> Checked:  # fmt: skip
    (folder / "net.nn").write_text(MODEL.format(inputs=inputs, result=result, body=body, more=more) + train)
    return check_file(str(folder / "net.nn"))


def _graph(checked: Checked, entry: str = "predict", options: Options = GPU) -> Graph:
    sizes = {dim.name: dim.default for dim in checked.dims}
    return compile_entry(checked, entry, sizes, options, after="precision")[0].graph


def _dtypes(graph: Graph, phase: Phase = Phase.FORWARD) -> dict[str, set[str]]:
    """By the name of the op, the dtypes of its float results outside of the train section."""
    found: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.phase is phase and node.op.name != "cast" and not node.name.startswith("train"):
            names = {str(t.dtype) for t in node.types if t.dtype.is_float}
            found.setdefault(node.op.name, set()).update(names)
    return {op: names for op, names in found.items() if names}


ROUTER = """  h = x |> linear(128) as inp |> tanh
  p = h |> linear(8) as gate |> softmax
  w, e = topk(p, 2)
  w = w / sum(w, over=-1, keep=true)
  mixed = sum(reshape(w, [B, 2, 1]) * one_hot(e, 8), over=1)
  return mixed * (h |> linear(8) as experts)"""


@pytest.mark.parametrize("options", [GPU, Options(target="sm_90", precision="bf16")])
def test_a_router_is_f32_and_its_experts_are_not(tmp_path: Path, options: Options) -> None:
    graph = _graph(_checked(tmp_path, ROUTER), options=options)
    found = _dtypes(graph)
    assert found["softmax"] == found["topk"] == found["div"] == {"f32"} and found["tanh"] == {"bf16"}
    products = {n.name: str(n.types[0].dtype) for n in graph.nodes if n.op.name == "matmul"}
    assert products == {"inp": "bf16", "gate": "f32", "experts": "bf16"}


def test_the_gradients_of_f32_nodes_are_f32(tmp_path: Path) -> None:
    found = _dtypes(_graph(_checked(tmp_path, ROUTER, train=TRAIN), "train_step"), Phase.BACKWARD)
    assert found["softmax_grad"] == {"f32"} and {"f32", "bf16"} <= found["matmul"]


def test_a_quotient_by_an_f32_value_is_f32(tmp_path: Path) -> None:
    """Of a weighted mean; a division by a 16-bit tensor, or of an f32 value by one, stays in 16 bits."""
    body = """  w = x |> linear(6) as gate |> softmax
  h = (x |> linear(8) as inp |> tanh) * 2
  mean = w.T @ h / (reshape(sum(w, over=0), [6, 1]) + 1e-5)
  y = mean |> linear(8) as out
  return y[:B.min] / (1 + sum(abs(h), over=0) / 8) / (2 + abs(h)) |> linear(8) as head"""
    graph = _graph(_checked(tmp_path, body, result="[_, 8]"))
    [first, _, second, third] = [n for n in graph.nodes if n.op.name == "div"][:4]
    assert str(first.types[0].dtype) == "f32" and [str(t.dtype) for t in first.input_types] == ["f32", "f32"]
    assert (str(second.types[0].dtype), str(third.types[0].dtype)) == ("f32", "bf16")
    assert {str(n.types[0].dtype) for n in graph.nodes if n.name == "out" and n.op.name == "matmul"} == {"bf16"}


def test_coordinates_reach_their_indices_without_rounding(tmp_path: Path) -> None:
    body = '  return cast(floor((cast(arange(1000), "float") * 0.731 + 0.3) * 1.5), "i32") + ids * 0'
    checked = _checked(tmp_path, body, "ids: i32[1000]", "i32[1000]")
    graph = _graph(checked)
    assert set().union(*_dtypes(graph).values()) == {"f32"}
    [got] = evaluate(graph, feeds_of(graph, 1)).values()
    exact = np.float32(1.5) * (np.arange(1000, dtype=np.float32) * np.float32(0.731) + np.float32(0.3))
    assert (got == np.floor(exact)).all() and len(set(got.tolist())) > 900


def test_a_transformation_of_coordinates_is_f32_also_as_a_product(tmp_path: Path) -> None:
    body = """  t = x |> linear(6) as angles |> reshape([B, 2, 3])
  g = cast(arange(300), "float") / 150 - 1
  places = t @ stack([g, g * g, ones([300])], axis=0)
  return sin(places[:, 0]) |> linear(8) as head"""
    graph = _graph(_checked(tmp_path, body))
    products = {n.name or "places": str(n.types[0].dtype) for n in graph.nodes if n.op.name == "matmul"}
    assert products == {"angles": "f32", "places": "f32", "head": "bf16"}
    assert _dtypes(graph)["sin"] == {"f32"}


def test_a_residual_stream_stays_in_16_bits(tmp_path: Path) -> None:
    body = """  x = x + (x |> linear(32) as a)
  x = x * rsqrt(mean(x^2, over=-1, keep=true) + 0.00001)
  x = x + (x |> linear(32) as b |> relu)
  return x |> linear(8) as head"""
    found = _dtypes(_graph(_checked(tmp_path, body)))
    assert found["rsqrt"] == {"f32"} and found["matmul"] == found["relu"] == {"bf16"}
    assert found["add"] == {"bf16", "f32"}  # the residuals and biases; the epsilon


@pytest.mark.parametrize("body", ["mean(reshape(h, [B, 8, 4]), over=2)", "softmax(h) |> linear(8) as o", "exp(h) @ w"])
def test_an_op_between_16_bit_tensors_keeps_its_kernel(tmp_path: Path, body: str) -> None:
    text = f"  param w: [32, 8] = normal(1)\n  h = x @ x.T @ x\n  return ({body}) |> linear(8) as head"
    text = text if "w" in body else text.replace("  param w: [32, 8] = normal(1)\n", "")
    assert {n for names in _dtypes(_graph(_checked(tmp_path, text))).values() for n in names} == {"bf16"}


@pytest.mark.parametrize("model", ["gpt2", "resnet50"])
def test_the_large_models_are_as_before(model: str) -> None:
    """But for what needs weights alone, such as those of a convolution times the scale of the batchnorm after it."""
    graph = _graph(check_file(str(MODELS / f"{model}.nn")))
    fixed = values_of_weights(graph)
    found = _dtypes(dataclasses.replace(graph, nodes=tuple(n for n in graph.nodes if not fixed.issuperset(n.outputs))))
    assert {n for op, names in found.items() for n in names if op not in ("layernorm", "batchnorm", "sdpa")} == {"bf16"}


def test_what_needs_weights_alone_is_f32_up_to_where_data_meets_it(tmp_path: Path) -> None:
    body = """  param w: [32, 32] = normal(1)
  param s: [32] = normal(1)
  return relu(x @ (w * reshape(exp(s), [1, 32]))) @ transpose(w, [1, 0])[:, 0:8]"""
    graph = _graph(_checked(tmp_path, body))
    found = {op: {*names} for op, names in _dtypes(graph).items()}
    assert found["mul"] == found["exp"] == found["reshape"] == {"f32"}
    assert found["matmul"] == found["relu"] == found["transpose"] == found["slice"] == {"bf16"}


@pytest.mark.parametrize("more", ["; softmax = bf16; topk = bf16; sum = bf16", "; reduction = bf16; topk = bf16"])
def test_the_source_goes_before_the_default(tmp_path: Path, more: str) -> None:
    found = _dtypes(_graph(_checked(tmp_path, ROUTER, more=more)))
    assert found["softmax"] == found["topk"] == found["sum"] == {"bf16"}


@pytest.mark.parametrize(
    ("more", "body", "ops"),
    [
        ("loss = f32", 'mse(h, x, reduce="none")', {"sub", "powi", "mul"}),
        ("mse = f32", 'mse(h, x, reduce="none")', {"sub", "powi", "mul"}),
        ("reduction = f32", "h / std(h, over=-1, keep=true)", {"mean", "sqrt"}),
        ("std = f32", "h / std(h, over=-1, keep=true)", {"mean", "sqrt"}),
        ("norm = f32", "h / norm(h, over=-1, keep=true)", {"mul", "sqrt"}),
        ("linear = f32", "h |> linear(32)", {"matmul", "add"}),
    ],
)
def test_groups_and_functions_of_several_ops(tmp_path: Path, more: str, body: str, ops: set[str]) -> None:
    body = f"  h = relu(x @ x.T @ x)\n  y = {body}\n  return relu(y)[:, 0:8]"
    found = _dtypes(_graph(_checked(tmp_path, body, more=f"; {more}")))
    assert all("f32" in found[op] for op in ops & found.keys()) and (not ops or ops & found.keys())
    assert found["relu"] >= {"bf16"}


def test_why_names_the_reason(tmp_path: Path) -> None:
    checked = _checked(tmp_path, ROUTER, more="; tanh = f32")
    programs = {}
    compile_entry(checked, "predict", {"B": 4}, GPU, keep=programs.__setitem__)
    from dslc.compiler.options import precision_of

    def told(part: str) -> str:
        found = history(programs, wanted(part, programs.values()), asked=precision_of(checked, GPU))
        return "\n".join(line for line in found.reasons if line.startswith("precision"))

    assert told("softmax") == f"precision: softmax softmax computes in f32: {WHY['position']}"
    assert told("tanh") == "precision: tanh tanh computes in f32: the source asks for it"
    assert "matmul experts computes in bf16: the precision of the model" in told("experts")


def test_the_groups_of_all_ops_are_known() -> None:
    load_all()
    assert {op.wide for op in OPS.values()} == {"", "position", "exponent", "reduction"} <= {"", *WHY}
    assert not any(op.moves and op.wide for op in OPS.values())
