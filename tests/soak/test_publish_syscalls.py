"""Every system call of a publication, killed and failed by strace: nothing that our own code could forget to name.

Where there is no strace, or no leave to trace, the failpoints of tests/base/test_publish.py remain.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from places import SUPPORT

SCRIPT = str(SUPPORT / "interruption" / "publishing.py")
NAMES = ("__init__.py", "__init__.pyi", "net.dslc")
TEMP = re.compile(r"\.dslc-[0-9a-f]{16}\.tmp")
CALL = re.compile(r"(?:\d+ +)?(\w+)\(")
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS")

pytestmark = [
    pytest.mark.skipif(os.environ.get("DSLC_SOAK") != "1", reason="soak only (DSLC_SOAK=1)"),
    pytest.mark.skipif(shutil.which("strace") is None, reason="no strace"),
    pytest.mark.timeout(1800),
]


def content(tag: str) -> bytes:
    return (tag * 50_000).encode()


def prepared(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(content("old"))
    return folder


def strace(kind: str, folder: Path, log: Path, *options: str) -> int:
    log.unlink(missing_ok=True)
    env = dict(os.environ, PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    command = ["strace", "-f", "-qq", "-o", str(log), *options, sys.executable, SCRIPT, kind, str(folder), "new"]
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode


def calls(kind: str, tmp_path: Path) -> list[tuple[str, int]]:
    """The system calls from the first that touches the folder: (name, how many of this name so far)."""
    folder, log = prepared(tmp_path / "out"), tmp_path / "strace.log"
    if strace(kind, folder, log) != 0:
        pytest.skip("strace may not trace here")
    seen: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    reached = False
    for line in log.read_text(errors="replace").splitlines():
        match = CALL.match(line)
        if match is None or match[1] in ("execve", "exit_group", "exit"):
            continue
        seen[match[1]] += 1
        reached = reached or (match[1] == "openat" and f'"{folder}' in line)
        if reached:
            found.append((match[1], seen[match[1]]))
    return found


def sweep(kind: str, tmp_path: Path, how: str) -> tuple[int, list[str]]:
    """(faults proven to have fired, what was broken)."""
    fired, broken, log = 0, [], tmp_path / "strace.log"
    for name, number in calls(kind, tmp_path):
        folder = prepared(tmp_path / "out")
        code = strace(kind, folder, log, "-e", f"inject={name}:{how}:when={number}")
        text = log.read_text(errors="replace")
        if "killed by SIGKILL" not in text and "(INJECTED)" not in text:
            continue
        fired += 1
        where = f"{name} {number} {how}"
        now = (folder / "net.dslc").read_bytes()
        if now not in (content("old"), content("new")):
            broken.append(f"{where}: neither old nor new")
            continue
        if code == 0 and now != content("new"):
            broken.append(f"{where}: said nothing, wrote nothing")
        subprocess.run([sys.executable, SCRIPT, kind, str(folder), "new"], check=True)
        if any(TEMP.fullmatch(n) for n in os.listdir(folder)) or len(os.listdir(folder)) != 3:
            broken.append(f"{where}: the next run did not clear up: {os.listdir(folder)}")
    return fired, broken


@pytest.mark.parametrize("kind", ["one", "many"])
def test_killed_at_every_system_call(kind: str, tmp_path: Path) -> None:
    fired, broken = sweep(kind, tmp_path, "signal=SIGKILL")
    print(f"{kind}: {fired} kills")
    assert fired >= 20 and not broken, broken


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_at_every_system_call(error: str, tmp_path: Path) -> None:
    fired, broken = sweep("many", tmp_path, f"error={error}")
    print(f"{error}: {fired} faults")
    assert fired >= 40 and not broken, broken


def test_the_sweep_can_fail(tmp_path: Path) -> None:
    """Control: a writer that goes straight to the final name is caught."""
    fired, broken = sweep("naive", tmp_path, "signal=SIGKILL")
    assert fired >= 3 and any("neither old nor new" in b for b in broken)
