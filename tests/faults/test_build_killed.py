"""``dslc build`` killed at every point of its publication: the old or the new artifact, whole; the next build works."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from places import MODELS

from dslc.runtime.artifact.file import Artifact, read_artifact

pytestmark = pytest.mark.slow

MODEL = MODELS / "lenet.nn"
WEIGHTS = b"the user's weights"


def build(tmp_path: Path, size: int, failpoint: str = "") -> int:
    cache = Path(tempfile.mkdtemp(dir=tmp_path))  # of its own: from one that has the build no pass would run
    env = dict(
        os.environ, DSLC_FAILPOINT=failpoint, DSLC_FAILPOINT_LOG=str(tmp_path / "log"), DSLC_CACHE_DIR=str(cache)
    )
    (tmp_path / "log").unlink(missing_ok=True)
    flags = ["-o", str(tmp_path / "build"), "--size", f"B={size}", "--providers", "reference"]
    command = [sys.executable, "-m", "dslc", "build", str(MODEL), *flags]
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode


def verified(folder: Path) -> Artifact:
    artifact = read_artifact(folder / "lenet.dslc")
    artifact.verify()
    return artifact


@pytest.mark.timeout(400)
def test_killed_at_every_point(tmp_path: Path, fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    """At a third of the points, which the seed draws; at all with DSLC_SOAK=1."""
    folder = tmp_path / "build" / "lenet"
    assert build(tmp_path, 8) == 0
    (folder / "lenet.safetensors").write_bytes(WEIGHTS)
    old = verified(folder).id
    shutil.copytree(folder, tmp_path / "old")
    assert build(tmp_path, 4, "trace") == 0
    new = verified(folder).id
    points = [line.split()[:2] for line in (tmp_path / "log").read_text().splitlines()]
    assert new != old and len(points) >= 10
    drawn = random.Random(fuzz_seed).sample(points, fuzz_count(len(points), 3))
    for name, number in drawn:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "old", folder)
        assert build(tmp_path, 4, f"{name}:{number}:kill") == -9
        assert (tmp_path / "log").read_text() == f"{name} {number} kill\n"  # it fired
        committed = name in ("publish.renamed", "publish.dirsync", "publish.sweep")
        assert verified(folder).id == (new if committed else old), (name, number)
        assert (folder / "lenet.safetensors").read_bytes() == WEIGHTS
    # After the last of them, and after one that left temps and a lock file behind.
    for point in ("publish.sweep:1:kill", "publish.rename:2:kill"):
        assert build(tmp_path, 8, point) == -9
        assert build(tmp_path, 4) == 0
        assert verified(folder).id == new
        assert not [n for n in os.listdir(folder) if n.startswith(".dslc")]
