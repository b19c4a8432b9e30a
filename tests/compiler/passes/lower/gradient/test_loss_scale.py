"""The loss scale of f16: a power of two changes no bit of f32, and a step that overflows changes nothing but the scale.

Most is tried in f32 on the CPU, where a scale is never needed, so that the bits must be those without; f16 itself runs
through the ops' numpy meanings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.random_graphs import graph_of, input_of
from graphs.train_specs import one_update

from dslc.base.errors import BuildError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import Build, LossScale, ParamSpec, Precision
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.options import Options
from dslc.compiler.passes.lower.dtypes import precision as precision_pass
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.face import reference_meanings
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.reserved import GOOD_STEPS, LOSS_SCALE, SCALING, SKIPPED_STEPS
from dslc.runtime.session.load import start
from dslc.runtime.session.results import StepResult
from dslc.runtime.session.session import Session
from dslc.runtime.weights import safetensors_file as tensorfile

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
ADAM = "adamw(lr=0.01)"
OPTIMIZERS = ["sgd(lr=0.05, momentum=0.9)", ADAM, "sgd(lr=0.05, clip_norm=0.5, clip_value=0.1)", "lamb(lr=0.01)"]
ALL_PARTS = "  ema = 0.9\n  accumulate = 2\n"
START = LossScale().start
TOO_HIGH = np.float32(2.0**127)  # with losses times 1000, gradients of f32 overflow

Scaled = Callable[..., None]


def batch(step: int, rows: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((rows, 6)).astype(np.float32), "label": rng.integers(0, 3, rows).astype(np.int32)}


def checked(folder: Path, optimizer: str = OPTIMIZERS[0], more: str = "", loss: str = "") -> Any:
    (folder / "net.nn").write_text((MODEL % (optimizer, more)).replace("= cross", f"= {loss}cross"))
    return check_file(folder / "net.nn")


def session(
    model: Any, scale: LossScale | None = None, provider: str = "reference", compute: DType = DType.F32
) -> Session:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "precision_of", lambda *_: Precision(compute, DType.F32, scale))
        traits = replace(traits_of("cpu"), compute_dtypes=("f32", "f64", "f16"))
        patch.setattr(precision_pass, "traits_of", lambda _: traits)
        made = pipeline.build(model, Options(provider=provider))
    return start(
        Artifact.of_bytes(made.artifact), ".", device="cpu", weights="init", seed=3, contexts=1, verify="all",
        meanings=reference_meanings,
    )  # fmt: skip


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if before[name].tobytes() != after[name].tobytes()}


def scaled_to(s: Session, scale: float) -> dict[str, Any]:
    """The session's state with this scale, which it has now."""
    s.restore({**s.state_tensors(), LOSS_SCALE: np.float32(scale)}, s.step)
    return s.state_tensors()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "more", "provider"),
    [*((o, "", "reference") for o in OPTIMIZERS), (ADAM, ALL_PARTS, "reference"), (OPTIMIZERS[2], ALL_PARTS, "auto")],
)
def test_it_changes_no_bit_where_it_is_not_needed(tmp_path: Path, optimizer: str, more: str, provider: str) -> None:
    model = checked(tmp_path, optimizer, more)
    rows = 16 if more else 8
    with session(model, LossScale(interval=4), provider) as scaled, session(model, None, provider) as plain:
        for step in range(6):
            one, other = (s.train_step(**batch(step, rows)) for s in (scaled, plain))
            assert (one.loss, one.metrics, one.nonfinite, one.skipped) == (other.loss, other.metrics, None, False)
            assert one.loss_scale == (START if step < 4 else 2 * START) and other.loss_scale is None
        states, expected = scaled.state_tensors(), plain.state_tensors()
        assert states.keys() - expected.keys() == set(SCALING)
        assert not changed(expected, states)


