"""Sweeps that are killed, interrupted or out of disk: a second run goes on and ends with the same bits."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dslc.runtime.sweep.state import FINISHED, read_state

pytestmark = pytest.mark.slow

POINTS = ("create", "write", "fsync", "rename", "renamed", "dirsync", "sweep")
#: Writes of the state in one sweep: at the start, and two for each of three trials.
WRITES = 7
KILLS = [f"sweep.{point}:{number}:kill" for number in range(1, WRITES + 1) for point in POINTS]
#: Points of a trial's process; its first and its later passages.
DEATHS = [
    *(f"ckpt.{point}:{number}:kill" for number in (1, 2, 4) for point in POINTS),
    *(f"record.{point}:{number}:kill" for number in (1, 3) for point in POINTS),
    *(f"train.step:{number}:kill" for number in (1, 6, 12)),
    *(f"log.write:{number}:kill" for number in (1, 2)),
]
PATIENCE = 60.0  # seconds


def outcome(folder: Path) -> dict[str, bytes]:
    """The files of a finished sweep that an undisturbed one has with the same bytes."""
    runs = folder / "runs/sweep"
    return {
        str(p.relative_to(runs)): p.read_bytes() for p in [runs / "sweep.json", *runs.glob("*/weights.safetensors")]
    }


def fresh(whole: Path, folder: Path) -> Path:
    folder.mkdir()
    for name in ("dslc.yaml", "toy.npz"):
        shutil.copy(whole / name, folder / name)
    return folder


def chosen(kills: list[str], count: int, seed: int) -> Iterator[str]:
    order = np.random.default_rng(seed).permutation(len(kills))
    return (kills[at] for at in order[:count])


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_killed_at_any_write_of_its_state_a_sweep_goes_on(
    whole: Path, tmp_path: Path, sweep: Callable, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    for number, fault in enumerate(chosen(KILLS, fuzz_count(len(KILLS)), fuzz_seed)):
        folder = fresh(whole, tmp_path / str(number))
        done = sweep(folder, "--jobs", str(1 + number % 2), fault=fault)
        assert done.returncode == -signal.SIGKILL and (folder / "fired").read_text() == fault.replace(":", " ") + "\n"
        again = sweep(folder)
        assert again.returncode == 0, (fault, again.stderr)
        assert outcome(folder) == outcome(whole), fault
        assert not [p for p in (folder / "runs").rglob(".dslc*")], fault


def test_trials_that_are_killed_are_recorded_and_end_the_same_when_retried(
    whole: Path, tmp_path: Path, sweep: Callable, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    for number, fault in enumerate(chosen(DEATHS, fuzz_count(len(DEATHS)), fuzz_seed)):
        folder = fresh(whole, tmp_path / str(number))
        assert sweep(folder, "--jobs", "2", fault=fault).returncode == 0, fault
        state = read_state(folder / "runs/sweep")
        assert state is not None and len(state.entries) == 3
        killed = [e for e in state.entries if e.error == "R406: its process has ended: killed by SIGKILL"]
        assert killed, (fault, state.entries)
        again = sweep(folder, "--retry")
        assert again.returncode == 0, (fault, again.stderr)
        assert outcome(folder) == outcome(whole), fault


def test_the_comparison_sees_a_difference(whole: Path, tmp_path: Path, sweep: Callable) -> None:
    folder = fresh(whole, tmp_path / "a")
    (folder / "dslc.yaml").write_text((folder / "dslc.yaml").read_text().replace("seed: 3", "seed: 4"))
    assert sweep(folder).returncode == 0
    ours, theirs = outcome(folder), outcome(whole)
    assert ours.keys() == theirs.keys() and all(ours[name] != theirs[name] for name in theirs)


def test_a_sweep_that_is_killed_takes_its_trials_along(
    whole: Path, tmp_path: Path, begun: Callable, sweep: Callable
) -> None:
    """They save first; the next sweep waits for them and goes on from their checkpoints."""
    folder = fresh(whole, tmp_path / "a")
    with begun(folder, "--slow", "--jobs", "3") as process:
        until(lambda: (folder / "runs/sweep/001/at-1").exists() and (folder / "runs/sweep/003/at-1").exists())
        process.kill()
        process.wait(PATIENCE)
    again = sweep(folder)
    assert again.returncode == 0, again.stderr
    assert "resuming from" in (folder / "runs/sweep/001/output.txt").read_text()
    assert outcome(folder) == outcome(whole)


def test_the_error_of_a_trial_does_not_depend_on_an_earlier_kill(
    whole: Path, tmp_path: Path, begun: Callable, sweep: Callable
) -> None:
    """The second trial saves when it is stopped before the step that fails; an undisturbed one has no checkpoint."""
    folder = fresh(whole, tmp_path / "a")
    with begun(folder, "--slow", "--jobs", "2") as process:
        until(lambda: (folder / "runs/sweep/002/at-0").exists())
        process.kill()
        process.wait(PATIENCE)
    assert sweep(folder).returncode == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_each_trial_save(
    whole: Path, tmp_path: Path, begun: Callable, sweep: Callable, number: signal.Signals, code: int
) -> None:
    folder = fresh(whole, tmp_path / "a")

    def far() -> bool:
        """The second trial has failed, and the others train."""
        state = read_state(folder / "runs/sweep")
        failed = state is not None and [e.state for e in state.entries[1:2]] == ["failed"]
        return failed and all((folder / f"runs/sweep/{name}/at-1").exists() for name in ("001", "003"))

    with begun(folder, "--slow", "--jobs", "3") as process:
        until(far)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == code and "each trial finishes its step and saves" in out and err == ""
    state = read_state(folder / "runs/sweep")
    assert state is not None and [e.state for e in state.entries] == ["stopped", "failed", "stopped"]
    assert "saved" in (folder / "runs/sweep/001/output.txt").read_text()
    assert sweep(folder, "--jobs", "2").returncode == 0
    assert outcome(folder) == outcome(whole)


def test_a_second_signal_ends_all_at_once(whole: Path, tmp_path: Path, begun: Callable, sweep: Callable) -> None:
    folder = fresh(whole, tmp_path / "a")
    with begun(folder, "--slow", "--jobs", "3") as process:
        until(lambda: (folder / "runs/sweep/001/at-1").exists())
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert any("finishes its step" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) != 0
    assert sweep(folder).returncode == 0
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize("fault", ["sweep.write:3:enospc", "sweep.create:4:emfile", "sweep.rename:5:edquot"])
def test_a_state_that_cannot_be_written_ends_the_sweep(
    whole: Path, tmp_path: Path, sweep: Callable, fault: str
) -> None:
    folder = fresh(whole, tmp_path / "a")
    done = sweep(folder, "--jobs", "2", fault=fault)
    assert done.returncode == 6 and "error[R402]" in done.stderr, done.stderr
    assert sweep(folder).returncode == 0
    assert outcome(folder) == outcome(whole)


def test_two_processes_do_not_share_a_sweep(whole: Path, tmp_path: Path, begun: Callable, sweep: Callable) -> None:
    folder = fresh(whole, tmp_path / "a")
    process: subprocess.Popen[str]
    with begun(folder, "--slow") as process:
        until(lambda: (folder / "runs/sweep/001/at-0").exists())
        other = sweep(folder)
        assert other.returncode == 6 and "error[R404]" in other.stderr and f"pid {process.pid}" in other.stderr
        process.kill()
        process.wait(PATIENCE)
    assert sweep(folder).returncode == 0
    state = read_state(folder / "runs/sweep")
    assert state is not None and [e.state for e in state.entries] == [FINISHED, "failed", FINISHED]
