"""The loss scale of f16: a power of two changes no bit of f32, steps that are not finite are not taken.

Training with it is tried in f32 on the CPU, where a scale is never needed: so the bits must be those without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.base.errors import BuildError
from dslc.compiler import pipeline
from dslc.compiler.ir.build import FIRST_SCALE, GOOD_STEPS, LOSS_SCALE
from dslc.compiler.passes import loss_scale
from dslc.compiler.pipeline import Options
from dslc.face import reference_meanings
from dslc.runtime.artifact import Artifact
from dslc.runtime.session import Session, start

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 6]) -> [B, 3] {
  return x |> linear(10) as a |> batchnorm as n |> relu |> linear(3) as head
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = %s
%s}
"""
OPTIMIZERS = ["sgd(lr=0.05, momentum=0.9)", "adamw(lr=0.01)", "sgd(lr=0.05, clip_norm=0.5)", "lamb(lr=0.01)"]
ALL_PARTS = "  ema = 0.9\n  accumulate = 2\n"


def batch(step: int, rows: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((rows, 6)).astype(np.float32), "label": rng.integers(0, 3, rows).astype(np.int32)}


def checked(folder: Path, optimizer: str = OPTIMIZERS[0], more: str = "") -> Any:
    (folder / "net.nn").write_text(MODEL % (optimizer, more))
    return pipeline.check_file(folder / "net.nn")


@contextmanager
def scaling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_is_scaled", lambda checked, options: True)
        yield


def session(model: Any, provider: str = "auto") -> Session:
    made = pipeline.build(model, Options(provider=provider))
    return start(
        Artifact.of_bytes(made.artifact), ".", device="cpu", weights="init", seed=3, contexts=1, verify="all",
        meanings=reference_meanings,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer", "more", "provider"),
    [*((o, "", "reference") for o in OPTIMIZERS), (OPTIMIZERS[0], ALL_PARTS, "reference"), (OPTIMIZERS[0], "", "auto")],
)
def test_it_changes_no_bit_where_it_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, more: str, provider: str
) -> None:
    model = checked(tmp_path, optimizer, more)
    rows = 16 if more else 8
    with scaling(monkeypatch):
        scaled = session(model, provider)
    with scaled, session(model, provider) as plain:
        for step in range(6):
            one, other = (s.train_step(**batch(step, rows)) for s in (scaled, plain))
            assert one == other and one.nonfinite is None
        states = scaled.state_tensors(), plain.state_tensors()
        assert states[0].keys() - states[1].keys() == {LOSS_SCALE, GOOD_STEPS}
        assert all(np.array_equal(states[0][n], v) for n, v in states[1].items())
        assert float(states[0][LOSS_SCALE]) == FIRST_SCALE and float(states[0][GOOD_STEPS]) == 6


def test_steps_that_are_not_finite_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = checked(tmp_path, "sgd(lr=0.05, momentum=0.9)")
    with scaling(monkeypatch), session(model, "reference") as s:
        s.train_step(**batch(0))
        good = s.state_tensors()
        s.restore({**good, LOSS_SCALE: np.float32(2.0**126)}, 1)  # the loss is finite, gradients times that are not
        before = s.state_tensors()
        result = s.train_step(**batch(1))
        after = s.state_tensors()
        kinds = {n: t.kind for n, t in s._state.tensors.items()}
        trained = [n for n in before if kinds[n] != "buffer" and n not in (LOSS_SCALE, GOOD_STEPS)]
        assert all(np.array_equal(before[n], after[n]) for n in trained), "a step in part"
        assert result.nonfinite is None, "the scale can still fall"
        assert float(after[LOSS_SCALE]) == 2.0**125 and float(after[GOOD_STEPS]) == 0
        s.restore({**good, LOSS_SCALE: np.float32(1.0)}, 1)
        bad = batch(1)
        bad["x"][0, 0] = np.inf
        assert s.train_step(**bad).nonfinite is not None, "no smaller scale mends this"
        assert float(s.state_tensors()[LOSS_SCALE]) == 1.0
        s.restore(good, 1)
        assert s.train_step(**batch(2)).nonfinite is None and float(s.state_tensors()[GOOD_STEPS]) == 2


def test_the_scale_doubles_after_many_good_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scaling(monkeypatch), session(checked(tmp_path), "reference") as s:
        s.restore({**s.state_tensors(), GOOD_STEPS: np.float32(loss_scale.GROW_AFTER - 2)}, 5)
        seen = []
        for step in range(3):
            s.train_step(**batch(step))
            state = s.state_tensors()
            seen.append((float(state[LOSS_SCALE]), float(state[GOOD_STEPS])))
        assert seen == [(FIRST_SCALE, loss_scale.GROW_AFTER - 1), (2 * FIRST_SCALE, 0), (2 * FIRST_SCALE, 1)]
        s.restore({**s.state_tensors(), LOSS_SCALE: np.float32(loss_scale.LARGEST), GOOD_STEPS: np.float32(1999)}, 5)
        s.train_step(**batch(9))
        assert float(s.state_tensors()[LOSS_SCALE]) == loss_scale.LARGEST


def test_f16_is_of_gpus_and_has_a_scale(tmp_path: Path) -> None:
    model = checked(tmp_path)
    with pytest.raises(BuildError) as caught:
        pipeline.build(model, Options(precision="f16"))
    assert caught.value.code == "E0602"
    options = Options(target="sm_90", precision="f16", provider="own")
    program, _ = pipeline.compile_entry(model, "train_step", {"B": 8}, options)
    assert program.memory is not None and {LOSS_SCALE, GOOD_STEPS} <= {i.name for i in program.graph.inputs}
    kinds = {str(t.dtype) for n in program.graph.nodes for t in n.types}
    assert {"f16", "f32"} <= kinds and "bf16" not in kinds
    other, _ = pipeline.compile_entry(model, "train_step", {"B": 8}, Options(target="sm_90", precision="bf16"))
    assert LOSS_SCALE not in {i.name for i in other.graph.inputs}
