"""Loads vendor libraries in a thread, while the driver makes its context: each takes about a tenth of a second."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries.registry import LIBRARIES

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact


def preload(artifact: Artifact) -> threading.Thread | None:
    """Start to load the libraries that the artifact's plans call; None if they call none. A library that cannot be
    loaded is reported by the call that needs it, which loads it again."""
    plans = [bytes(artifact.blob(name)) for name in artifact.blobs("plan")]
    named = [name for name in LIBRARIES if any(name.encode() in plan for plan in plans)]  # a plan has names as text
    if not named:
        return None
    thread = threading.Thread(target=_load, args=(named,), name="dslc-libraries")
    thread.start()
    return thread


def _load(names: list[str]) -> None:
    try:
        for name in names:
            LIBRARIES[name]().installed()
    except EnvironmentFault:
        return  # the session opens the library, too, and raises this again