@pytest.mark.parametrize(
    ("optimizer", "more", "provider"),
    [
        (OPTIMIZERS[0], "", "reference"),
        (OPTIMIZERS[2], "  ema = 0.9\n", "reference"),
        (ADAM, "", "reference"),
        (ADAM, "", "auto"),
        pytest.param(OPTIMIZERS[0], "", "auto", marks=pytest.mark.slow),
        pytest.param(OPTIMIZERS[2], "  ema = 0.9\n", "auto", marks=pytest.mark.slow),
    ],
)
def test_a_step_that_overflows_changes_nothing_but_the_scale(
    tmp_path: Path, optimizer: str, more: str, provider: str
) -> None:
    """Parameters, slots, averages and running statistics alike."""
    with session(checked(tmp_path, optimizer, more, loss="1000 * "), LossScale(), provider) as s:
        s.train_step(**batch(0))
        before = scaled_to(s, TOO_HIGH)
        result = s.train_step(**batch(1))
        after = s.state_tensors()
        assert changed(before, after) == set(SCALING)
        assert (after[LOSS_SCALE], after[GOOD_STEPS], after[SKIPPED_STEPS]) == (TOO_HIGH / 2, 0, 1)
        assert np.isfinite(result.loss) and result.skipped and result.nonfinite is None
        assert (result.loss_scale, result.skipped_steps, s.step) == (TOO_HIGH, 1, 2)
        scaled_to(s, START)
        result = s.train_step(**batch(1))
        assert not result.skipped and result.skipped_steps == 1
        assert {n for n in before if s.state_tensors()[n].tobytes() == after[n].tobytes()} <= {SKIPPED_STEPS}


STEPS = """nn 1
dim B in 1..64 = 8
block part(x: [B, n], d: int) -> [B, d] { return x |> linear(6) as up |> batchnorm as n |> relu |> linear(d) as down }
model Pair(x: [B, 6]) -> (one: [B, 6], two: [B, 3]) {
  one = part(x, 6) as first
  return one, part(one, 3) as second
}
train Pair(label: i32[B]) {
%s  step a {
    params    = "first"
    loss      = mse(one, x)
    optimizer = adam(lr=0.01)
  }
  step b {
    params    = "second"
    loss      = %scross_entropy(two, label)
    optimizer = sgd(lr=0.05, momentum=0.9, clip_norm=0.5)
  }
}
"""


def pair(folder: Path, more: str = "", loss: str = "") -> Any:
    (folder / "pair.nn").write_text(STEPS % (more, loss))
    return check_file(folder / "pair.nn")


@pytest.mark.parametrize("more", ["", "  ema = 0.9\n"])
def test_of_several_updates_it_changes_no_bit_where_it_is_not_needed(tmp_path: Path, more: str) -> None:
    model = pair(tmp_path, more)
    with session(model, LossScale(interval=4)) as scaled, session(model) as plain:
        for step in range(6):
            one, other = (s.train_step(**batch(step)) for s in (scaled, plain))
            assert (one.loss, one.metrics, one.nonfinite, one.skipped) == (other.loss, other.metrics, None, False)
            assert one.loss_scale == (START if step < 4 else 2 * START)
        assert not changed(plain.state_tensors(), scaled.state_tensors())


@pytest.mark.parametrize("provider", ["reference", pytest.param("auto", marks=pytest.mark.slow)])
def test_if_one_update_overflows_none_is_made(tmp_path: Path, provider: str) -> None:
    """Only the gradients of the second one are so large."""
    with session(pair(tmp_path, "  ema = 0.9\n", "1e6 * "), LossScale(), provider) as s:
        s.train_step(**batch(0))
        before = scaled_to(s, float(TOO_HIGH) / 2**10)
        result = s.train_step(**batch(1))
        assert changed(before, s.state_tensors()) == set(SCALING)
        assert result.skipped and result.skipped_steps == 1 and np.isfinite(result.loss)
        scaled_to(s, START)
        assert not s.train_step(**batch(1)).skipped
        assert {"first.up.weight", "second.down.weight", "second.n.running_mean"} <= changed(before, s.state_tensors())


def test_of_micro_batches_the_sums_are_let_go(tmp_path: Path) -> None:
    """Of a step that is skipped only running statistics may move, with the micro-batches that were finite."""
    with session(checked(tmp_path, ADAM, ALL_PARTS), LossScale()) as s:
        s.train_step(**batch(0, 16))
        for bad in (3, 12):
            before = s.state_tensors()
            rows = batch(1, 16)
            rows["x"][bad] = np.inf
            assert s.train_step(**rows).skipped
            moved = changed(before, s.state_tensors()) - set(SCALING)
            assert moved == (set() if bad < 8 else {"n.running_mean", "n.running_var"})
            assert all(np.isfinite(s.weights[n]).all() for n in s.weights)
        assert not s.train_step(**batch(2, 16)).skipped, "nothing is left in the sums"


