"""Every command where the system lacks something: success or an error with a code, no traceback, no bug, no hang."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile.invocations import CALLS, LACKS, Ended, closed, limited, ran, without_folder

from dslc.base.errors import CODES, exit_code
from dslc.cli import surroundings
from dslc.cli.table import COMMANDS

pytestmark = pytest.mark.slow

_CODE = re.compile(r"error\[([A-Z][0-9]+)\]")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose model is built and trained."""
    folder = tmp_path_factory.mktemp("project")
    assert ran(["new", "spam"], folder).code == 0
    for args in (["build", "spam.nn"], ["train", "--epochs", "1"]):
        ended = ran(args, folder / "spam")
        assert ended.code == 0, ended.err
    shutil.copy(next((folder / "spam").rglob("*.safetensors")), folder / "spam/w.safetensors")
    (folder / "spam/dslc.lock").write_text("format = 1\n")
    np.save(folder / "spam/point.npy", np.zeros((4, 2), np.float32))
    return folder / "spam"


def documented(ended: Ended, *, said: bool = True) -> bool:
    """Whether a process ended in success or with an error whose code goes with its exit code."""
    text = ended.err.decode()
    if "Traceback" in text or "Exception ignored" in text or "internal error" in text:
        return False
    if ended.code == 0:
        return True
    codes = [found[1] for found in _CODE.finditer(text)]
    return any(exit_code(code) == ended.code for code in codes) or not (said or codes)


def test_each_command_has_a_call_that_succeeds(project: Path, tmp_path: Path) -> None:
    assert CALLS.keys() == COMMANDS.keys()
    for name, args in CALLS.items():
        folder = tmp_path / name
        shutil.copytree(project, folder)
        ended = ran(args, folder, input=(folder / "spam.nn").read_bytes())
        if name == "tune":
            assert ended.code in (0, 4) and documented(ended), ended  # 4: there is no GPU
        else:
            assert ended.code == (4 if name == "warm" else 0), (name, ended.err)  # no GPU, or an artifact for the CPU


@pytest.fixture
def some(fuzz_count: Callable[[int], int]) -> Callable[[int], list[str]]:
    """``some(n)``: all commands when DSLC_SOAK=1, else each fourth, from another one on for another n."""
    every = 1 if fuzz_count(10) == 10 else 4
    return lambda first: [name for at, name in enumerate(CALLS) if at % every == first % every]


@pytest.mark.parametrize("lack", LACKS)
def test_every_command_bears_what_is_missing(
    lack: str, project: Path, tmp_path: Path, some: Callable[[int], list[str]]
) -> None:
    refused = 0
    for name in {*some(list(LACKS).index(lack)), "weights", "explain", "check", "bench"}:  # bench needs the most memory
        args = CALLS[name]
        folder = tmp_path / name
        shutil.copytree(project, folder)
        ended = ran(args, folder, before=LACKS[lack], input=(folder / "spam.nn").read_bytes())
        assert documented(ended, said=lack not in ("stderr", "all three", "room on stderr")), (lack, name, ended)
        refused += ended.code != 0
        shutil.rmtree(folder)
    assert (
        refused > 0
        or lack in ("stdin", "stderr", "room on stderr", "files of more than 100 bytes")
        or "open files" in lack
    )


def test_what_is_printed_is_never_lost_in_silence(project: Path) -> None:
    for before in (LACKS["room on stdout"], closed(1)):
        for args in (["explain", "E0301"], ["--help"], ["--version"], ["ops", "--json"]):
            ended = ran(args, project, before=before)
            assert ended.code == 6 and b"error[R402]" in ended.err and b"--> stdout" in ended.err, ended
    # A refusal keeps its exit code, though it cannot be told; with --json it stands on stdout, else on stderr.
    assert ran(["explain", "E9999", "--json"], project, before=closed(1)).code == 2
    assert ran(["weights", "list", "none"], project, before=closed(2)).code == 5
    assert ran(["weights", "list", "none"], project, before=LACKS["room on stderr"]).code == 5
    assert ran(["weights", "list", "none", "--json"], project, before=LACKS["room on stdout"]).code == 5


