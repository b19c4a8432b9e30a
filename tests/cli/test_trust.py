"""Code in a project's ``build/`` may have come with the project: no command runs it unless it was told to."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dslc.base.errors import ResourceError
from dslc.base.register import known
from dslc.cli.table import COMMANDS
from dslc.runtime.artifact import container
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cpu.objects import Objects

NET = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2]) -> [B, 2] {
  return x |> linear(4) as fc |> relu |> linear(2) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""
CONFIG = """model: net.nn
data:
  train: {x: data.npz:x, label: data.npz:y}
  eval:  {x: data.npz:x, label: data.npz:y}
train: {epochs: 1, seed: 1}
"""

#: Every command as it is called in a project that somebody else made.
CALLS: dict[str, list[str]] = {
    "new": ["new", "other"],
    "check": ["check", "net.nn"],
    "fmt": ["fmt", "--check", "net.nn"],
    "explain": ["explain", "R101"],
    "ops": ["ops"],
    "build": ["build"],
    "verify": ["verify", "build/net"],
    "warm": ["warm", "--device", "cpu"],
    "train": ["train"],
    "runs": ["runs"],
    "sweep": ["sweep", "--space", "train.lr=[0.1]"],
    "publish": ["publish", "net"],
    "eval": ["eval"],
    "predict": ["predict", "data.npz:x", "-o", "y.npy"],
    "bench": ["bench", "--seconds", "0.1"],
    "show": ["show"],
    "why": ["why", "fc"],
    "info": ["info"],
    "mem": ["mem"],
    "lock": ["lock"],
    "tune": ["tune", "--budget", "1s"],
    "weights": ["weights", "list", "build/net/net.safetensors"],
    "cache": ["cache"],
    "doctor": ["doctor"],
    "config": ["config"],
}
#: Those that run an artifact which is not named.
RUN = ("warm", "train", "eval", "predict", "bench")


def marked(data: bytes) -> bytes:
    """The same object, which can be told from the one that was built."""
    return data[:9] + b"PLANTED" + data[16:]


def killing(data: bytes) -> bytes:
    """An object for x86-64 of instructions that no processor knows; another is left alone."""
    if data[18] != 62:  # its machine
        return data
    [table] = struct.unpack_from("<Q", data, 40)
    at, size = struct.unpack_from("<QQ", data, table + 64 + 24)  # of the first section, which holds the code
    return data[:at] + (b"\x0f\x0b" * size)[:size] + data[at + size :]


def plant(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put other machine code into an artifact, with digests that fit."""
    found = read_artifact(path)
    blobs = [(b["name"], b["kind"], bytes(found.blob(b["name"]))) for b in found.header["blobs"]]
    changed = [Blob(n, k, change(data) if k == "object" else data) for n, k, data in blobs]
    path.write_bytes(container.pack(dict(found.header), changed))
    read_artifact(path).verify()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``project``, built and trained by somebody else, and ``mine``: a cache with the kernels alone."""
    from dslc.cli.app import run

    folder = tmp_path_factory.mktemp("foreign")
    project, theirs = folder / "project", folder / "theirs"
    project.mkdir()
    rng = np.random.default_rng(0)
    np.savez(project / "data.npz", x=rng.normal(size=(64, 2)).astype(np.float32), y=np.zeros(64, np.int32))
    (project / "net.nn").write_text(NET)
    (project / "dslc.lock").write_text("format = 1\n")
    (project / "dslc.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("DSLC_CACHE_DIR", str(theirs))
        assert run(["train"]) == 0
    shutil.rmtree(project / "runs" / "net" / "checkpoints")
    (folder / "mine").mkdir(0o700)
    for entry in theirs.iterdir():
        if not entry.name.startswith(("made-", "build-")):
            shutil.copy2(entry, folder / "mine")
    return folder


@pytest.fixture
def foreign(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose artifact and weights are somebody else's, and a user who has built nothing yet."""
    for name in ("project", "mine"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "mine"))
    return tmp_path / "project"


