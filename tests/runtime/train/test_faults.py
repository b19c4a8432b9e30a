"""Runs in processes of their own: killed, out of disk, interrupted; each fault is proven to have fired."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from places import SUPPORT
from tables.project import SPLIT, project

from dslc.runtime.train.checkpoint import CheckpointStore, read_checkpoint
from dslc.runtime.train.metrics import read_log
from dslc.runtime.weights import safetensors_file as tensorfile

pytestmark = pytest.mark.slow

FAKE = SUPPORT / "training" / "fake_session.py"
TOTAL = 24


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, str(FAKE), str(folder), *options]


def run(folder: Path, *options: str, fault: str = "", log: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("DSLC_FAILPOINT")}
    if fault:
        env |= {"DSLC_FAILPOINT": fault, "DSLC_FAILPOINT_LOG": str(log)}
    return subprocess.run(command(folder, *options), capture_output=True, text=True, env=env, timeout=60)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that nothing disturbed."""
    from training.fake_session import YAML, write_data

    folder = tmp_path_factory.mktemp("whole")
    (folder / "dslc.yaml").write_text(YAML)
    write_data(folder)
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return folder


def fresh(whole: Path, folder: Path) -> Path:
    folder.mkdir()
    for name in ("dslc.yaml", "toy.npz"):
        shutil.copy(whole / name, folder / name)
    return folder


def differences(folder: Path, whole: Path) -> list[str]:
    """What of a finished run is not bit for bit that of the undisturbed one."""
    found = []
    if (folder / "build/toy.safetensors").read_bytes() != (whole / "build/toy.safetensors").read_bytes():
        found.append("the published weights")
    ours, theirs = (read_checkpoint(CheckpointStore(f / "runs/toy", 2).path(TOTAL)) for f in (folder, whole))
    if ours.position != theirs.position:
        found.append("the position")
    if any(ours.tensors[n].tobytes() != theirs.tensors[n].tobytes() for n in theirs.tensors):
        found.append("the state")
    logs = [
        [
            {k: v for k, v in e.items() if k not in ("seconds", "samples_per_s")}
            for e in read_log(f / "runs/toy/log.jsonl")
        ]
        for f in (folder, whole)
    ]
    if logs[0] != logs[1]:
        found.append("the log")
    return found


POINTS = ("create", "write", "fsync", "rename", "renamed", "dirsync", "sweep")
KILLS = [
    *(f"ckpt.{point}:{number}:kill" for number in (2, 1, 3, 5, 7) for point in POINTS),
    *(f"train.step:{number}:kill" for number in (10, 24, 1, 5, 6, 7, 8, 9, 12, 13, 16, 18, 19, 20, 21)),
    *(f"log.write:{number}:kill" for number in (3, 1, 2, 4, 5, 6, 7, 8)),
    *(f"log.rename:{number}:kill" for number in (1,)),
]


