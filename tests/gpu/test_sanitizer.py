"""compute-sanitizer over the kernels of the samples finds nothing, and over kernels with a planted mistake finds it.

Every DSLC_GPU_EVERY-th case (default 20); memory of outputs and scratch is left as it was allocated.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from places import ROOT, with_support
from real_gpu.kernel_store import STORE
from real_gpu.launcher import why_not
from real_gpu.planted import TEXTS

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(SANITIZER is None, reason="no compute-sanitizer"),
    pytest.mark.skipif(not (STORE / "kernels/index.json").exists(), reason="no .gpu/kernels: make gpu-artifacts"),
]


def sanitized(tool: str, *command: str) -> subprocess.CompletedProcess[str]:
    assert SANITIZER is not None
    of_this_run = ("PYTEST_XDIST", "PYTEST_CURRENT")
    outer = {name: value for name, value in with_support().items() if not name.startswith(of_this_run)}
    environment = {"DSLC_GPU_EVERY": "20", **outer, "DSLC_GPU_RAW": "1"}
    # what a call of the driver refuses is the launcher's to judge, which asks for a parameter too many on purpose
    more = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return subprocess.run(
        [SANITIZER, "--tool", tool, *more, "--error-exitcode", "99", sys.executable, *command],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("tool", TEXTS)
def test_a_planted_mistake_is_reported(tool: str) -> None:
    done = sanitized(tool, "-m", "real_gpu.planted", tool)
    assert done.returncode == 99, done.stdout[-2000:]
    assert f"planted_{tool}" in done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", TEXTS)
def test_the_kernels_of_the_samples_are_clean(tool: str) -> None:
    done = sanitized(tool, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests/gpu/test_gpu_kernels.py"))
    assert done.returncode == 0, done.stdout[-6000:]
    assert "0 errors" in done.stdout or "0 hazards" in done.stdout
    assert " passed" in done.stdout or "100%" in done.stdout
