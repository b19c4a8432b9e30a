from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import SUPPORT, with_support
from sweeping.fake_sweep import SPACE, YAML
from training.fake_session import write_data

FAKE = SUPPORT / "sweeping" / "fake_sweep.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with dslc.yaml, its sweep, and its data."""
    return made(tmp_path / "project")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose sweep nothing disturbed."""
    folder = made(tmp_path_factory.mktemp("whole") / "project")
    done = run_it(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def sweep() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``sweep(folder, "--jobs", "2", fault="sweep.rename:1:kill")`` runs a sweep to its end."""
    return run_it


@pytest.fixture
def begun() -> Callable[..., subprocess.Popen[str]]:
    """``begun(folder, "--slow")`` starts a sweep."""

    def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(folder, *options), env=with_support(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return begin


def made(folder: Path) -> Path:
    folder.mkdir()
    (folder / "dslc.yaml").write_text(YAML + SPACE)
    write_data(folder)
    return folder


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, str(FAKE), str(folder), *options]


def run_it(folder: Path, *options: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in with_support().items() if not k.startswith("DSLC_FAILPOINT")}
    if fault:
        env |= {"DSLC_FAILPOINT": fault, "DSLC_FAILPOINT_LOG": str(folder / "fired")}
    return subprocess.run(command(folder, *options), capture_output=True, text=True, env=env, timeout=100)
