"""A project's own files stay in the project: no link below ``build/`` or ``runs/`` leads out of it.

A project may be somebody else's, and hold a link where a build or a training writes. Folders that the command line
names are the user's own choice, and are not looked at. Nothing here guards against a process that changes the project
at the same time: who can do that can write there anyway.
"""

from __future__ import annotations

import os
from pathlib import Path

from dslc.base.errors import ResourceError


def leads_out(path: Path, root: Path) -> Path | None:
    """The place that ``path`` comes to through its links, if it is not below ``root``; else None."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return None if os.path.commonpath([real, base]) == base else Path(real)


def require_within(path: Path, root: Path, help: str) -> None:
    """Raise ResourceError R403 for a path that leads out of ``root``; it need not exist."""
    found = leads_out(path, root)
    if found is not None:
        raise ResourceError("R403", f"it leads out of the project, to {found}", place=str(path), help=help)
