"""``gradient``: derivatives that a model or its loss computes with, to any order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.evaluation import run
from op_laws.language import check, evaluate, in_double
from places import MODELS
from sources.in_memory import files

import dslc
from dslc.compiler.check import entries
from dslc.compiler.check.model import Checked, check_file, check_program
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

#: What PyTorch 2.15 computes in f64 from these inputs and initial values: critic, generator and penalty of three steps.
TORCH = [
    (5.59707670238114, -0.18346066502655312, 0.5616477031137468),
    (5.247247435167858, -0.18747902917169396, 0.5276001322047952),
    (5.398247721774433, -0.19391853714322171, 0.5400670926730511),
]
FORCE = """nn 1
dim B in 1..512 = 8
model Potential(at: [B, 3]) -> (energy: [B], force: [B, 3]) {
  energy = at |> linear(16) as a |> tanh |> layernorm as n |> gelu |> linear(1) as b |> sum(over=1)
  return energy, -gradient(energy, at)
}
train Potential(e: [B], f: [B, 3]) {
  loss      = mse(energy, e) + mse(force, f)
  optimizer = adam(lr=0.01)
}
"""


def session(checked: Checked, folder: Path, **options: Any) -> Any:
    path = folder / "net.dslc"
    path.write_bytes(build(checked, Options(**options)).artifact)
    return dslc.load(path, device="cpu", weights="init", seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["reference", "own"])
def test_the_losses_with_a_gradient_penalty_are_those_of_pytorch(provider: str, tmp_path: Path) -> None:
    checked = check_file(str(MODELS / "wgan_gp.nn"))
    rng = np.random.default_rng(0)
    with closing(session(checked, tmp_path, provider=provider, precision="f64")) as s:
        for critic, generator, penalty in TORCH:
            rows = {name: rng.normal(size=(32, size)) for name, size in (("real", 2), ("z", 4))}
            found = s.train_step(**rows, mix=rng.uniform(size=(32, 1))).metrics
            assert found["critic"] == pytest.approx(critic, rel=1e-12)
            assert found["generator"] == pytest.approx(generator, rel=1e-12)
            assert found["slope"] == pytest.approx(penalty, rel=1e-12)


@pytest.mark.slow
def test_a_penalty_trains_a_critic_to_slope_one(tmp_path: Path) -> None:
    """In f32, with the kernels of the build: the penalty falls, and the same steps have the same bits."""
    rng = np.random.default_rng(1)
    rows = {"real": rng.normal(size=(32, 2)), "z": rng.normal(size=(32, 4)), "mix": rng.uniform(size=(32, 1))}
    rows = {name: array.astype(np.float32) for name, array in rows.items()}
    slopes = []
    for _ in range(2):
        with closing(session(check_file(str(MODELS / "wgan_gp.nn")), tmp_path)) as s:
            slopes.append([s.train_step(**rows, weight=100.0).metrics["slope"] for _ in range(60)])
    assert slopes[0] == slopes[1] and slopes[0][-1] < 0.2 * slopes[0][0]


def test_forces_are_differences_of_the_energy(tmp_path: Path) -> None:
    at = np.random.default_rng(2).normal(size=(5, 3))
    with closing(session(check_program(files(FORCE)), tmp_path, precision="f64")) as s:
        force = s.predict(at=at).force
        for axis in range(3):
            step = 1e-6 * np.eye(3)[axis]
            slope = (s.predict(at=at + step).energy - s.predict(at=at - step).energy) / 2e-6
            np.testing.assert_allclose(force[:, axis], -slope, atol=1e-8)
        losses = [s.train_step(at=np.tile(at, (2, 1))[:8], e=np.zeros(8), f=np.zeros((8, 3))).loss for _ in range(50)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(("order", "factor"), [(1, 4.0), (2, 12.0), (3, 24.0)])
def test_any_order(order: int, factor: float, tmp_path: Path) -> None:
    body = "  y = x^4\n" + "  y = gradient(y, x)\n" * order + "  return y"
    x = np.random.default_rng(3).normal(size=(4, 2))
    found = evaluate(check(tmp_path, "x: [B, 2]", body, "[B, 2]"), {"x": x}, B=4)
    np.testing.assert_allclose(found, factor * x ** (4 - order), rtol=1e-12)


def test_a_product_of_a_hessian_and_a_vector(tmp_path: Path) -> None:
    body = "  slope = gradient(sum(x @ transpose(a) * x), x)\n  return gradient(slope * stop_gradient(v), x)"
    rng = np.random.default_rng(4)
    x, v, a = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    checked = check(tmp_path, "x: [B, 3], v: [B, 3], a: [3, 3]", body, "[B, 3]")
    np.testing.assert_allclose(evaluate(checked, {"x": x, "v": v, "a": a}, B=4), v @ (a + a.T), rtol=1e-12)


def test_the_other_ways_to_a_tensor_count_as_constant(tmp_path: Path) -> None:
    """With respect to y, which x also reaches past it; a dropout that does nothing keeps them apart."""
    for between in ("dropout(x, 0.5)", "x * 1"):
        checked = check(tmp_path, "x: [B, 2]", f"  y = {between}\n  return gradient(y * y * x, y)", "[B, 2]")
        x = np.random.default_rng(5).normal(size=(4, 2))
        predict = entries.predict(checked, {"B": 4}).graph
        inputs, outputs = in_double(predict, {})
        [found] = run(list(outputs.values()), {inputs["x"]: x})
        np.testing.assert_allclose(found, 2 * x * x, rtol=1e-12)


def test_with_respect_to_a_parameter(tmp_path: Path) -> None:
    body = "  layer f = linear(1)\n  y = f(x)\n  return x + gradient(sum(y * y), f.weight)"
    checked = check(tmp_path, "x: [B, 3]", body, "[B, 3]")
    rng = np.random.default_rng(6)
    x, w, bias = rng.normal(size=(4, 3)), rng.normal(size=(1, 3)), rng.normal(size=1)
    found = evaluate(checked, {"x": x, "f.weight": w, "f.bias": bias}, B=4)
    np.testing.assert_allclose(found, x + (2 * (x @ w.T + bias)).T @ x, rtol=1e-12)


@pytest.mark.parametrize("piece", [2, 3])
def test_evaluation_of_many_rows_in_pieces(piece: int, tmp_path: Path) -> None:
    """The mean over rows of what gradients give is combined exactly."""
    rng = np.random.default_rng(7)
    rows = {"real": rng.normal(size=(7, 2)), "z": rng.normal(size=(7, 4)), "mix": rng.uniform(size=(7, 1))}
    checked = check_file(str(MODELS / "wgan_gp.nn"))
    sizes = {"train": {"B": (4,)}, "eval": {"B": (1, piece)}, "predict": {"B": (1,)}}
    with closing(session(checked, tmp_path, sizes=sizes, precision="f64", provider="reference")) as s:
        found = s.evaluate(**rows).metrics["slope"]
    inputs, outputs = in_double(entries._sized(entries._evaluated(checked.graph, checked), {"B": 7}), {})
    with closing(session(checked, tmp_path, sizes=sizes, precision="f64", provider="reference")) as s:
        state = s.state_tensors()
    feeds = {inputs[n]: rows.get(n, np.asarray(10.0) if n == "weight" else state.get(n)) for n in inputs}
    assert found == pytest.approx(float(run([outputs["metric.slope"]], feeds)[0]), rel=1e-12)


def test_evaluation_of_a_gradient_that_no_data_reaches(tmp_path: Path) -> None:
    """It is computed after the last batch."""
    text = """nn 1
