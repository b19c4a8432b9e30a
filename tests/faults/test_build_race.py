"""Many builds of one model into one folder, some of them killed: what is there is always a whole artifact of one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.base.errors import ArtifactError, DslcError
from dslc.base.publish import sweep
from dslc.base.temps.temp import TEMP
from dslc.runtime.artifact.file import read_artifact

pytestmark = pytest.mark.slow

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 6]) -> [B, 3] {
  return x |> linear(5) as a |> relu |> linear(3) as b
}
"""
# Builds in turn sizes of its own until it is killed or told to stop; a line for each that says how it ended.
WORKER = """
import sys
from pathlib import Path
from dslc.base.errors import DslcError
from dslc.cli.compile import publish
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
folder, number, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
checked = check_file(folder / "net.nn")
turn = 0
while not (folder / "stop").exists():
    turn += 1
    sizes = {"predict": {"B": (1 + (number + turn) % 60,)}}
    try:
        if kind == "naive":
            from dslc.compiler.pipeline import build
            data = build(checked, Options(provider="reference", sizes=sizes)).artifact
            with open(folder / "build/net/net.dslc", "wb", buffering=0) as file:
                for part in range(0, len(data), 512):
                    file.write(data[part:part + 512])
        else:
            publish(checked, Options(provider="reference", sizes=sizes), folder / "build")
        print("built", flush=True)
    except DslcError as error:
        print(error.code, flush=True)
"""


class Race:
    """Workers on one folder, started again when they are killed."""

    def __init__(self, folder: Path, count: int, kind: str = "publish") -> None:
        self.folder, self.kind = folder, kind
        self.logs: list[Path] = []
        self.workers = [self._start(i) for i in range(count)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        log = self.folder / f"log.{len(self.logs)}"
        self.logs.append(log)
        command = [sys.executable, "-c", WORKER, str(self.folder), str(number), self.kind]
        with log.open("wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def kill(self, rng: random.Random) -> bool:
        """Kills one that has begun to build; whether there was one."""
        number = rng.randrange(len(self.workers))
        worker = self.workers[number]
        if self.logs[number].stat().st_size == 0:
            return False
        worker.kill()
        assert worker.wait() == -9
        self.workers[number] = self._start(number)
        self.logs[number], self.logs[-1] = self.logs[-1], self.logs[number]  # logs[i] is that of the living worker i
        return True

    def stop(self) -> Counter[str]:
        """How the builds ended."""
        (self.folder / "stop").touch()
        for worker in self.workers:
            assert worker.wait(timeout=120) == 0
        return Counter(line for log in self.logs for line in log.read_text().splitlines())


def project(folder: Path) -> Path:
    (folder / "build" / "net").mkdir(parents=True)
    (folder / "net.nn").write_text(MODEL)
    return folder


def reads(path: Path) -> tuple[int, int]:
    """(1, 0) for a whole artifact, (0, 1) for a broken one, (0, 0) when there is none yet."""
    if not path.exists():
        return 0, 0
    try:
        read_artifact(path).verify()
    except ArtifactError:
        return 0, 1
    return 1, 0


def test_builds_with_a_killer(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    soak = os.environ.get("DSLC_SOAK") == "1"
    kills, processes = (200, 32) if soak else (8, 4)
    rng = random.Random(fuzz_seed)
    folder = project(tmp_path)
    target = folder / "build" / "net" / "net.dslc"
    race = Race(folder, processes)
    killed = good = bad = 0
    deadline = time.monotonic() + (1800 if soak else 500)
    while killed < kills or good < kills:
        assert time.monotonic() < deadline, f"only {killed} kills and {good} reads"
        time.sleep(rng.uniform(0, 0.1))
        whole, broken = reads(target)
        good, bad = good + whole, bad + broken
        killed += killed < kills and race.kill(rng)
    ended = race.stop()
    print(f"{killed} kills, {good} reads, {dict(ended)}")
    assert bad == 0
    # how many get their turn depends on the scheduler: rivals that are told to wait ask again at once
    assert set(ended) <= {"built", "R404"} and ended["built"], ended
    read_artifact(target).verify()
    # The next build removes the files of killed processes.
    sweep(folder / "build" / "net")
    assert not [n for n in os.listdir(folder / "build" / "net") if TEMP.fullmatch(n)]


def test_a_writer_that_is_not_atomic_would_be_seen(tmp_path: Path) -> None:
    """The control: workers that write the artifact where it stands."""
    folder = project(tmp_path)
    race = Race(folder, 2, "naive")
    bad = 0
    until = time.monotonic() + 60
    while bad == 0 and time.monotonic() < until:
        try:
            bad += reads(folder / "build" / "net" / "net.dslc")[1]
        except DslcError:
            bad += 1
    race.stop()
    assert bad > 0


@pytest.mark.parametrize("point", ["publish.rename:1:kill", "publish.write:1:kill"])
def test_a_rebuild_after_a_kill_needs_no_hand(tmp_path: Path, point: str) -> None:
    folder = project(tmp_path)
    command = [sys.executable, "-m", "dslc", "build", "net.nn", "--providers", "reference"]
    killed = subprocess.run(command, cwd=folder, env={**os.environ, "DSLC_FAILPOINT": point}, capture_output=True)
    assert killed.returncode == -9
    assert subprocess.run(command, cwd=folder, capture_output=True).returncode == 0
    read_artifact(folder / "build" / "net" / "net.dslc").verify()
    assert not [n for n in os.listdir(folder / "build" / "net") if TEMP.fullmatch(n)]