def test_killed_anywhere_a_run_goes_on_and_ends_the_same(
    whole: Path, tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    # Each point once at least, then others by chance.
    rng = np.random.default_rng(fuzz_seed)
    first = [*KILLS[:7], KILLS[35], KILLS[50]]
    rest = [kill for kill in KILLS if kill not in first]
    chosen = [*first, *(rest[i] for i in rng.permutation(len(rest))[: fuzz_count(len(rest))])]
    fired = 0
    for number, fault in enumerate(chosen):
        folder = fresh(whole, tmp_path / str(number))
        log = folder / "fired"
        done = run(folder, fault=fault, log=log)
        assert done.returncode == -signal.SIGKILL, (fault, done.stdout, done.stderr)
        assert log.read_text() == fault.replace(":", " ") + "\n"
        fired += 1
        steps = CheckpointStore(folder / "runs/toy", 2).steps()
        for step in steps:
            read_checkpoint(CheckpointStore(folder / "runs/toy", 2).path(step))  # none is half-written
        # Without a checkpoint the run starts again in the same folder.
        again = run(folder, *(["--resume"] if steps else []))
        assert again.returncode == 0, (fault, again.stderr)
        assert differences(folder, whole) == [], fault
        left = [p.name for p in (folder / "runs/toy").rglob(".dslc*")]
        assert not [name for name in left if name.endswith(".tmp")], (fault, left)
    assert fired == len(chosen) >= 9


def test_killed_anywhere_a_run_on_a_table_ends_with_what_it_fitted_first(
    tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int
) -> None:
    """What is fitted is in every checkpoint, and a killed run goes on with it."""
    for name in ("whole", "part"):
        (tmp_path / name).mkdir()
    whole = project(tmp_path / "whole", "jsonl", SPLIT)
    assert run(whole).returncode == 0
    saved = CheckpointStore(whole / "runs/toy", 2).steps()
    kills = [f"ckpt.{point}:{number}:kill" for point in POINTS for number in (2, len(saved) - 1)]
    kills += [f"train.step:{number}:kill" for number in (3, max(saved) // 2, max(saved))]
    order = np.random.default_rng(fuzz_seed).permutation(len(kills))
    for kill in (kills[at] for at in order[: max(4, fuzz_count(len(kills)))]):
        shutil.rmtree(tmp_path / "part")
        (tmp_path / "part").mkdir()
        folder = project(tmp_path / "part", "jsonl", SPLIT)
        assert run(folder, fault=kill, log=folder / "fired").returncode == -signal.SIGKILL, kill
        again = run(folder, "--resume")
        assert again.returncode == 0, (kill, again.stderr)
        ours, theirs = (f / "build/toy.safetensors" for f in (folder, whole))
        assert ours.read_bytes() == theirs.read_bytes(), kill
        assert b"dslc.data" in ours.read_bytes()


def test_the_comparison_sees_a_difference(whole: Path, tmp_path: Path) -> None:
    """The control: a resume that loses a batch must be caught."""
    folder = fresh(whole, tmp_path / "a")
    run(folder, fault="train.step:11:kill", log=folder / "fired")
    store = CheckpointStore(folder / "runs/toy", 2)
    found = read_checkpoint(store.path(store.steps()[0]))
    tensors = dict(found.tensors)
    tensors["w"] = np.nextafter(tensors["w"], np.float32(9))
    store.save(tensors, found.position)
    assert run(folder, "--resume").returncode == 0
    assert {"the state", "the log"} <= set(differences(folder, whole))


@pytest.mark.parametrize(
    "fault", ["ckpt.write:2:enospc", "ckpt.fsync:2:eio", "ckpt.create:2:emfile", "ckpt.rename:2:edquot"]
)
def test_a_checkpoint_that_cannot_be_written_is_told_and_training_goes_on(
    whole: Path, tmp_path: Path, fault: str
) -> None:
    folder = fresh(whole, tmp_path / "a")
    done = run(folder, fault=fault, log=folder / "fired")
    assert (folder / "fired").read_text()
    assert done.returncode == 0, done.stderr
    assert "warning: no checkpoint after" in done.stdout and "1 in a row failed" in done.stdout
    assert tensorfile.read(folder / "build/toy.safetensors").verified


def test_the_third_failure_in_a_row_stops_the_run(whole: Path, tmp_path: Path) -> None:
    folder = fresh(whole, tmp_path / "a")
    faults = ",".join(f"ckpt.write:{number}:enospc" for number in (2, 3, 4))
    done = run(folder, fault=faults, log=folder / "fired")
    assert len((folder / "fired").read_text().splitlines()) == 3
    assert done.returncode == 6 and "error[R402]" in done.stderr and "--resume" in done.stderr
    kept = CheckpointStore(folder / "runs/toy", 2).steps()
    assert len(kept) == 1 and not (folder / "build").exists()
    assert run(folder, "--resume").returncode == 0


def test_written_but_perhaps_not_durable_is_told(whole: Path, tmp_path: Path) -> None:
    folder = fresh(whole, tmp_path / "a")
    done = run(folder, fault="ckpt.dirsync:2:eio", log=folder / "fired")
    assert (folder / "fired").read_text() and done.returncode == 0
    assert "perhaps not durable" in done.stdout and differences(folder, whole) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_and_saves(whole: Path, tmp_path: Path, number: int, code: int) -> None:
    folder = fresh(whole, tmp_path / "a")
    with held(folder, 1) as process:
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)  # ends its input, so the step continues
    assert process.returncode == code and "Traceback" not in rest
    assert CheckpointStore(folder / "runs/toy", 2).steps() == [2], "the step that was interrupted is the last one"
    assert f"saved {CheckpointStore(folder / 'runs/toy', 2).path(2)}" in rest
    assert not (folder / "build").exists()
    assert run(folder, "--resume").returncode == 0
    assert differences(folder, whole) == []


def test_a_second_signal_stops_now_without_saving(whole: Path, tmp_path: Path) -> None:
    folder = fresh(whole, tmp_path / "a")
    with held(folder, 1) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        while not pending_none(process.pid):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()  # its input is open: only the second signal ends the step
        assert process.wait(60) == 130
    assert "stopped immediately" in rest and "Traceback" not in rest
    assert CheckpointStore(folder / "runs/toy", 2).steps() == []


def held(folder: Path, step: int) -> subprocess.Popen[str]:
    """A run that is in the middle of a step, and stays there until its input ends."""
    process = subprocess.Popen(
        command(folder, "--hold", str(step)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert any(line == f"at step {step}\n" for line in process.stdout), "the process ended before that step"
    return process


def pending_none(pid: int) -> bool:
    """Whether the process has received every signal that was sent to it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return all(int(line.split()[1], 16) == 0 for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def test_two_trainings_do_not_share_a_run(whole: Path, tmp_path: Path) -> None:
    folder = fresh(whole, tmp_path / "a")
    with held(folder, 5) as process:  # past the first checkpoint
        other = run(folder, "--resume")
        assert other.returncode == 6 and "error[R404]" in other.stderr and f"pid {process.pid}" in other.stderr
        process.kill()
        process.wait(60)
    assert run(folder, "--resume").returncode == 0, "a dead process holds no lock"
    assert differences(folder, whole) == []
