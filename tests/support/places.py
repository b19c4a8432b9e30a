"""Where the tests find the repository's files, and how a process of its own finds these helpers."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GOLDEN = ROOT / "tests" / "golden"
MODELS = ROOT / "tests" / "models"
REGRESS = ROOT / "tests" / "regress"
SUPPORT = ROOT / "tests" / "support"


def with_support(**more: str) -> dict[str, str]:
    """The environment of a process that imports helpers of tests/support, with ``more`` variables."""
    path = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **more, "PYTHONPATH": os.pathsep.join(path)}
