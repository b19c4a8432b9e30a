"""`mesh { shards = S }`: a step on S shards of the batch is the step of the batch, in a fixed order of sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training.small_model import SOURCE, batches, build, near, start

from dslc.base.errors import ArtifactError, BuildError, InputError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact, read_artifact
from dslc.runtime.session.calls.shard_sum import Parts, Tree, added
from dslc.runtime.session.calls.terms import Terms


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("sgd(lr=0.1, momentum=0.9, clip_norm=0.3)", ""),
        ("adamw(lr=0.01, clip_value=0.02)", "ema = 0.9"),
        ("lamb(lr=0.01)", ""),
    ],
)
def test_a_step_is_that_of_the_batch(tmp_path: Path, optimizer: str, more: str) -> None:
    """In f64 to 1e-12, dropout included: its draws follow the rows of the whole batch."""
    options = {"middle": "|> dropout(0.3)", "optimizer": optimizer}
    whole = start(build(tmp_path / "whole", 8, more, **options))
    parts = start(build(tmp_path / "parts", 8, more, shards=4, **options))
    for batch in batches(5, 8):
        one, four = whole.train_step(**batch), parts.train_step(**batch)
        assert four.step == one.step == parts.step - 1
        assert four.loss == pytest.approx(one.loss, rel=1e-12)
        assert four.metrics["accuracy"] == pytest.approx(one.metrics["accuracy"], rel=1e-12)
    assert near(whole, parts, 1e-12)
    assert not near(whole, start(tmp_path / "whole" / "small.dslc"), 1e-3)  # they did learn
    assert whole.state_tensors().keys() == parts.state_tensors().keys()  # a checkpoint knows no shards


def test_kernels_and_steps_together(tmp_path: Path) -> None:
    path = build(tmp_path, 16, shards=8, precision="f32", provider="own", middle="|> dropout(0.3)")
    assert {"native", "shards"} == set(read_artifact(path).header["required_features"])
    one, other = start(path), start(path)
    results = [one.train_step(**batch) for batch in batches(4, 16, "f4")]
    assert other.steps_per_launch == 1 and other.train_steps(batches(4, 16, "f4")) == results
    assert all(np.array_equal(a, other.state_tensors()[n]) for n, a in one.state_tensors().items())


def test_buffers_become_the_mean_of_those_of_the_shards(tmp_path: Path) -> None:
    """Each shard normalises its own rows and starts from the same statistics."""
    bn = "|> batchnorm(momentum=0.5) as bn"
    session = start(build(tmp_path, 8, shards=2, middle=bn))
    [batch] = batches(1, 8)
    session.train_step(**batch)
    found = {}
    for name in ("bn.running_mean", "bn.running_var"):
        each = []
        for rows in (slice(0, 4), slice(4, 8)):
            alone = start(build(tmp_path / "alone", 4, middle=bn))
            alone.train_step(**{n: a[rows] for n, a in batch.items()})
            each.append(alone.weights[name])
        found[name] = (each[0] + each[1]) / 2
        np.testing.assert_array_equal(session.weights[name], found[name])
        assert not np.array_equal(each[0], each[1])


def test_parameters_that_do_not_train_stay(tmp_path: Path) -> None:
    path = build(tmp_path, 4, shards=2, middle="|> @freeze linear(8) as still")
    names = {p.name for p in read_artifact(path).plan(read_artifact(path).programs("update_step")[0]).inputs}
    assert names == {"shard.a.weight.0", "shard.a.weight.40", "shard.a.bias", "shard.b.weight", "shard.b.bias"}
    session = start(path)
    before = session.weights["still.weight"]
    session.train_step(**batches(1, 4)[0])
    assert np.array_equal(session.weights["still.weight"], before)


@pytest.mark.parametrize("bad", [0, 7])
def test_a_gradient_that_is_not_finite_in_any_shard(tmp_path: Path, bad: int) -> None:
    whole = start(build(tmp_path / "whole", 8, optimizer="sgd(lr=0.1)"))
    parts = start(build(tmp_path / "parts", 8, shards=4, optimizer="sgd(lr=0.1)"))
    [batch] = batches(1, 8)
    batch["x"][bad, 2] = np.inf
    assert parts.train_step(**batch).nonfinite == whole.train_step(**batch).nonfinite is not None
    assert near(parts, whole, 1e-12)  # the same elements were left alone
    assert parts.train_step(**batches(1, 8, seed=1)[0]).nonfinite is None


def test_find_nonfinite_is_the_step(tmp_path: Path) -> None:
    path = build(tmp_path, 8, shards=4, middle="|> dropout(0.3)")
    stepped, searched = start(path), start(path)
    for batch in batches(2, 8):
        stepped.train_step(**batch)
        assert searched.find_nonfinite(**batch) is None
    for name, array in stepped.state_tensors().items():
        np.testing.assert_array_equal(searched.state_tensors()[name], array)
    batch["x"][5] = np.nan
    found = searched.find_nonfinite(**batch)
    assert found is not None and found.where == "x"
    with pytest.raises(ArtifactError) as caught:
        searched.state_tensors()
    assert caught.value.code == "R310"


def test_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    session = start(build(tmp_path, 8, shards=4))
    with pytest.raises(InputError) as caught:
        session.train_step(**batches(1, 6)[0])
    assert caught.value.code == "R105" and "give B = 8 (4 shards of 2)" in str(caught.value.help)


@pytest.mark.parametrize(("batch", "low", "code"), [(6, 1, "E0303"), (4, 2, "E0304")])
def test_a_batch_that_cannot_be_divided(tmp_path: Path, batch: int, low: int, code: str) -> None:
    text = SOURCE.format(batch=batch, more="", middle="", optimizer="sgd(lr=0.1)") + "mesh { shards = 4 }\n"
    (tmp_path / "small.nn").write_text(text.replace("1..64", f"{low}..64"))
    with pytest.raises(BuildError) as caught:
        pipeline.build(check_file(tmp_path / "small.nn"), Options(provider="reference"))
    assert caught.value.code == code and caught.value.help


@pytest.mark.parametrize("optimizer", ["sgd(lr=0.1, clip_norm=0.3)", "adamw(lr=0.01)"])
def test_micro_batches_of_shards_are_the_batch(tmp_path: Path, optimizer: str) -> None:
    """In f64 to 1e-12: 3 micro-batches of 4 shards of 2 rows; the rows of a shard stay together."""
    middle = "|> dropout(0.3)"
    whole = start(build(tmp_path / "whole", 24, middle=middle, optimizer=optimizer))
    path = build(tmp_path / "parts", 8, "accumulate = 3", shards=4, middle=middle, optimizer=optimizer)
    assert not {"accumulate_step"} & {p.entry for p in read_artifact(path).all_programs()}
    parts = start(path)
    for batch in batches(4, 24):
        one, twelve = whole.train_step(**batch), parts.train_step(**batch)
        assert twelve.loss == pytest.approx(one.loss, rel=1e-12)
    assert near(whole, parts, 1e-12)
    assert whole.state_tensors().keys() == parts.state_tensors().keys()  # sums of gradients last for a step only
    with pytest.raises(InputError) as caught:
        parts.train_step(**batches(1, 8)[0])
    assert "give B = 24 (12 micro-batches in 4 shards of 2)" in str(caught.value.help)


def _parts(tmp_path: Path) -> Parts:
    artifact: Artifact = read_artifact(build(tmp_path, 4, shards=2, precision="f32"))
    shard, update = (artifact.plan(artifact.programs(entry)[0]) for entry in ("train_step", "update_step"))
    return Parts(Terms.of(shard, update))


def test_the_tree_does_not_depend_on_who_adds(tmp_path: Path, fuzz_seed: int) -> None:
    """Sums of 8 shards by 1, 2, 4 and 8 owners have the same bits, those of the tree written out; a running sum has
    others."""
    parts, rng = _parts(tmp_path), np.random.default_rng(fuzz_seed)
    wide = rng.normal(size=(8, parts.count)) * 10.0 ** rng.integers(-6, 6, (8, parts.count))
    leaves = np.zeros_like(wide, np.float32)
    for span in parts._spans.values():  # between them are gaps, which stay 0
        leaves[:, span] = wide[:, span]
    a, b, c, d, e, f, g, h = leaves
    expected = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for owners in (1, 2, 4, 8):
        totals = []
        for own in np.split(leaves, owners):
            tree = Tree(parts, len(own))
            for leaf in own:
                tree.add((name, "shard", view) for name, view in parts.arrays(leaf).items())
            totals.append(tree.total)
        assert added(totals).tobytes() == expected.tobytes()
    running = leaves[0]
    for leaf in leaves[1:]:
        running = running + leaf
    assert running.tobytes() != expected.tobytes()
