"""Sweeps from begin to end: the same results for any number of jobs, resumed, changed, chosen by optuna."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.runtime.history.folders import find_run
from dslc.runtime.sweep.state import read_state

pytestmark = pytest.mark.slow


def files(folder: Path) -> dict[str, bytes]:
    runs = folder / "runs/sweep"
    return {
        str(p.relative_to(runs)): p.read_bytes() for p in [runs / "sweep.json", *runs.glob("*/weights.safetensors")]
    }


def rewrite(folder: Path, sweep: str, **changed: str) -> None:
    path = folder / "dslc.yaml"
    text = path.read_text().partition("sweep:")[0]
    for old, new in changed.items():
        text = text.replace(old, new)
    path.write_text(text + sweep)


@pytest.mark.parametrize(
    "space",
    [
        "sweep: {space: {train.lr: [0.1, 1e30, 0.5], train.seed: [1, 2]}}\n",
        "sweep: {method: random, trials: 5, seed: 7, space: {train.lr: {log_uniform: [1e-3, 1]}}}\n",
    ],
)
def test_results_do_not_depend_on_the_number_of_jobs(
    project: Path, tmp_path: Path, sweep: Callable, space: str
) -> None:
    found = []
    for jobs in ("1", "3"):
        rewrite(project, space)
        assert sweep(project, "--jobs", jobs).returncode == 0
        found.append(files(project))
        (project / "runs").rename(tmp_path / f"runs-{jobs}")
    assert found[0] == found[1] and len(found[0]) >= 5


def test_finished_trials_are_not_run_again(project: Path, sweep: Callable) -> None:
    first = sweep(project)
    assert first.returncode == 0 and "3/3 003 finished" in first.stdout
    before = {p: p.stat().st_mtime_ns for p in (project / "runs").rglob("*") if p.is_file() and p.name != "sweep.json"}
    again = sweep(project)
    assert again.returncode == 0 and again.stdout == "3 of 3 trials are done already\n"
    assert before == {
        p: p.stat().st_mtime_ns for p in (project / "runs").rglob("*") if p.is_file() and p.name != "sweep.json"
    }
    assert find_run(project / "runs", "sweep/003").best is not None and not (project / "build").exists()


def test_a_changed_space_is_refused_unless_told(project: Path, sweep: Callable) -> None:
    assert sweep(project).returncode == 0
    rewrite(project, "sweep: {space: {train.lr: [0.5, 0.2]}}\n")
    refused = sweep(project)
    assert refused.returncode == 5 and "error[R307]" in refused.stderr
    assert "sweep.space.train.lr was [0.1, 1e+30, 0.5] and is now [0.5, 0.2]" in refused.stderr
    told = sweep(project, "--allow-changes")
    assert told.returncode == 0 and "1 of 2 trials are done already" in told.stdout
    state = read_state(project / "runs/sweep")
    assert state is not None
    assert [(e.folder, e.values) for e in state.entries] == [("003", {"train.lr": 0.5}), ("004", {"train.lr": 0.2})]
    rewrite(project, "sweep: {space: {train.lr: [0.5, 0.2]}}\n", **{"epochs: 2": "epochs: 3"})
    assert "train.epochs was 2 and is now 3" in sweep(project).stderr
    other = sweep(project, "--fresh")
    assert other.returncode == 0 and (project / "runs/sweep-2/sweep.json").exists()
    assert sweep(project).stdout == "2 of 2 trials are done already\n"  # the newest


def test_more_random_trials_are_added(project: Path, sweep: Callable) -> None:
    text = "sweep: {method: random, trials: N, space: {train.lr: {uniform: [0.1, 0.6]}}}\n"
    rewrite(project, text.replace("N", "2"))
    assert sweep(project).returncode == 0
    first = read_state(project / "runs/sweep")
    rewrite(project, text.replace("N", "4"))
    assert "2 of 4 trials are done already" in sweep(project).stdout
    more = read_state(project / "runs/sweep")
    assert first is not None and more is not None and more.entries[:2] == first.entries and len(more.entries) == 4
    rewrite(project, text.replace("N", "3"))
    assert "the number of trials was 4 and is now 3" in sweep(project).stderr


def test_optuna_chooses_the_same_trials_after_a_kill(project: Path, tmp_path: Path, sweep: Callable) -> None:
    pytest.importorskip("optuna")
    rewrite(
        project,
        "sweep: {method: optuna, trials: 4, space: {train.lr: {log_uniform: [1e-3, 1]}, train.epochs: {int: [1, 2]},"
        " train.seed: [1, 2]}}\n",
    )
    assert sweep(project).returncode == 0
    found = files(project)
    (project / "runs").rename(tmp_path / "runs")
    assert sweep(project, fault="sweep.renamed:6:kill").returncode == -9
    again = sweep(project)
    assert again.returncode == 0, again.stderr
    assert files(project) == found and len(found) == 5


def test_optuna_ends_when_the_space_does(project: Path, sweep: Callable) -> None:
    pytest.importorskip("optuna")
    rewrite(project, "sweep: {method: optuna, trials: 9, space: {train.lr: [0.1, 0.2]}}\n")
    done = sweep(project)
    assert done.returncode == 0 and "the space has no more combinations: 2 trials" in done.stdout
