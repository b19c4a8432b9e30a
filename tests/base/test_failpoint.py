"""Failpoints: off they are nothing; armed they act once, and leave proof."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.base import failpoint
from dslc.base.failpoint import _parse

SCRIPT = """
from dslc.base.failpoint import fail
for _ in range(3):
    try:
        fail("a.b")
    except OSError as error:
        print("raised", error.errno)
print("end")
"""


def run(setting: str | None, log: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("DSLC_FAILPOINT")}
    if setting is not None:
        env["DSLC_FAILPOINT"] = setting
    if log is not None:
        env["DSLC_FAILPOINT_LOG"] = str(log)
    return subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=60)


def test_off_is_an_empty_function(allowed: Callable[[float, float], bool]) -> None:
    assert failpoint.fail is failpoint._off
    start = time.process_time()
    for _ in range(100_000):
        failpoint.fail("x")
    assert allowed(time.process_time() - start, 1.0)
    assert run(None).stdout == "end\n"


def test_the_second_pass_raises_and_stderr_tells() -> None:
    done = run("a.b:2:enospc")
    assert done.stdout == "raised 28\nend\n" and done.stderr == "a.b 2 enospc\n"


def test_several_and_the_log(tmp_path: Path) -> None:
    done = run("a.b:1:eio,c:1:kill,a.b:3:kill", tmp_path / "log")
    assert done.returncode == -9 and done.stderr == ""
    assert (tmp_path / "log").read_text() == "a.b 1 eio\na.b 3 kill\n"


def test_trace(tmp_path: Path) -> None:
    assert run("trace", tmp_path / "log").returncode == 0
    assert (tmp_path / "log").read_text() == "a.b 1 trace\na.b 2 trace\na.b 3 trace\n"


def test_hang(tmp_path: Path) -> None:
    env = dict(os.environ, DSLC_FAILPOINT="a.b:1:hang", DSLC_FAILPOINT_LOG=str(tmp_path / "log"))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], env=env)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "log").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        assert process.poll() is None and (tmp_path / "log").exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("text", ["x", "x:0:kill", "x:1:burn", ":1:kill", "x:-1:kill", "x:1:kill,", "x:²:kill"])
def test_a_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME:N:ACTION"):
        _parse(text)
    assert run(text).returncode != 0
