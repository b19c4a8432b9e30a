"""``@ema(online, decay)``: layers whose parameters are running averages of another layer's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.in_memory import files
from thinning import taken

import dslc
from dslc.compiler.check.model import check_program
from dslc.compiler.check.selection import Selection
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

BODY = """nn 1
dim B in 1..64 = 4
block tower(x: [B, 3], d: int) -> [B, d] {
  layer inner = linear(d)
  return inner(x) |> batchnorm as norm |> tanh
}
model Net(x: [B, 3], d: int = 2) -> (guess: [B, d], wanted: [B, d]) {
  layer online = tower(d)
  @ema(online, 0.75) layer target = tower(d)
  return online(x) |> linear(d) as head, target(2 * x)
}
"""
ONE = "train Net() {\n  loss = mse(guess, wanted)\n  optimizer = adam(lr=0.1)\n"
TURNS = """train Net() {
  step first { params = "online"; loss = mse(guess, wanted); optimizer = sgd(lr=0.1) }
  step second { params = "head"; loss = mse(guess, wanted); optimizer = sgd(lr=0.1) }
"""


def session(text: str, folder: Path, freeze: tuple[str, ...] = (), **options: Any) -> Any:
    checked = check_program(files(text), selection=Selection(freeze))
    path = folder / "net.dslc"
    path.write_bytes(build(checked, Options(**options)).artifact)
    return dslc.load(path, device="cpu", weights="init", seed=3)


@pytest.mark.parametrize(
    ("text", "raw", "precision"),
    taken(
        [
            (BODY + ONE + "}\n", "", "f64"),
            (BODY + ONE + "}\n", "", "f16"),
            (BODY + ONE + "  ema = 0.5\n}\n", ".raw", "f64"),
            (BODY + ONE + "  accumulate = 2\n}\n", "", "f64"),
            (BODY + TURNS + "}\n", "", "f64"),
            (BODY.replace("@ema(online, 0.75) layer target", "@ema(online, 0) layer target") + ONE + "}\n", "", "f32"),
        ],
        2,
    ),
)
def test_averages_follow_what_they_average(text: str, raw: str, precision: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    decay = 0.0 if "online, 0)" in text else 0.75
    rows = 8 if "accumulate" in text else 4
    with closing(session(text, tmp_path, precision=precision)) as s:
        before = s.state_tensors()
        names = [name for name in before if name.startswith("target") and s._state.tensors[name].kind == "param"]
        assert names == ["target.inner.bias", "target.inner.weight", "target.norm.bias", "target.norm.weight"]
        for name in names:
            np.testing.assert_array_equal(before[name], before[name.replace("target", "online")])
        for _ in range(3):
            x = rng.normal(size=(rows, 3)).astype(np.float64 if precision == "f64" else np.float32)
            s.train_step(x=x)
            after = s.state_tensors()
            for name in names:
                source = after[name.replace("target", "online") + raw]
                assert not np.array_equal(source, before[name.replace("target", "online") + raw])
                wanted = before[name] + (1 - decay) * (source - before[name])
                np.testing.assert_allclose(after[name], wanted, rtol=1e-12 if precision == "f64" else 1e-5, atol=1e-7)
            assert not np.array_equal(after["target.norm.running_mean"], after["online.norm.running_mean"])
            before = after


def test_frozen_averages_and_sources_stay(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    with closing(session(BODY + ONE + "}\n", tmp_path, freeze=("target", "online.inner"))) as s:
        before = s.state_tensors()
        s.train_step(x=x)
        after = s.state_tensors()
    kept = [name for name in before if name.startswith(("target.inner", "target.norm.w", "target.norm.b", "online.in"))]
    assert len(kept) == 6
    for name in kept:
        np.testing.assert_array_equal(after[name], before[name])


def test_averages_of_a_frozen_layer_stay(tmp_path: Path) -> None:
    """They are equal from the start, and the distance is exactly 0."""
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    with closing(session(BODY + ONE + "}\n", tmp_path, freeze=("online",))) as s:
        s.train_step(x=x)
        state = s.state_tensors()
    for leaf in ("inner.weight", "norm.bias"):
        np.testing.assert_array_equal(state[f"target.{leaf}"], state[f"online.{leaf}"])


def test_no_warning_and_no_optimizer_state_for_averages() -> None:
    checked = check_program(files(BODY + ONE + "}\n"))
    assert not [w for w in checked.warnings if w.code == "W008"]
    program, _ = compile_entry(checked, "train_step", {"B": 4}, Options(target="sm_90", precision="bf16"))
    assert program.memory is not None
    assert {i.name for i in program.graph.inputs if i.name.startswith("target")} == {
        f"target.{leaf}"
        for leaf in ("inner.weight", "inner.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
    }
