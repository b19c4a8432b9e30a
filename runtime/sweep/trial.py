"""The process of one trial: reads its task as one line of JSON on stdin, trains, and answers one line on stdout.

It ends when its stdin is closed, as by SIGTERM: it finishes the step, saves a checkpoint, and its sweep goes on from
there later. So no trial outlives a sweep that was killed for long, and none is lost.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias

from dslc.base.errors import EXIT_OK, EXIT_SIGTERM, ArtifactError, DslcError, ResourceError
from dslc.base.filelock import FileLock
from dslc.base.within import require_within
from dslc.runtime.config.config import Config
from dslc.runtime.config.load import ConfigSource, config_source
from dslc.runtime.config.values import wrapped
from dslc.runtime.config.yaml import plain
from dslc.runtime.history.score import score_of
from dslc.runtime.sweep.output import output_of
from dslc.runtime.sweep.plan import Trial
from dslc.runtime.sweep.state import Result
from dslc.runtime.train.checkpoint import CheckpointStore
from dslc.runtime.train.loop import train
from dslc.runtime.train.rundir import LOCK_NAME
from dslc.runtime.train.trainable import Trainable

#: Opens the session of a trial: ``open(config, task)``; ``task["session"]`` holds what the caller of the sweep gave.
Opener: TypeAlias = Callable[[Config, Mapping[str, Any]], AbstractContextManager[Trainable]]

_PATIENCE: Final = 60.0  # seconds for the process of a killed sweep to save and end


def task_of(
    source: ConfigSource, flags: Mapping[str, object], changed: Mapping[str, Any], trial: Trial, folder: Path
) -> dict[str, Any]:
    """The task of a trial as data. ``flags``: those of the sweep, without its own section; ``changed``: the fields that
    the trial sets, as values; ``folder``: of its run."""
    return {
        "file": None if source.file is None else str(source.file),
        "text": source.text.decode(errors="surrogateescape"),
        "flags": {name: value for name, value in flags.items() if value is not None},
        "changed": {name: [plain(value), str(value.mark)] for name, value in changed.items()},
        "training": trial.config.training_values(),
        "folder": str(folder),
        "chosen": "save.dir" in source.given,
    }


def main(open_session: Opener, fault: Callable[[BaseException], DslcError | None] = lambda error: None) -> None:
    """Run one trial. ``fault``: the coded error for an exception of the system, such as no memory; None for a bug."""
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep decides what an interrupt means
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return
    threading.Thread(target=_watch, daemon=True).start()
    try:
        answer = _trained(json.loads(line), open_session)
    except DslcError as error:
        answer = _failed(error)
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        coded = fault(error)
        if coded is None:
            raise
        answer = _failed(coded)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the result is known: closing stdin must not end it otherwise
    print(json.dumps(answer), flush=True)


def _failed(error: DslcError) -> dict[str, Any]:
    return {"failed": f"{error.code}: {error.message}"[:1000], "code": error.code}


def _watch() -> None:
    """Ends this process as SIGTERM does when stdin is closed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(EXIT_SIGTERM)


def config_of(task: Mapping[str, Any]) -> Config:
    """The configuration of a trial. ArtifactError R307 if a variable or a flag means something else in this process."""
    path = task["file"]
    text = task["text"].encode(errors="surrogateescape")
    changed = {name: wrapped(value, origin) for name, (value, origin) in task["changed"].items()}
    flags = dict(task["flags"])
    if task["chosen"]:  # a flag wins over the file, and so does the folder of the run
        flags["save.dir"] = task["folder"]
    else:
        changed["save.dir"] = wrapped(task["folder"], "the sweep")
    config = config_source(path, flags, os.environ, text).config(changed)
    if json.loads(json.dumps(config.training_values())) != task["training"]:
        raise ArtifactError("R307", "the configuration differs from that of the sweep", place=str(path))
    return config


def _trained(task: Mapping[str, Any], open_session: Opener) -> dict[str, Any]:
    config = config_of(task)
    folder = config.save.dir
    if config.save.root is not None:
        require_within(folder, config.save.root, "remove the link")
    folder.mkdir(parents=True, exist_ok=True)
    _await(folder)
    resume = folder.name if CheckpointStore(folder, config.save.keep).steps() else False
    with output_of(folder) as console, open_session(config, task) as session:
        done = train(config, session, None, resume=resume, console=console)
    if done.exit_code != EXIT_OK or done.weights is None:
        return {"stopped": True}
    score = score_of(done.weights)
    if score is None:
        raise ArtifactError("R306", "the weights of the trial have no score", place=str(done.weights))
    value = math.nan if score.value is None else score.value
    return {"finished": Result(score.metric, value, score.step, score.data, done.metrics).as_json()}


def _await(folder: Path) -> None:
    """Wait until no other process trains in this folder: that of a killed sweep may still save."""
    lock = FileLock(folder / LOCK_NAME, what="training")
    try:
        taken = lock.acquire(_PATIENCE)
    except OSError as error:
        raise ResourceError("R402", f"no lock can be taken: {error.strerror}", place=str(folder)) from error
    if taken:
        lock.release()
