"""The threads of native kernels after a fork: a child has none of its parent's, and makes its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHILD = """
import os, sys, threading
from contextlib import ExitStack
from dslc.runtime.cpu import native
held = sys.argv[1]
mine = None
if held != "none":
    mine = native.team()
    mine._start()
    assert [t.name for t in threading.enumerate() if t.name.startswith("dslc-")] == ["dslc-1", "dslc-2"]
kept = ExitStack()
if held == "busy":  # another thread runs kernels while this one forks
    assert kept.enter_context(kept.enter_context(mine._busy.hold_now()))
pid = os.fork()
if pid == 0:
    own = native.team()
    with own._busy.hold_now() as scope, scope as free:
        own._start()
    names = [t.name for t in threading.enumerate() if t.name.startswith("dslc-")]
    print(own is not mine, free, own.threads, *names, flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status, mine is None or native.team() is mine)
"""


#: Python from 3.12 on warns of any fork while there are threads.
FORKS = "ignore:This process:DeprecationWarning"


@pytest.mark.parametrize("held", ["none", "idle", "busy"])
def test_a_forked_child_has_a_team_of_its_own(held: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", FORKS, "-c", CHILD, held], env={**os.environ, "DSLC_THREADS": "3"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True 3 dslc-1 dslc-2", "0 True"]
