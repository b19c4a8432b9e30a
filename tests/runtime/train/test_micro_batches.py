"""`accumulate = N`: a step of N micro-batches is the step of one batch with all their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.small_model import batches, build, near, start

from dslc.base.errors import ArtifactError, InputError
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options, recorded_options
from dslc.runtime.artifact.file import read_artifact


@pytest.mark.parametrize(
    "optimizer",
    [
        "sgd(lr=0.1)",
        "sgd(lr=0.1, momentum=0.9, nesterov=true, clip_norm=0.3)",
        "adamw(lr=0.01, clip_value=0.02)",
        "lamb(lr=0.01)",
    ],
)
def test_a_step_is_that_of_a_batch_with_all_the_rows(tmp_path: Path, optimizer: str) -> None:
    """In f64 to 1e-12, dropout included: its draws follow the rows of the whole batch."""
    options = {"middle": "|> dropout(0.3)", "optimizer": optimizer}
    whole = start(build(tmp_path / "whole", 12, **options))
    parts = start(build(tmp_path / "parts", 3, "accumulate = 4", **options))
    for batch in batches(6, 12):
        one, four = whole.train_step(**batch), parts.train_step(**batch)
        assert four.step == one.step == parts.step - 1
        assert four.loss == pytest.approx(one.loss, rel=1e-12)
        assert four.metrics["accuracy"] == pytest.approx(one.metrics["accuracy"], rel=1e-12)
    assert near(whole, parts, 1e-12)
    assert not near(whole, start(tmp_path / "whole" / "small.dslc"), 1e-3)  # they did learn
    assert all(not a.any() for n, a in parts.state_tensors().items() if n.endswith(".grad_sum"))


@pytest.mark.slow
def test_kernels_accumulate_too(tmp_path: Path) -> None:
    whole = start(build(tmp_path / "whole", 12, precision="f32", provider="own"))
    parts = start(build(tmp_path / "parts", 3, "accumulate = 4; ema = 0.9", precision="f32", provider="own"))
    artifact = read_artifact(tmp_path / "parts" / "small.dslc")
    assert artifact.header["required_features"] == ["accumulate", "average", "native"]
    for batch in batches(6, 12, "f4"):
        whole.train_step(**batch)
        parts.train_step(**batch)
    trained = parts.state_tensors()
    assert all(np.abs(whole.weights[n] - trained[f"{n}.raw"]).max() <= 2e-6 for n in whole.weights)
    together = start(tmp_path / "parts" / "small.dslc")
    assert together.steps_per_launch == 1 and len(together.train_steps(batches(6, 12, "f4"))) == 6
    assert all(np.array_equal(a, trained[n]) for n, a in together.state_tensors().items())


def test_buffers_are_updated_by_each_micro_batch(tmp_path: Path) -> None:
    session = start(build(tmp_path, 3, "accumulate = 2", middle="|> batchnorm(momentum=0.5) as bn"))
    twice = start(build(tmp_path / "alone", 3, middle="|> batchnorm(momentum=0.5) as bn", optimizer="sgd(lr=0.0)"))
    [batch] = batches(1, 6)
    session.train_step(**batch)
    for rows in (slice(0, 3), slice(3, 6)):
        twice.train_step(**{n: a[rows] for n, a in batch.items()})
    for name in ("bn.running_mean", "bn.running_var"):
        np.testing.assert_array_equal(session.weights[name], twice.weights[name])


def test_an_artifact_says_what_it_takes(tmp_path: Path) -> None:
    """One tensor a parameter more, an entry more, no byte that is not counted."""
    plain, cut = (read_artifact(build(tmp_path / n, 3, more)) for n, more in (("a", ""), ("b", "accumulate = 4")))
    sums = [t for t in cut.header["state"]["tensors"] if t["name"].endswith(".grad_sum")]
    assert [t["of"] for t in sums] == ["a.bias", "a.weight", "b.bias", "b.weight"]
    assert {t["kind"] for t in sums} == {"optimizer"}
    params = [t for t in plain.header["state"]["tensors"] if t["kind"] == "param"]
    aligned = sum(-(-int(np.prod(t["shape"])) * 8 // 64) * 64 for t in params)
    assert cut.header["state"]["bytes"] == plain.header["state"]["bytes"] + aligned
    [part], [last] = cut.programs("accumulate_step"), cut.programs("train_step")
    assert part.sizes == last.sizes == {"B": 3}
    assert not plain.programs("accumulate_step") and "accumulate" not in plain.header["interface"]["train"]


@pytest.mark.parametrize("rows", [3, 11, 24])
def test_another_number_of_rows_is_refused_before_anything_changes(tmp_path: Path, rows: int) -> None:
    session = start(build(tmp_path, 3, "accumulate = 4"))
    before = session.state_tensors()
    with pytest.raises(InputError) as caught:
        session.train_step(**batches(1, rows)[0])
    assert caught.value.code == "R105" and caught.value.message == f"`train_step` was not built for B = {rows}"
    assert "give B = 12 (4 micro-batches of 3)" in str(caught.value.help)
    assert all(np.array_equal(a, before[n]) for n, a in session.state_tensors().items())
    assert session.step == 0


def test_rows_beyond_the_bounds_of_a_micro_batch(tmp_path: Path) -> None:
    """`dim B in 1..64` bounds a micro-batch, not the step."""
    session = start(build(tmp_path, 64, "accumulate = 3"))
    assert session.train_step(**batches(1, 192)[0]).nonfinite is None


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_gradient_that_is_not_finite_in_any_micro_batch(tmp_path: Path, bad: int) -> None:
    whole = start(build(tmp_path / "whole", 12, optimizer="sgd(lr=0.1)"))
    parts = start(build(tmp_path / "parts", 3, "accumulate = 4", optimizer="sgd(lr=0.1)"))
    [batch] = batches(1, 12)
    batch["x"][bad, 2] = np.inf
    assert parts.train_step(**batch).nonfinite == whole.train_step(**batch).nonfinite is not None
    assert near(parts, whole, 1e-12)  # the same elements were left alone
    assert parts.train_step(**batches(1, 12, seed=1)[0]).nonfinite is None  # nothing is left in the sums


def test_find_nonfinite_is_the_step(tmp_path: Path) -> None:
    path = build(tmp_path, 3, "accumulate = 4", middle="|> dropout(0.3)")
    stepped, searched = start(path), start(path)
    for batch in batches(2, 12):
        stepped.train_step(**batch)
        assert searched.find_nonfinite(**batch) is None
    for name, array in stepped.state_tensors().items():
        np.testing.assert_array_equal(searched.state_tensors()[name], array)
    batch["x"][10] = np.nan
    assert searched.find_nonfinite(**batch) is not None
    with pytest.raises(ArtifactError) as caught:
        searched.state_tensors()
    assert caught.value.code == "R310"


def test_accumulate_is_an_argument_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "m.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 3]) -> [B, 1] { return x |> linear(1) }\n"
        "train M(parts: int = 1) {\n  loss = mean(output^2)\n  optimizer = sgd(lr=0.1)\n  accumulate = parts\n}\n"
    )
    for text, expected in (("1", 1), ("5", 5)):
        checked = check_file(path, args={"parts": text})
        assert checked.train is not None and checked.train.accumulate == expected


def test_another_number_of_micro_batches_is_another_build(tmp_path: Path) -> None:
    """An argument of the train section is recorded in the artifact, so that a build with another one is stale."""
    path = tmp_path / "m.nn"
    path.write_text(
        "nn 1\ndim B in 1..8 = 2\nmodel M(x: [B, 3]) -> [B, 1] { return x |> linear(1) }\n"
        "train M(parts: int = 1, weight: float = 1.0) {\n  loss = weight * mean(output^2)\n"
        "  optimizer = sgd(lr=0.1)\n  accumulate = parts\n}\n"
    )
    options = Options()
    recorded = [
        recorded_options(check_file(path, args=args), options)["args"]
        for args in ({}, {"parts": "4"}, {"weight": "0.5"})
    ]
    assert recorded == [
        {"parts": 1, "weight": 1.0},
        {"parts": 4, "weight": 1.0},
        {"parts": 1, "weight": 0.5},
    ]
