"""What a sweep refuses before anything runs: each error with its place in the file, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dslc.base.errors import DataError
from dslc.runtime.config.config import Config
from dslc.runtime.config.fields import FIELDS
from dslc.runtime.config.load import config_source, load_config
from dslc.runtime.config.space import _SAME
from dslc.runtime.sweep.plan import SweepPlan, plan_sweep
from dslc.runtime.sweep.trial import config_of, task_of

BASE = """\
model: toy.nn
args: {width: 4}
build: {sizes: {train: {B: 8}, predict: {B: [1, 8]}}}
data:
  train: {x: toy.npz:x, label: toy.npz:y}
  eval: {x: toy.npz:tx, label: toy.npz:ty}
train: {epochs: 2, lr: {cosine: {warmup: 1 epoch}}}
sweep:
  METHOD
  space:
    """


def planned(folder: Path, space: str, method: str = "seed: 1", flags: Mapping[str, object] | None = None) -> SweepPlan:
    (folder / "dslc.yaml").write_text(BASE.replace("METHOD", method) + space + "\n")
    return plan_sweep(config_source(folder / "dslc.yaml", flags))


@pytest.mark.parametrize(
    ("space", "place", "why"),
    [
        ("train.lrr: [1, 2]", "11:5", "unknown key `train.lrr`"),
        ("train.batch: [1, 2]", "11:18", "unknown key `train.batch`"),
        ("train: [1, 2]", "11:5", "unknown key `train`"),
        ("args: [1, 2]", "11:5", "unknown key `args`"),
        ('"args.a b": [1, 2]', "11:5", "unknown key"),
        ('"": [1, 2]', "11:5", "unknown key"),
        ('"train.lr.": [1, 2]', "11:5", "unknown key"),
        ("train.lr: []", "11:15", "is empty"),
        ("train.lr: {}", "11:15", "not one of the forms"),
        ("train.lr: 0.1", "11:15", "one value"),
        ("train.lr:", "11:14", "one value"),
        ("train.lr: {choice: []}", "11:24", "is empty"),
        ("train.lr: {choice: 3}", "11:24", "`3`"),
        ("train.lr: {log: [1, 2]}", "11:16", "unknown key `log`"),
        ("train.lr: {uniform: [1, 2], int: [1, 2]}", "11:15", "not one of the forms"),
        ("train.lr: {uniform: [2, 1]}", "11:25", "starts at 2 and ends at 1"),
        ("train.lr: {uniform: [1, 1]}", "11:25", "starts at 1 and ends at 1"),
        ("train.lr: {uniform: [1]}", "11:25", "a range of two numbers"),
        ("train.lr: {uniform: [a, 1]}", "11:26", "is a number"),
        ("train.lr: {log_uniform: [0, 1]}", "11:29", "no logarithm"),
        ("train.epochs: {int: [1.5, 2]}", "11:26", "is an integer"),
        ("train.epochs: [1, 2.5]", "11:23", "`train.epochs` is an integer, not `2.5`"),
        ("train.epochs: [1, 0]", "11:23", "out of range"),
        ("train.epochs: [1, two]", "11:23", "is an integer"),
        ("train.epochs: [1, 1]", "11:23", "lists `1` twice"),
        ("train.lr.cosine.end: [0, x]", "11:30", "`train.lr.cosine.end` is a number"),
        ("train.lr.cosine.ende: [0, 1]", "11:28", "unknown key `ende`"),
        ("args.width: [3, [4]]", "11:21", "is a single value"),
        ("train.lr: [0.1]\n    train.lr.cosine.end: [0]", "12:26", "is a part of `train.lr`"),
        ("save.keep: [2, 3]", "11:16", "what a run keeps"),
        ("data.eval.x: [a.npz:x]", "11:18", "cannot be compared"),
        ("data.split: [0.1, 0.2]", "11:17", "cannot be compared"),
        ("sweep.seed: [1, 2]", "11:17", "the sweep itself"),
        ("build.target: [cpu, sm_90]", "11:19", "kind of device"),
    ],
)
def test_a_space_that_is_wrong_is_refused_at_its_place(tmp_path: Path, space: str, place: str, why: str) -> None:
    with pytest.raises(DataError) as caught:
        planned(tmp_path, space)
    assert why in caught.value.message and caught.value.place == f"{tmp_path / 'dslc.yaml'}:{place}", caught.value
    assert caught.value.code == "R104" and caught.value.help
    assert [p.name for p in tmp_path.iterdir()] == ["dslc.yaml"]


@pytest.mark.parametrize(
    ("method", "place", "why"),
    [
        ("method: grit", "9:11", "`sweep.method` is `grit`"),
        ("method: 3", "9:11", "`sweep.method` is `3`"),
        ("trials: 0", "9:11", "out of range"),
        ("trials: many", "9:11", "is an integer"),
        ("trials: 100000", "9:11", "out of range"),
        ("seed: -1", "9:9", "out of range"),
        ("sead: 1", "9:3", "unknown key `sead`"),
        ("trials: 3", "9:11", "the grid has 2 combinations, and `sweep.trials` is 3"),
    ],
)
def test_a_section_that_is_wrong_is_refused_at_its_place(tmp_path: Path, method: str, place: str, why: str) -> None:
    with pytest.raises(DataError) as caught:
        planned(tmp_path, "train.lr: [0.1, 0.2]", method)
    assert why in caught.value.message and caught.value.place == f"{tmp_path / 'dslc.yaml'}:{place}", caught.value


@pytest.mark.parametrize("method", ["seed: 1", "{method: random, trials: 2}", "{method: optuna}"])
def test_every_value_is_checked_whatever_the_method_draws(tmp_path: Path, method: str) -> None:
    choices = ", ".join(map(str, range(1, 60)))
    with pytest.raises(DataError, match="out of range"):
        planned(tmp_path, f"train.epochs: [{choices}, 0]", method.strip("{}").replace(", ", "\n  "))
    if "method" in method:
        with pytest.raises(DataError, match="out of range"):
            planned(tmp_path, "train.base_lr: {uniform: [-1, 1]}", method.strip("{}").replace(", ", "\n  "))


def test_a_flag_that_would_win_over_the_space_is_refused(tmp_path: Path) -> None:
    for space, flags in (
        ("train.lr: [0.1, 0.2]", {"train.base_lr": "0.3"}),
        ("train.lr: [0.1, 0.2]", {"train.lr": "0.3"}),
        ("train.seed: [1, 2]", {"train.seed": "3"}),
        ("build.sizes.train.B: [4, 8]", {"build.sizes": {"train": {"B": 2}}}),
    ):
        with pytest.raises(DataError, match=r"is in the space, and the command line sets"):
            planned(tmp_path, space, flags=flags)


def test_without_a_space_or_evaluation_data_there_is_nothing_to_compare(tmp_path: Path) -> None:
    path = tmp_path / "dslc.yaml"
    path.write_text("model: toy.nn\ndata: {train: {x: a.npz:x}}\nsweep: {space: {train.seed: [1, 2]}}\n")
    with pytest.raises(DataError, match="no evaluation data"):
        plan_sweep(config_source(path))
    path.write_text("model: toy.nn\ndata: {train: {x: a.npz:x}, split: 0.1}\n")
    with pytest.raises(DataError, match="nothing to sweep"):
        plan_sweep(config_source(path))


def test_a_key_changes_one_value_inside_of_a_field(tmp_path: Path) -> None:
    space = "build.sizes.train.B: [4, 16]\n    train.lr.cosine.end: [0.5]\n    args.depth: [2]"
    plan = planned(tmp_path, space)
    configs: list[Config] = [trial.config for trial in plan.trials]
    assert [config.build["sizes"] for config in configs] == [
        {"train": {"B": size}, "predict": {"B": [1, 8]}} for size in (4, 16)
    ]
    assert configs[0].args == {"width": 4, "depth": 2}
    assert configs[0].train.lr.end == 0.5 and configs[0].train.lr.warmup == load_config(plan.base.path).train.lr.warmup
    assert len({trial.key for trial in plan.trials}) == 2


def test_every_field_can_be_swept_or_says_why_not(tmp_path: Path) -> None:
    """The space knows each field of the configuration, those that are added later, too."""
    for field in FIELDS:
        key = f"{field.name}.x" if field.open else field.name
        with pytest.raises(DataError) as caught:
            planned(tmp_path, f"{key}: []")
        fixed = any(key == name or key.startswith(f"{name}.") for name in _SAME)
        assert ("cannot change" if fixed else "is empty") in caught.value.message, key


def test_the_process_of_a_trial_reads_the_same_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the file has changed since; what a variable changes is refused."""
    plan = planned(tmp_path, "train.epochs: [1, 3]\n    args.width: [5]")
    trial = plan.trials[1]
    values = dict(zip(("train.epochs", "args.width"), (axis.choices[-1] for axis in plan.base.sweep.space.axes)))
    task = task_of(plan.source, {}, plan.changed(values), trial, tmp_path / "runs/sweep/002")
    (tmp_path / "dslc.yaml").write_text("model: other.nn\n")
    config = config_of(task)
    assert config.training_values() == trial.config.training_values() and config.train.epochs == 3
    assert config.save.dir == tmp_path / "runs/sweep/002" and config.save.root == tmp_path
    assert config.model == tmp_path / "toy.nn"
    monkeypatch.setenv("DSLC_TRAIN_SEED", "5")
    with pytest.raises(Exception, match="differs from that of the sweep"):
        config_of(task)
