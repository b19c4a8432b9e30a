"""Training, publishing, predicting and fine-tuning, killed anywhere: files are the old or the new ones, whole, and the
command given again, with ``--resume``, ends with the bits of an undisturbed one.

The points are those that an undisturbed run of the same command passes from the same files, so each of them fires.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kills.stories import STORIES, commands

from dslc.runtime.train.checkpoint import read_checkpoint

pytestmark = pytest.mark.slow

OF_WORKERS = "data.row"  # a point of another process; its kill ends a decoder, not the command
SOAK = os.environ.get("DSLC_SOAK") == "1"
FULL = 15  # kills of a story at points with DSLC_SOAK=1: 60 in all; else 2
PATIENCE = 100  # seconds


class Started:
    """A command in a process of its own, in a folder that has ``project`` and its ``cache``."""

    def __init__(self, folder: Path, args: tuple[str, ...], failpoint: str = "") -> None:
        self.mark = f"DSLC_TEST_MARK={uuid.uuid4().hex}"
        self.log = folder / "points"
        self.log.unlink(missing_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith("DSLC_FAILPOINT")}
        env |= {"DSLC_CACHE_DIR": str(folder / "cache"), "DSLC_FAILPOINT_LOG": str(self.log)}
        env |= dict([self.mark.split("=")]) | ({"DSLC_FAILPOINT": failpoint} if failpoint else {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dslc", *args], cwd=folder / "project", env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ended(self) -> tuple[int, str]:
        """Its code and its stderr, after the processes that it started have ended too."""
        _, err = self.process.communicate(timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while self.alive():
            assert time.monotonic() < end, "a process that it started goes on"
            time.sleep(0.02)
        return self.process.returncode, err

    def alive(self) -> bool:
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes():
                    return True
            except OSError:
                continue  # it has ended, or belongs to another user
        return False


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    (target / "cache").chmod(0o700)
    return target


def without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("times", "seconds", "samples_per_s")}
    return value


def published(folder: Path) -> dict[str, bytes]:
    """What a reader of the project finds: the files of build/ and those of predictions."""
    project = folder / "project"
    paths = [*project.glob("build/**/*"), *project.glob("y.*")]
    return {
        str(p.relative_to(project)): p.read_bytes() for p in paths if p.is_file() and not p.name.startswith(".dslc")
    }


def outcome(folder: Path) -> dict[str, Any]:
    """The published files, and each run's weights, checkpoints, record and log, without the times."""
    project, found = folder / "project", dict[str, Any](published(folder))
    for path in sorted(project.glob("runs/*/**/*")):
        name = str(path.relative_to(project))
        if path.suffix == ".safetensors":
            found[name] = path.read_bytes()
        elif path.suffix in (".json", ".jsonl"):
            found[name] = [without_time(json.loads(line)) for line in lines(path)]
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob(".dslc*") if p.name.endswith(".tmp")]


class Story(NamedTuple):
    """``folder/0``, ``1``, ...: before the first command, after it, ...; the points that each command passes."""

    folder: Path
    commands: list[tuple[str, ...]]
    points: list[tuple[int, str]]


@pytest.fixture(scope="module", params=STORIES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    if request.param == "text":
        pytest.importorskip("tokenizers")
    if request.param == "pictures":
        pytest.importorskip("PIL.Image")
    whole = tmp_path_factory.mktemp(request.param)
    (whole / "0/project").mkdir(parents=True)
    (whole / "0/cache").mkdir(mode=0o700)
    STORIES[request.param][0](whole / "0/project")
    code, err = Started(whole / "0", ("train", "--no-publish", "--set", "save.dir=runs/old")).ended()
    assert code == 0, err
    points, given = [], commands(request.param)
    for number, args in enumerate(given):
        folder = copied(whole / str(number), whole / str(number + 1))
        traced = Started(folder, args, "trace")
        code, err = traced.ended()
        assert code == 0, (args, err)
        passed = [line.split() for line in traced.log.read_text().splitlines()]
        points += [(number, f"{name}:{at}") for name, at, _ in passed if name != OF_WORKERS]
        assert len(points) > len(passed) / 9 and outcome(folder) != outcome(whole / str(number))
    return Story(whole, given, points)


def again(folder: Path, args: tuple[str, ...], said: str) -> None:
    """The command once more: a training with a checkpoint is resumed."""
    resumed = (*args, "--resume") if args[0] == "train" else args
    code, err = Started(folder, resumed).ended()
    if code == 5 and "train without --resume first" in err:
        code, err = Started(folder, args).ended()
    assert (code, "Traceback" in err) == (0, False), f"{said}: {err}"


def check(story: Story, number: int, folder: Path, said: str) -> None:
    """After a kill: no reader sees a part of a file; the command given again ends as the undisturbed one."""
    whole = story.folder
    before, after, now = (published(each) for each in (whole / str(number), whole / str(number + 1), folder))
    for name in before.keys() | after.keys() | now.keys():
        assert now.get(name) in (before.get(name), after.get(name)), f"{said}: {name} is neither old nor new"
    for path in folder.glob("project/runs/*/checkpoints/step-*.safetensors"):
        read_checkpoint(path)
    again(folder, story.commands[number], said)
    found, expected = outcome(folder), outcome(whole / str(number + 1))
    assert found.keys() == expected.keys(), said
    assert [name for name in found if found[name] != expected[name]] == [], said
    assert leftovers(folder) == [], said


@pytest.mark.timeout(1800)
def test_killed_at_any_point(story: Story, tmp_path: Path, fuzz_seed: int) -> None:
    whole, commands, points = story
    draw = random.Random(f"{whole.name} {fuzz_seed}")
    each = [draw.choice([point for point in points if point[0] == number]) for number in range(len(commands))]
    chosen = draw.sample(each, 2) if not SOAK else each + draw.sample(points, FULL - len(each))
    for number, point in chosen:
        folder = copied(whole / str(number), tmp_path / "killed")
        said = f"{' '.join(commands[number])}, killed at {point}"
        killed = Started(folder, commands[number], f"{point}:kill")
        code, err = killed.ended()
        assert code == -signal.SIGKILL, f"{said}: {code} {err}"
        assert killed.log.read_text() == f"{point.replace(':', ' ')} kill\n", said
        check(story, number, folder, said)


@pytest.mark.timeout(1800)
def test_killed_at_any_time(story: Story, tmp_path: Path, fuzz_seed: int) -> None:
    """A kill that comes too late changes nothing, so no time is wrong."""
    whole, commands, _ = story
    draw = random.Random(f"{whole.name} {fuzz_seed}")
    for number in draw.sample(range(len(commands)), len(commands) if SOAK else 1):
        folder = copied(whole / str(number), tmp_path / "killed")
        struck = Started(folder, commands[number])
        delay = draw.uniform(0, 2)
        time.sleep(delay)
        struck.process.kill()
        code, _ = struck.ended()
        assert code in (0, -signal.SIGKILL)
        check(story, number, folder, f"{' '.join(commands[number])}, killed after {delay:.3f} s")


def test_a_lost_step_would_be_seen(story: Story, tmp_path: Path) -> None:
    """The control: another bit in a checkpoint gives another outcome."""
    folder = copied(story.folder / "1", tmp_path / "other")
    newest = max(folder.glob("project/runs/new/checkpoints/step-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(Exception, match=newest.name):
        check(story, 0, folder, "")