@pytest.mark.parametrize("more", ["", ALL_PARTS])
def test_nothing_is_updated_in_part(tmp_path: Path, more: str) -> None:
    """The scale falls to where the last elements of gradients overflow, and then none does."""
    with session(checked(tmp_path, OPTIMIZERS[0], more, loss="1000 * "), LossScale()) as s:
        s.train_step(**batch(0, 16 if more else 8))
        before, count = scaled_to(s, TOO_HIGH), 0
        while s.train_step(**batch(1, 16 if more else 8)).skipped:
            count += 1
            assert changed(before, s.state_tensors()) - {"n.running_mean", "n.running_var"} <= set(SCALING)
        assert count >= 2 and {"a.weight", "head.bias"} <= changed(before, s.state_tensors())


def test_a_loss_that_is_not_finite_skips_a_step(tmp_path: Path) -> None:
    """Though its gradients are."""
    text = (MODEL % (ADAM, "")).replace("label: i32[B])", "label: i32[B], more: float = 0.0)")
    (tmp_path / "net.nn").write_text(
        text.replace("= cross_entropy(output, label)", "= cross_entropy(output, label) + more * 1e38")
    )
    with session(check_file(tmp_path / "net.nn"), LossScale()) as s:
        s.train_step(**batch(0))
        before = s.state_tensors()
        result = s.train_step(**batch(1), more=1e10)
        assert result.loss == np.inf and result.skipped and result.nonfinite is None
        assert changed(before, s.state_tensors()) == set(SCALING)


def test_the_optimizer_counts_its_own_steps(tmp_path: Path) -> None:
    """As with PyTorch's GradScaler: a step that is skipped is none for adam's bias correction, nor for the averages."""
    model = checked(tmp_path, ADAM, "  ema = 0.9\n")
    with session(model, LossScale()) as scaled, session(model) as plain:
        for step in range(5):
            if step in (0, 3):
                bad = batch(9)
                bad["x"][2, 1] = np.nan
                assert scaled.train_step(**bad).skipped
            scaled.train_step(**batch(step))
            plain.train_step(**batch(step))
        assert not changed(plain.state_tensors(), scaled.state_tensors())
        assert (scaled.step, plain.step) == (7, 5)


def test_what_no_smaller_scale_mends_is_reported(tmp_path: Path) -> None:
    """At 1 it is no matter of the scale any more; nothing is updated all the same."""
    with session(checked(tmp_path), LossScale()) as s:
        s.train_step(**batch(0))
        bad = batch(1)
        bad["x"][0, 0] = np.inf
        seen: list[StepResult] = []
        scaled_to(s, 2.0)
        before = s.state_tensors()
        for _ in range(3):
            seen.append(s.train_step(**bad))
        assert [(r.loss_scale, r.skipped, r.nonfinite is None) for r in seen] == [
            (2, True, True), (1, False, False), (1, False, False),
        ]  # fmt: skip
        assert changed(before, s.state_tensors()) <= set(SCALING) and s.state_tensors()[LOSS_SCALE] == 1


def test_the_scale_doubles_after_many_good_steps(tmp_path: Path) -> None:
    with session(checked(tmp_path), LossScale(interval=3, most=4 * START)) as s:
        seen = [s.train_step(**batch(step)).loss_scale for step in range(10)]
        assert seen == [START] * 3 + [2 * START] * 3 + [4 * START] * 4
        bad = batch(1)
        bad["x"][0, 0] = np.inf
        s.train_step(**bad)
        seen = [s.train_step(**batch(step)).loss_scale for step in range(4)]
        assert seen == [2 * START] * 3 + [4 * START], "the count begins again"


def test_training_in_f16(tmp_path: Path) -> None:
    """In f16 a scale that is too high falls by itself, and the loss falls as it does in f32."""
    model = checked(tmp_path, "sgd(lr=0.002)", loss="30 * ")
    with session(model, LossScale(), compute=DType.F16) as half, session(model) as full:
        found, expected = ([s.train_step(**batch(0)) for _ in range(60)] for s in (half, full))
    skipped = sum(r.skipped for r in found)
    assert 1 <= skipped <= 12 and not any(r.skipped for r in found[20:])
    assert found[-1].skipped_steps == skipped and found[-1].loss_scale == START / 2**skipped
    assert expected[-1].loss < 0.5 * expected[0].loss
    assert found[-1].loss == pytest.approx(expected[-1 - skipped].loss, rel=0.02)


