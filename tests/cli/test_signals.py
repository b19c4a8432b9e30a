"""Commands under Ctrl-C and SIGTERM at any time: exit code, no traceback, nothing left over, the next run works."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from thinning import SOAK, turn

MODEL = """nn 1
dim B in 1..64 = 8
model Net(x: [B, 2]) -> [B, 2] {
  return x |> linear(16) as fc |> relu |> linear(2) as head
}
train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""
CONFIG = """model: net.nn
build: {target: cpu, sizes: {train: {B: 8}}}
data:
  workers: 1
  train: {x: data.npz:x, label: data.npz:y}
  eval:  {x: data.npz:x, label: data.npz:y}
train: {epochs: 4, seed: 1}
save:  {dir: runs/net, every: 1 step}
"""
COMMANDS = {
    "check": ["check", "net.nn"],
    "build": ["build", "net.nn"],
    "build and train": ["train"],
    "train": ["train", "--set", "save.dir=runs/other"],
    "eval": ["eval"],
    "predict": ["predict", "x=data.npz:x", "-o", "y.npz"],
    "bench": ["bench", "net.nn", "--seconds", "0.2"],
    "verify": ["verify", "build/net/net.dslc", "--rebuild", "net.nn"],
}
#: These begin without the artifact and with an empty cache.
FRESH = ("build", "build and train")
#: Every second command, those that DSLC_PART draws; all with DSLC_SOAK=1. The shortest is no slow test.
STRUCK = ["check"] + [
    pytest.param(name, marks=pytest.mark.slow)
    for number, name in enumerate(COMMANDS)
    if name != "check" and (SOAK or number % 2 == turn(2))
]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
PATIENCE = 300.0  # seconds; for a machine that does much else


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 64).astype(np.int32)
    np.savez(folder / "data.npz", x=rng.normal(0, 1, (64, 2)).astype(np.float32), y=label)
    (folder / "net.nn").write_text(MODEL)
    (folder / "dslc.yaml").write_text(CONFIG)
    subprocess.run([sys.executable, "-m", "dslc", "train"], cwd=folder, check=True, capture_output=True)
    return folder


class Struck:
    """A command in a process of its own; ``mark`` is in the environment of all processes that it starts."""

    def __init__(self, folder: Path, args: list[str]) -> None:
        self.mark = uuid.uuid4().hex
        env = {**os.environ, "DSLC_CACHE_DIR": str(folder / "cache"), "DSLC_TEST_MARK": self.mark}
        # As the script `dslc` does. `python -m dslc` may end by SIGINT itself, which a shell tells as 130, too: Python
        # remembers an interrupt that has come through the text of an ``exec`` of some import.
        command = [sys.executable, "-c", "from dslc.cli import main; main()", *args]
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def handles(self) -> bool:
        """Whether it heeds SIGTERM yet; before, the interpreter that starts would end without our doing."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [caught] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt")]
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def ended(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err.decode()

    def alive(self) -> list[str]:
        """The processes that it left."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if f"DSLC_TEST_MARK={self.mark}".encode() in (folder / "environ").read_bytes():
                        found.append(folder.name)
                except OSError:
                    continue  # it has ended
        return found


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob(".*") if p.name.startswith((".dslc", ".evict")))


@pytest.mark.parametrize("name", STRUCK)
def test_a_command_that_is_struck(name: str, trained: Path, tmp_path: Path) -> None:
    """A tenth of the strikes without DSLC_SOAK=1. A strike that comes too late is made again, twice as early."""
    drawn = random.Random(f"{name} {os.environ['DSLC_SEED']}")
    folder = tmp_path / "project"
    shutil.copytree(trained, folder)
    if name in FRESH:
        shutil.rmtree(folder / "build")
    begun = time.monotonic()
    whole = Struck(folder, COMMANDS[name])
    assert whole.ended()[0] == 0
    lasts = time.monotonic() - begun
    for _ in range(10 if SOAK else 1):
        number = drawn.choice(list(CODES))
        delay = drawn.random() * lasts
        early = 0  # strikes without a delay: on a busy machine even some of them come too late
        while True:
            if name in FRESH:
                shutil.rmtree(folder / "build", ignore_errors=True)
                shutil.rmtree(folder / "cache", ignore_errors=True)
            struck = Struck(folder, COMMANDS[name])
            while struck.process.poll() is None and not struck.handles():
                time.sleep(0.001)
            time.sleep(delay)
            late = struck.process.poll() is not None
            struck.process.send_signal(number)
            code, err = struck.ended()
            assert code in (0, CODES[number]), f"{code} after {delay:.3f} s\n{err}"
            said = f"{number.name} after {delay:.3f} s of {lasts:.3f} s: {err}"
            assert "Traceback" not in err and "Exception ignored" not in err and "error" not in err, said
            assert left(folder) == [], said
            end = time.monotonic() + PATIENCE
            while struck.alive():
                assert time.monotonic() < end, f"{said} leaves {struck.alive()}"
                time.sleep(0.01)
            if code != 0:
                break
            early += delay == 0.0
            delay = delay / 2 if delay > 0.01 else 0.0
            assert not late or early < 20, "a command that ended before it began"
        again = Struck(folder, COMMANDS[name])
        assert again.ended()[0] == 0, said


def main_with(run: str, end: str = "pass") -> subprocess.Popen[str]:
    """``dslc`` with another ``run``, and something to do at the end of the interpreter."""
    text = (
        f"import atexit, time\nimport dslc.cli, dslc.cli.app\ndef end():\n    {end}\natexit.register(end)\n"
        f"def run():\n{run}\ndslc.cli.app.run = run\ndslc.cli.main()\n"
    )
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", CODES, ids=lambda n: n.name)
@pytest.mark.parametrize("where", ["in a command", "outside of the commands"])
def test_a_signal_while_a_class_names_its_attributes(where: str, number: signal.Signals) -> None:
    """Python 3.11 replaces the interrupt by a RuntimeError."""
    planted = (
        "    class Named:\n        def __set_name__(self, owner, name):\n"
        f"            import os; os.kill(os.getpid(), {int(number)}); time.sleep(600)\n"
        "    class Owner:\n        named = Named()\n"
    )
    if where == "in a command":
        planted = (
            "    dslc.cli.app.app.invoke = fails\n    return called(['check'])\n"
            f"called = dslc.cli.app.run\ndef fails(ctx):\n{planted}"
        )
    with main_with(planted) as process:
        assert process.stderr is not None
        assert (process.wait(PATIENCE), process.stderr.read()) == (CODES[number], "")


@pytest.mark.parametrize("number", CODES, ids=lambda n: n.name)
def test_a_second_signal_ends_a_command_that_cleans_up(number: signal.Signals) -> None:
    run = (
        "    try:\n        print('works', flush=True); time.sleep(600)\n"
        "    except BaseException:\n        print('cleans', flush=True); time.sleep(600)\n"
    )
    with main_with(run) as process:
        assert process.stdout is not None and process.stderr is not None
        for said in ("works\n", "cleans\n"):
            assert process.stdout.readline() == said
            process.send_signal(number)
        assert process.wait(PATIENCE) == -number and process.stderr.read() == ""


@pytest.mark.parametrize("number", CODES, ids=lambda n: n.name)
def test_a_signal_after_the_last_word_changes_nothing(number: signal.Signals) -> None:
    with main_with("    return 3", "print('ends', flush=True); time.sleep(0.2); print('ended', flush=True)") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ends\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ended\n" and process.stderr.read() == "" and process.wait(PATIENCE) == 3
