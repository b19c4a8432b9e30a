"""The name of an artifact: an identifier that does not hide one of Python's own modules."""

from __future__ import annotations

import re
from pathlib import Path

from dslc.compiler.artifact.package import check_artifact_name
from dslc.compiler.check.model import Checked


def artifact_name(checked: Checked, wanted: str | None) -> str:
    """``wanted``; else the file's stem if it contains one model, else the model's name in lower case. E0604."""
    if wanted is not None:
        name = wanted
    else:
        models = sum(1 for item in checked.module.file.items if getattr(item, "kind", None) == "model")
        stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(checked.module.source.path).stem)
        name = stem if models == 1 else checked.name.lower()
    check_artifact_name(name)
    return name