def test_checkpoints_hold_the_scale_and_weights_do_not(tmp_path: Path) -> None:
    model = checked(tmp_path, ADAM)
    bad = batch(9)
    bad["x"][0, 0] = np.inf
    with session(model, LossScale(interval=5)) as one, session(model, LossScale(interval=5)) as other:
        for step in range(4):
            one.train_step(**(bad if step == 1 else batch(step)))
        one.save_checkpoint(tmp_path / "c.safetensors")
        one.weights.save(tmp_path / "w.safetensors")
        other.load_checkpoint(tmp_path / "c.safetensors")
        for step in range(4, 9):
            assert one.train_step(**batch(step)) == other.train_step(**batch(step))
        assert not changed(one.state_tensors(), other.state_tensors())
        assert one.state_tensors()[LOSS_SCALE] == START, "halved once, doubled once"
        assert not set(SCALING) & tensorfile.read(tmp_path / "w.safetensors").tensors.keys()
        other.weights.load(tmp_path / "w.safetensors")
        assert other.train_step(**batch(0)).loss_scale == START


def test_an_artifact_says_so(tmp_path: Path) -> None:
    model = checked(tmp_path)
    with session(model, LossScale()) as scaled, session(model) as plain:
        one, other = scaled.artifact.header, plain.artifact.header
    assert {*one["required_features"]} - {*other["required_features"]} == {"loss_scale"}
    assert {*other["required_features"]} < {*one["required_features"]}
    mine = [t for t in one["state"]["tensors"] if t["name"] in SCALING]
    assert [(t["dtype"], t["of"], t["init"]) for t in mine] == [
        ("i32", None, "constant(0)"), ("f32", None, "constant(65536)"), ("i64", None, "constant(0)"),
    ]  # fmt: skip
    assert [t for t in one["state"]["tensors"] if t not in mine] == other["state"]["tensors"]


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_f16_has_a_scale(tmp_path: Path, target: str) -> None:
    model = checked(tmp_path)
    options = Options(target=target, precision="f16", provider="own")
    program, _ = pipeline.compile_entry(model, "train_step", {"B": 8}, options)
    assert program.memory is not None and set(SCALING) <= {i.name for i in program.graph.inputs}
    kinds = {str(t.dtype) for n in program.graph.nodes for t in n.types}
    assert {"f16", "f32"} <= kinds and "bf16" not in kinds
    [look] = [n for n in program.graph.nodes if n.op.name == "nonfinite"]
    if target == "sm_90":
        assert {str(t.dtype) for t in look.input_types[:-1]} == {"f16", "f32"}, "gradients are looked at as they are"
    other, _ = pipeline.compile_entry(model, "train_step", {"B": 8}, Options(target=target, precision="bf16"))
    assert not set(SCALING) & {i.name for i in other.graph.inputs} and "loss_scale" not in other.graph.outputs


def test_parameters_are_not_kept_in_f16(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text("nn 1\nprecision { compute = f16; params = f16 }\n" + (MODEL % (ADAM, ""))[5:])
    with pytest.raises(BuildError) as caught:
        pipeline.build(check_file(tmp_path / "net.nn"), Options(target="sm_90"))
    assert caught.value.code == "E0602" and "does not keep parameters in f16" in caught.value.message


def test_golden(golden: Callable[[str, str], None]) -> None:
    x = input_of("x", Kind.DATA, 4, dtype=DType.FLOAT)
    w = input_of("w", Kind.PARAM, 4, dtype=DType.FLOAT)
    mean = input_of("mean", Kind.BUFFER, 4, dtype=DType.FLOAT)
    own = [Input(n, Kind.OPTIMIZER, TensorType(d, ())) for n, (d, _) in LossScale().states.items()]
    product = Builder(name="f")(OPS["mul"], x.value, w.value)
    loss = Builder(name="loss")(OPS["mean"], product, over=(0,), keep=False)
    graph = graph_of([x, w, mean, *own], {"loss": loss}, [(mean, product)])
    spec = one_update("sgd", {"momentum": 0.0, "nesterov": False}, (ParamSpec("w"),), loss_scale=LossScale())
    after = autodiff(Program("train_step", {}, graph), Build(train=spec)).graph
    verify_graph(after)
    golden("passes/loss_scale.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")
