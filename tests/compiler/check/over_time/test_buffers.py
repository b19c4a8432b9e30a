"""Buffers: training assigns them, evaluation reads what it left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.dsl.diagnostics import CompileError

SOURCE = """nn 1
dim B in 1..8 = 4
block centred(x: [B, D]) -> ([B, D], [D]) {
  buffer centre: [D] = 0.5
  y = x - centre
  centre = 0.75 * centre + 0.25 * mean(x, over=0)
  return y * centre, centre
}
model Net(x: [B, 3]) -> (y: [B, 3], last: [3]) {
  layer twice = centred()
  a, _ = twice(x |> linear(3) as fc)
  b, last = twice(2 * x)
  return a + b, last
}
train Net(t: [B, 3]) {
  loss      = mse(y, t)
  optimizer = sgd(lr=0.5)
}
"""


def test_training_assigns_and_evaluation_reads(tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(SOURCE)
    checked = check_file(path)
    made = build(checked, Options(target="cpu", provider="reference", precision="f64"))
    (tmp_path / "m.dslc").write_bytes(made.artifact)
    rng = np.random.default_rng(0)
    x, t = rng.random((2, 4, 3))
    with dslc.load(tmp_path / "m.dslc", device="cpu", weights="init") as session:
        state = session.state_tensors()
        assert np.array_equal(state["twice.centre"], [0.5] * 3)

        def expected(centre: np.ndarray, trained: bool) -> tuple[np.ndarray, np.ndarray]:
            y = np.zeros((4, 3))
            for z in (x @ state["fc.weight"].T + state["fc.bias"], 2 * x):
                apart = z - centre
                centre = 0.75 * centre + 0.25 * z.mean(0) if trained else centre
                y += apart * centre
            return y, centre

        before, _ = expected(state["twice.centre"], False)
        assert np.allclose(session.predict(x=x).y, before) and np.allclose(session.predict(x=x).last, 0.5)
        learnt, centre = expected(state["twice.centre"], True)
        assert session.train_step(x=x, t=t).loss == pytest.approx(np.mean((learnt - t) ** 2))
        state = session.state_tensors()
        assert np.allclose(state["twice.centre"], centre)
        after, _ = expected(centre, False)
        assert np.allclose(session.predict(x=x).last, centre)
        assert session.evaluate(x=x, t=t).loss == pytest.approx(np.mean((after - t) ** 2))
        assert np.array_equal(session.state_tensors()["twice.centre"], state["twice.centre"])


def test_calls_of_one_spectral_norm_read_the_same_buffer_in_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 4\nblock f(x: [B, D]) -> [B, 5] {\n  param weight: [5, D] = normal(1)\n"
        "  return x @ transpose(spectral_norm(weight))\n}\n"
        "model Net(x: [B, 3]) -> (a: [B, 5], b: [B, 5]) {\n  layer twice = f()\n  return twice(x), twice(x)\n}\n"
        "train Net() {\n  loss = mean(a * a) + mean(b)\n  optimizer = sgd(lr=0.5)\n}\n"
    )
    made = build(check_file(path), Options(target="cpu", provider="reference", precision="f64"))
    (tmp_path / "m.dslc").write_bytes(made.artifact)
    x = np.random.default_rng(0).random((4, 3))
    with dslc.load(tmp_path / "m.dslc", device="cpu", weights="init") as session:
        for _ in range(2):
            first, second = session.predict(x=x)
            assert np.array_equal(first, second)
            session.train_step(x=x)


def test_no_gradient_passes_through_an_assignment(tmp_path: Path) -> None:
    def gradient(body: str) -> np.ndarray:
        path = tmp_path / "m.nn"
        path.write_text(
            "nn 1\ndim B in 1..8 = 4\nmodel Net(x: [B, 3]) -> [B, 3] {\n  param w: [3] = 1\n"
            f"  buffer seen: [3] = 2\n{body}}}\ntrain Net() {{\n  loss = mean(output)\n  optimizer = sgd(lr=1.0)\n}}\n"
        )
        made = build(check_file(path), Options(target="cpu", provider="reference", precision="f64"))
        (tmp_path / "m.dslc").write_bytes(made.artifact)
        with dslc.load(tmp_path / "m.dslc", device="cpu", weights="init") as session:
            session.train_step(x=np.ones((4, 3)))
            return session.weights["w"] - 1

    assert np.array_equal(
        gradient("  seen = 3 * w\n  return x * w * seen\n"), gradient("  return x * w * stop_gradient(3 * w)\n")
    )


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        ("E0202", "buffer b: i32[3] = 0\nreturn x", "a buffer is a float tensor"),
        ("E0307", "buffer b: [B] = 0\nreturn x", "depends on dim B"),
        ("E0302", "buffer b: [3] = 0\nb = mean(x)\nreturn x", "a buffer keeps its shape"),
        ("E0202", "buffer b: [3] = 0\nb = 1\nreturn x", "the buffer `b` is [3]"),
        ("E0204", "buffer b: [3] = 0\nb = arange(3)\nreturn x", "convert it with `cast`"),
        ("E0104", "param b: [3] = 0\nbuffer b: [3] = 0\nreturn x", "b"),
        ("E0001", "buffer b: [3]\nreturn x", "expected"),
    ],
)
def test_what_a_buffer_refuses(code: str, body: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(f"nn 1\ndim B in 1..8 = 4\nmodel Net(x: [B, 3]) -> [B, 3] {{\n{body}\n}}\n")
    with pytest.raises(CompileError) as caught:
        check_file(path)
    assert caught.value.diagnostics[0].code == code and said in str(caught.value)


def test_buffer_is_a_name_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 4\nmodel Net(buffer: [B, 3]) -> [B, 3] {\n  buffer = buffer * 2\n  return buffer\n}\n"
    )
    assert check_file(path).results == ("output",)