@pytest.fixture
def planted_ran(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Grows with each marked object that is brought into executable memory."""
    found: list[bytes] = []
    whole = Objects.__init__

    def watched(self: Objects, data: bytes, symbols: object) -> None:
        if data[9:16] == b"PLANTED":
            found.append(data)
        whole(self, data, symbols)  # type: ignore[arg-type]

    monkeypatch.setattr(Objects, "__init__", watched)
    return found


def test_every_command_has_a_case() -> None:
    assert set(CALLS) == set(COMMANDS), "a new command: what does it do in a project that somebody else made?"
    from dslc.cli.app import app

    takes = {name for name in COMMANDS if any(p.name == "trust" for p in app.get_command(None, name).params)}  # type: ignore[arg-type,union-attr]
    # A sweep builds for itself; without a compiler it runs the artifact of the project.
    assert takes == {*RUN, "sweep"}


@pytest.mark.parametrize("command", CALLS)
def test_no_command_runs_foreign_code_unasked(
    dslc: Callable, foreign: Path, planted_ran: list[bytes], command: str
) -> None:
    plant(foreign / "build/net/net.dslc", marked)
    ran = dslc(*CALLS[command])
    assert ran.code == 0 or (command == "tune" and ran.code == 4), ran.err  # 4: there is no GPU
    assert not planted_ran
    told = "because the existing one was not made by one of your builds (--trust runs it anyway)" in ran.err
    assert told == (command in RUN)
    again = dslc(*CALLS[command])
    assert "built" not in again.err, "what was built is known now"
    assert not planted_ran


@pytest.mark.parametrize("command", RUN)
def test_trust_runs_it_and_builds_nothing(
    dslc: Callable, foreign: Path, planted_ran: list[bytes], command: str
) -> None:
    plant(foreign / "build/net/net.dslc", marked)
    before = (foreign / "build/net/net.dslc").read_bytes()
    ran = dslc(*CALLS[command], "--trust")
    assert ran.code == 0, ran.err
    assert planted_ran and "built" not in ran.err
    assert (foreign / "build/net/net.dslc").read_bytes() == before


def test_an_artifact_that_is_named_is_trusted(dslc: Callable, foreign: Path, planted_ran: list[bytes]) -> None:
    plant(foreign / "build/net/net.dslc", marked)
    assert dslc("predict", "data.npz:x", "-o", "y.npy", "--artifact", "build/net").code == 0
    assert len(planted_ran) == 1


def test_what_another_option_built_is_not_taken_as_it_is(
    dslc: Callable, foreign: Path, planted_ran: list[bytes]
) -> None:
    """``predict`` takes what was built last, with any options: of its own user."""
    (foreign / "dslc.yaml").write_text(CONFIG + "build: {fuse: false}\n")
    plant(foreign / "build/net/net.dslc", marked)
    ran = dslc("predict", "data.npz:x", "-o", "y.npy")
    assert ran.code == 0 and "not made by one of your builds" in ran.err and not planted_ran


@pytest.mark.slow
def test_without_a_cache_nothing_is_known(
    dslc: Callable, foreign: Path, planted_ran: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(foreign / "build/net/net.dslc", marked)
    monkeypatch.setenv("DSLC_CACHE_DIR", "off")
    for _ in range(2):
        ran = dslc("eval")
        assert ran.code == 0 and ran.err.count("not known to be yours, because there is no cache") == 1
    assert not planted_ran


def test_a_cache_that_others_can_write_vouches_for_nothing(
    dslc: Callable, foreign: Path, planted_ran: list[bytes], tmp_path: Path
) -> None:
    plant(foreign / "build/net/net.dslc", marked)
    (tmp_path / "mine").chmod(0o777)
    ran = dslc("eval")
    assert ran.code == 0 and not planted_ran
    assert ran.err.count("warning[W002]") == 1 and "because there is no cache" in ran.err


def test_a_register_that_was_forged_by_its_name_alone_is_not_believed(
    dslc: Callable, foreign: Path, planted_ran: list[bytes], tmp_path: Path
) -> None:
    from dslc.base.cache import Cache
    from dslc.base.cache_entry import key_of, name_of

    plant(foreign / "build/net/net.dslc", marked)
    id = read_artifact(foreign / "build/net/net.dslc").id
    (tmp_path / "mine" / name_of("made", key_of("made", (id,)))).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert not known(Cache.open(), id)
    assert dslc("eval").code == 0 and not planted_ran


def test_a_build_is_known_until_the_cache_is_cleared(dslc: Callable, foreign: Path) -> None:
    assert "not made by one of your builds" in dslc("eval").err
    assert dslc("eval").err == ""
    assert dslc("cache", "clear").code == 0
    assert "not made by one of your builds" in dslc("eval").err


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_where_nothing_can_be_built_the_way_out_is_named(dslc: Callable, foreign: Path) -> None:
    (foreign / "build/net").chmod(0o555)
    ran = dslc("eval")
    assert ran.code == 6 and "--trust" in ran.err
    assert dslc("eval", "--trust").code == 0


def test_where_the_build_fails_the_way_out_is_named(
    dslc: Callable, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sealed(*_: object, **__: object) -> None:
        raise ResourceError("R402", "not written: read-only file system", help="make the folder writable")

    monkeypatch.setattr("dslc.base.publish.publish_files", sealed)
    ran = dslc("eval")
    assert ran.code == 6 and "; or run the existing artifact with --trust" in ran.err


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the planted instruction is of x86-64")
def test_planted_machine_code_kills_who_trusts_it_alone(foreign: Path) -> None:
    plant(foreign / "build/net/net.dslc", killing)
    codes = [
        subprocess.run([sys.executable, "-m", "dslc", "train", *more], capture_output=True, timeout=100).returncode
        for more in (["--trust"], [])
    ]
    assert codes == [-signal.SIGILL, 0]


def test_processes_are_started_without_the_working_folder_on_their_path() -> None:
    """``python -m`` looks there first: a file `json.py` of a foreign project would be imported."""
    import dslc

    calls = [
        (file, line)
        for package in dslc.__path__
        for folder, _, names in os.walk(package, followlinks=True)
        for file in (os.path.join(folder, name) for name in names if name.endswith(".py"))
        for line in Path(file).read_text().splitlines()
        if "[sys.executable" in line
    ]
    assert calls and all('[sys.executable, "-P",' in line for _, line in calls), calls