def test_no_file_gets_the_number_of_a_closed_stream(project: Path, tmp_path: Path) -> None:
    """Else what a command prints would stand in the file that it writes."""
    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    ended = ran(["predict", "point.npy", "-o", "out.npy"], folder, before=closed(0, 1, 2))
    assert ended.code == 6  # "wrote out.npy" has no reader
    assert np.load(folder / "out.npy").shape == (4, 3)


def test_a_missing_folder_is_named(project: Path) -> None:
    ended = ran(["new", "x"], project, before=without_folder)
    assert ended.code in (4, 6) and ended.code == exit_code(_CODE.findall(ended.err.decode())[0])


@pytest.mark.parametrize("part", range(4))
def test_names_that_are_no_text_are_refused_or_printed(
    part: int, project: Path, tmp_path: Path, some: Callable[[int], list[str]]
) -> None:
    """An argument may hold any byte but zero; a file's name, too."""
    strange = os.fsdecode(b"\xff\xed\xa0\x80x")
    folder = tmp_path / "p"
    shutil.copytree(project, folder)
    for name in some(part):
        args = CALLS[name]
        calls = [[*args[:at], strange, *args[at + 1 :]] for at in range(1, len(args) + 1)]
        calls += [[*args, option, strange] for option in ("-o", "--size", "-D", "--weights", "--artifact", "--target")]
        for given in calls[part % 2 :: 2] if len(some(0)) < len(CALLS) else calls:
            ended = ran(given, folder, input=b"nn 1\n")
            assert documented(ended) or ended.code == 2, (name, given, ended)


def test_what_the_system_refuses_has_a_code() -> None:
    def wrapped(inner: BaseException) -> Exception:
        outer = ValueError("while something else was done")
        outer.__context__ = inner
        return outer

    for error, code in (
        (MemoryError(), "R401"),
        (OSError(errno.ENOMEM, "no memory"), "R401"),
        (ImportError("libx.so: failed to map segment from shared object"), "R401"),
        (wrapped(MemoryError()), "R401"),
        (OSError(errno.ENOSPC, "no space", "f"), "R402"),
        (OSError(errno.EFBIG, "too large", b"\xff"), "R402"),
        (OSError(errno.EMFILE, "too many"), "R209"),
        (OSError(errno.EAGAIN, "no more processes"), "R209"),
        (RuntimeError("can't start new thread"), "R209"),
        (ImportError("no module"), "R209"),
    ):
        found = surroundings.fault(error)
        assert found is not None and found.code == code in CODES and found.help, error
    for bug in (ValueError(), RuntimeError("another"), KeyError("x"), AssertionError()):
        assert surroundings.fault(bug) is None


def test_before_the_frame_is_loaded(project: Path) -> None:
    """An import that fails for lack of files is told by the entry point."""
    text = (
        "import sys, resource\nfrom dslc.cli import main\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nmain()\n"
    )
    ended = subprocess.run([sys.executable, "-c", text, "ops"], capture_output=True, text=True, cwd=project)
    assert ended.returncode == 4 and ended.stderr.startswith("error[R209]"), ended
    assert "Traceback" not in ended.stderr


def test_the_check_can_fail(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not documented(Ended(70, b"", b"internal error: x", 0, 0))
    assert not documented(Ended(1, b"", b"OpenBLAS error", 0, 0))
    assert not documented(Ended(-11, b"", b"", 0, 0))
    assert not documented(Ended(5, b"", b"error[R402]: x", 0, 0))
    assert documented(Ended(6, b"", b"error[R402]: x", 0, 0))


def test_json_is_whole_where_a_process_is_limited(project: Path) -> None:
    before: Callable[[], None] = limited(__import__("resource").RLIMIT_AS, 100 << 20)
    ended = ran(["config", "--json"], project, before=before)
    assert json.loads(ended.out)["exit_code"] == ended.code == 6
