"""Whatever a training step is asked for holds with each optimizer: shards and slices of ranks, micro-batches, a loss
scale, a clipped norm, averages, factors of learning rates, frozen layers, a state that is saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.nets import BATCHNORM, batch, built, scaled
from ranks.together import places, together
from training.small_model import batches, build, near, start

from dslc.compiler.ops import registry
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.reserved import SCALING
from dslc.runtime.artifact.share import share_of
from dslc.runtime.session.load import load

pytestmark = pytest.mark.slow

OPTIMIZERS = registry.optimizers()
NAMES = sorted(OPTIMIZERS)
STEPS = 3


def call(name: str, more: str = "") -> str:
    """The optimizer with a learning rate that is not tiny, and weight decay."""
    return f"{name}(lr=0.01, weight_decay=0.1{more})"


def net(name: str, more: str = "") -> str:
    return BATCHNORM.replace("sgd(lr=0.05, momentum=0.9, clip_norm=1.0)", call(name) + more)


def opened(path: Path, **given: Any) -> Any:
    return load(path, device="cpu", weights="init", seed=3, meanings=registry.meanings, **given)


def state_of(session: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in session.state_tensors().items()}


@pytest.mark.parametrize("name", NAMES)
def test_ranks_have_the_bits_of_one(tmp_path: Path, name: str) -> None:
    """Of what a rank may update alone, it holds its part of the slots."""
    path = built(tmp_path, net(name), shards=4, provider="reference")
    assert (share_of(read_artifact(path).header, 0, 2) is None) == OPTIMIZERS[name].of_whole_tensors

    def run(session: Any, rank: int = 0, size: int = 1) -> Any:
        rows = 16 // size
        for step in range(STEPS):
            given = {n: a[rank * rows : (rank + 1) * rows] for n, a in batch(BATCHNORM, step).items()}
            session.train_step(**given)
        return state_of(session)

    expected = run(opened(path))

    def work(group: Any) -> Any:
        session = opened(path, part=(group.rank, group.size))
        session.join(group)
        return run(session, group.rank, group.size)

    for each in together(places(2), work):
        assert each.result() == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_a_batch_make_its_step(tmp_path: Path, name: str) -> None:
    """Shards and micro-batches in f64, with a clipped norm and averages."""
    options = {"optimizer": call(name, ", clip_norm=0.5")}
    whole = start(build(tmp_path / "whole", 8, "ema = 0.9", **options))
    shards = start(build(tmp_path / "shards", 8, "ema = 0.9", shards=4, **options))
    micro = start(build(tmp_path / "micro", 4, "ema = 0.9; accumulate = 2", **options))
    for given in batches(STEPS, 8):
        losses = [s.train_step(**given).loss for s in (whole, shards, micro)]
        assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-9)
    # where rounding decides the sign of a sum that is 0, an element may go the other way
    assert near(whole, shards, 1e-9) and near(whole, micro, 1e-9)
    assert not near(whole, start(tmp_path / "whole" / "small.dslc"), 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_skipped_step_changes_the_scale_alone(tmp_path: Path, name: str) -> None:
    with opened(scaled(tmp_path, net(name), shards=1)) as session:
        session.train_step(**batch(BATCHNORM, 0))
        before, given = state_of(session), batch(BATCHNORM, 1)
        given["x"][5] = np.inf
        assert session.train_step(**given).skipped
        after = state_of(session)
        assert {n for n in before if before[n] != after[n]} <= set(SCALING)
        assert not session.train_step(**batch(BATCHNORM, 2)).skipped
        assert state_of(session)["head.weight"] != before["head.weight"]


@pytest.mark.parametrize("name", NAMES)
def test_a_state_goes_on_where_it_was_saved(tmp_path: Path, name: str) -> None:
    path = build(tmp_path, 8, optimizer=call(name), provider="own", precision="f32")
    given = batches(2 * STEPS, 8, "f4")
    whole, first, second = start(path), start(path), start(path)
    for each in given:
        whole.train_step(**each)
    for each in given[:STEPS]:
        first.train_step(**each)
    second.restore(first.state_tensors(), first.step)
    for each in given[STEPS:]:
        second.train_step(**each)
    assert state_of(second) == state_of(whole)


@pytest.mark.parametrize("name", NAMES)
def test_groups_of_parameters(tmp_path: Path, name: str) -> None:
    """A frozen layer has no state and stays; a factor of 0 leaves a layer where it is."""
    text = (
        net(name)
        .replace(
            "  return x |> conv(4, 3, pad=1) as c |>",
            "  @freeze\n  layer c = conv(4, 3, pad=1)\n  @lr(0)\n  layer head = linear(3)\n  return x |> c |>",
        )
        .replace("|> linear(3) as head", "|> head")
    )
    with opened(built(tmp_path, text, shards=1, provider="reference")) as session:
        before = {n: a.copy() for n, a in session.weights.items()}
        for step in range(STEPS):
            session.train_step(**batch(BATCHNORM, step))
        same = {n for n, a in session.weights.items() if np.array_equal(a, before[n])}
        assert {n for n in before if n.startswith(("c.", "head."))} == same - {n for n in same if "running" in n}
        assert not any(n.startswith("c.") and n not in before for n in session.state_tensors())
