"""The identity of evaluation data, so that scores are compared only on the same data.

It covers the names of the sources, the number of rows, the sizes of the files, the contents of each file's first and
last 256 KiB, the names in folders, and the parts of the configuration that decide what the metrics are computed from.
A change in the middle of a large file that keeps its size is not seen: reading all of the data would cost too much.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from dslc.base.opened import Opened
from dslc.runtime.config.config import Config
from dslc.runtime.data.names import format_of
from dslc.runtime.data.source import Source, files
from dslc.runtime.train.setup import Plan

_ENDS: Final = 1 << 18  # bytes
_MOST_NAMES: Final = 20_000  # of a folder


def identity(config: Config, plan: Plan) -> str:
    """SHA-256 of what the metrics are computed from: the evaluation data, else the training data."""
    evaluated = bool(config.data.eval)
    sources = config.data.eval if evaluated else config.data.train
    held_back = config.data.split is not None
    entries = {entry.name: entry.value for entry in config.entries}
    said: dict[str, Any] = {
        "data": "eval" if evaluated else "split" if held_back else "train",
        "rows": (plan.eval or plan.train).rows,
        "split": [config.data.split, config.train.seed] if held_back else None,
        "columns": entries.get("data.columns"),
        "scalars": dict(plan.eval_scalars),
        "sources": {name: contents_of(source) for name, source in sorted(sources.items())},
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def contents_of(source: Source) -> list[Any]:
    """What tells the data of a source apart from other data: of each file its name, its size and digests."""
    found = []
    for file in files(source, lambda text: None, "data"):
        said = format_of(file).contents(file)
        found.append([file.name, file.key, *(_contents(file.path) if said is None else said)])
    return found


def _contents(path: Path) -> list[Any]:
    if path.is_dir():
        return ["folder", *_names(path)]
    digest = hashlib.sha256()
    with Opened() as scope, scope as opened:
        handle = opened.open(path, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode):
            digest.update(os.pread(handle, _ENDS, 0))
            digest.update(os.pread(handle, _ENDS, max(_ENDS, status.st_size - _ENDS)))
    return ["file", status.st_size, digest.hexdigest()]


def _names(folder: Path) -> list[Any]:
    """The number of names walked and their digest."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(place, name), folder) for name in sorted(names)]
        if len(found) > _MOST_NAMES:
            break
    kept = found[:_MOST_NAMES]
    return [len(kept), hashlib.sha256("\n".join(kept).encode(errors="surrogateescape")).hexdigest()]
