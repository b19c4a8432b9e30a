"""Builds the wheels of both distributions as an installer does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import ROOT

FLOORS = ("dsl", "compiler", "runtime")
COPIED = ("dslc", *FLOORS, "wheels", "pyproject.toml", "README.md", "LICENSE")
FOLDERS = {"dslc": ".", "dslc_runtime": "wheels"}  # in which each distribution is built


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [n for n in listed.stdout.decode().split("\0") if n.split("/")[0] in COPIED and (ROOT / n).exists()]


def copied(folder: Path) -> Path:
    """A clean copy of what git knows."""
    packed = subprocess.run(["tar", "-cf", "-", *tracked()], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xf", "-"], cwd=folder, input=packed, check=True)
    return folder


def built(source: Path, out: Path, *, release: str = "true", **environment: str) -> dict[str, bytes]:
    """Both wheels, built as an installer builds them: the working folder says which."""
    code = "import dslc_wheels, sys; dslc_wheels.build_wheel(sys.argv[1], {'release': sys.argv[2]})"
    for folder in FOLDERS.values():
        environment |= {"PYTHONPATH": str(source / "wheels"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(
            [sys.executable, "-c", code, str(out), release],
            cwd=source / folder,
            env={**os.environ, **environment},
            check=True,
        )
    return {path.name.split("-")[0]: path.read_bytes() for path in sorted(out.iterdir())}
