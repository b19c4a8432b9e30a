"""`ema = D`: the parameters are averages of what is trained, in evaluation, prediction and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.small_model import batches, build, near, start

import dslc
from dslc.runtime.weights import safetensors_file as tensorfile


def test_averages_follow_the_weights_of_a_plain_run(tmp_path: Path) -> None:
    """The trained weights are bit for bit those without averages; the averages are the recurrence, in f64 to 1e-14."""
    decay = 0.4  # the warm-up ends at step 5: (1 + 5)/(10 + 5) = 0.4
    plain = start(build(tmp_path / "plain", 5, middle="|> dropout(0.2)"))
    averaged = start(build(tmp_path / "averaged", 5, f"ema = {decay}", middle="|> dropout(0.2)"))
    average = dict(plain.weights)
    for t, batch in enumerate(batches(8, 5), start=1):
        assert plain.train_step(**batch) == averaged.train_step(**batch)
        now = min(decay, (1 + t) / (10 + t))
        average = {n: now * a + (1 - now) * plain.weights[n] for n, a in average.items()}
        trained = averaged.state_tensors()
        for name, array in average.items():
            np.testing.assert_array_equal(trained[f"{name}.raw"], plain.weights[name])
            np.testing.assert_allclose(averaged.weights[name], array, rtol=0, atol=1e-14)
    assert not near(plain, averaged, 1e-3)


def test_a_decay_of_zero_keeps_no_average(tmp_path: Path) -> None:
    plain, averaged = start(build(tmp_path / "a", 5)), start(build(tmp_path / "b", 5, "ema = 0"))
    for batch in batches(3, 5):
        plain.train_step(**batch)
        averaged.train_step(**batch)
    assert near(plain, averaged, 1e-15)


def test_prediction_evaluation_and_files_are_those_of_the_averages(tmp_path: Path) -> None:
    session = start(build(tmp_path / "ema", 5, "ema = 0.9"))
    for batch in batches(7, 5):
        session.train_step(**batch)
    session.weights.save(tmp_path / "w.safetensors")
    file = tensorfile.read(tmp_path / "w.safetensors")
    assert set(file.tensors) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    plain = dslc.load(build(tmp_path / "plain", 5), weights=tmp_path / "w.safetensors")
    assert near(session, plain, 0.0)
    np.testing.assert_array_equal(session.predict(x=batch["x"]), plain.predict(x=batch["x"]))
    assert session.evaluate(**batch) == plain.evaluate(**batch)


@pytest.mark.parametrize("how", ["file", "assignment", "file after steps"])
def test_training_goes_on_from_weights_that_are_put_in(tmp_path: Path, how: str) -> None:
    """What is trained starts where the parameters stand, whoever set them."""
    path = build(tmp_path, 5, "ema = 0.9", optimizer="sgd(lr=0.0)")
    source = dslc.load(path, weights="init", seed=8)
    source.weights.save(tmp_path / "w.safetensors")
    if how == "file":
        session = dslc.load(path, weights=tmp_path / "w.safetensors")
    else:
        session = start(path)
        if how == "assignment":
            for name in source.weights:
                session.weights[name] = source.weights[name]
        else:
            session.train_step(**batches(1, 5)[0])
            session.weights.load(tmp_path / "w.safetensors")
    session.train_step(**batches(1, 5)[0])
    trained = session.state_tensors()
    for name in source.weights:
        np.testing.assert_array_equal(trained[f"{name}.raw"], source.weights[name])
        np.testing.assert_array_equal(trained[name], source.weights[name])


def test_frozen_parameters_and_buffers_have_no_average(tmp_path: Path) -> None:
    """Batchnorm's statistics are those of the last batches, as in PyTorch's AveragedModel."""
    middle = "|> batchnorm(momentum=0.5) as bn |> @freeze linear(8) as still"
    plain = start(build(tmp_path / "plain", 5, middle=middle))
    averaged = start(build(tmp_path / "averaged", 5, "ema = 0.9", middle=middle))
    raw = {n.removesuffix(".raw") for n in averaged.state_tensors() if n.endswith(".raw")}
    assert raw == {n for n in plain.weights if not n.startswith(("still", "bn.running"))}
    before = averaged.weights["still.weight"]
    for batch in batches(3, 5):
        plain.train_step(**batch)
        averaged.train_step(**batch)
    for name in ("bn.running_mean", "bn.running_var"):
        np.testing.assert_array_equal(averaged.weights[name], plain.weights[name])
    np.testing.assert_array_equal(averaged.weights["still.weight"], before)


def test_a_checkpoint_holds_both_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    path = build(tmp_path, 2, "ema = 0.9; accumulate = 3", middle="|> dropout(0.2)")
    whole, broken = start(path), start(path)
    steps = batches(6, 6)
    for batch in steps:
        whole.train_step(**batch)
    for batch in steps[:3]:
        broken.train_step(**batch)
    broken.save_checkpoint(tmp_path / "c.safetensors")
    resumed = dslc.load(path, seed=3)
    resumed.load_checkpoint(tmp_path / "c.safetensors")
    for batch in steps[3:]:
        resumed.train_step(**batch)
    for name, array in whole.state_tensors().items():
        np.testing.assert_array_equal(resumed.state_tensors()[name], array)