dim B in 1..8 = 2
model M(x: [B, 3]) -> (y: [B, 3], slope: []) {
  param w: [3] = normal(0.5)
  return x * w, mean(gradient(sum(w^4), w))
}
train M(t: [B, 3]) {
  loss = mse(y, t) + slope
  optimizer = sgd(lr=0.01)
}
"""
    rng = np.random.default_rng(8)
    x, t = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    with closing(session(check_program(files(text)), tmp_path, precision="f64")) as s:
        w = np.asarray(s.state_tensors()["w"])
        found = s.evaluate(x=x, t=t).loss
    assert found == pytest.approx(np.mean((x * w - t) ** 2) + np.mean(4 * w**3), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}, {"streams": 3}], ids=str)
def test_plans_for_a_gpu(options: dict[str, Any]) -> None:
    checked = check_file(str(MODELS / "wgan_gp.nn"))
    program, _ = compile_entry(checked, "train_step", {"B": 32}, Options(target="sm_90", **options))
    assert program.memory is not None
    assert all(node.phase is not Phase.GRADIENT for node in program.graph.nodes)


def test_only_products_of_a_gradient_have_16_bits() -> None:
    checked = check_file(str(MODELS / "wgan_gp.nn"))
    options = Options(target="sm_90", precision="bf16")
    before, _ = compile_entry(checked, "train_step", {"B": 32}, options, after="autodiff")
    count = sum(node.phase is Phase.GRADIENT for node in before.graph.nodes)
    after, _ = compile_entry(checked, "train_step", {"B": 32}, options, after="precision")
    means = [
        n for n in after.graph.nodes if n.op.name == "mean" and n.name.endswith("norm") and n.phase is Phase.FORWARD
    ]
    assert count > 20 and means and all(str(n.types[0].dtype) == "f32" for n in means)
