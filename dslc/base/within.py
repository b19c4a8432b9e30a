"""Keeps a project's own files inside the project: no link below ``build/`` or ``runs/`` may lead out of it.

A project may come from somebody else and contain a link where a build or a training run writes. Folders named on the
command line are the user's own choice and are not checked. This does not protect against a process that changes the
project at the same time: such a process could write there directly.
"""

from __future__ import annotations

import os
from pathlib import Path

from dslc.base.errors import ResourceError


def leads_out(path: Path, root: Path) -> Path | None:
    """The target of ``path`` after its links are resolved, if it is not below ``root``; else None."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return None if os.path.commonpath([real, base]) == base else Path(real)


def require_within(path: Path, root: Path, help: str) -> None:
    """Raise ResourceError R403 if ``path`` leads out of ``root``; the path need not exist."""
    found = leads_out(path, root)
    if found is not None:
        raise ResourceError("R403", f"it leads out of the project, to {found}", place=str(path), help=help)
