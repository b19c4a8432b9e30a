"""A sweep over the fake session, in a process of its own, whose trials are processes of their own.

fake_sweep.py FOLDER [--jobs N] [--allow-changes] [--retry] [--slow]   runs the sweep of FOLDER/dslc.yaml
fake_sweep.py --trial                                                  is one trial

tests/support is on the path of the process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.fake_session import FakeSession

from dslc.base.errors import DslcError
from dslc.runtime.config.config import Config
from dslc.runtime.config.load import config_source
from dslc.runtime.sweep.plan import plan_sweep
from dslc.runtime.sweep.pool import places
from dslc.runtime.sweep.resume import choose_folder
from dslc.runtime.sweep.state import Entry
from dslc.runtime.sweep.sweep import run_sweep
from dslc.runtime.sweep.trial import main as trial_main
from dslc.runtime.sweep.trial import task_of

#: Three trials of two epochs; the second learning rate is too high for 32-bit floats.
SPACE = "sweep: {space: {train.lr: [0.1, 1e30, 0.5]}}\n"
YAML = """\
model: toy.nn
data:
  train: {x: toy.npz:x, label: toy.npz:y}
  eval: {x: toy.npz:tx, label: toy.npz:ty}
train: {epochs: 2, seed: 3}
save: {every: 2 steps, best: accuracy}
"""


@contextmanager
def open_session(config: Config, task: Mapping[str, Any]) -> Iterator[FakeSession]:
    session = FakeSession(config.train.seed)
    if task["slow"]:
        folder = Path(task["folder"])

        def pause(step: int) -> None:
            (folder / f"at-{step}").touch()
            time.sleep(0.2)

        session.after_step = pause
    yield session


class Lines:
    def line(self, text: str) -> None:
        print(text, flush=True)

    def ended(self, entry: Entry, done: int, total: int) -> None:
        print(f"{done}/{total} {entry.folder} {entry.state} {os.environ.get('DSLC_FAILPOINT', '')}", flush=True)

    def progress(self, done: float, running: int, total: int) -> None:
        assert 0 <= done <= total and running >= 0


def main() -> int:
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    source = config_source(folder / "dslc.yaml")
    jobs = int(options[options.index("--jobs") + 1]) if "--jobs" in options else 1
    try:
        plan = plan_sweep(source)
        chosen = choose_folder(plan, "sweep", fresh="--fresh" in options)
        result = run_sweep(
            plan,
            chosen,
            "s" * 64,
            (sys.executable, __file__, "--trial"),
            places("cpu", jobs, 2, 0),
            lambda trial, changed, place: {**task_of(source, {}, changed, trial, place), "slow": "--slow" in options},
            Lines(),
            allow_changes="--allow-changes" in options,
            retry="--retry" in options,
        )
    except DslcError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    return result.exit_code


if __name__ == "__main__":
    if sys.argv[1] == "--trial":
        trial_main(open_session)
    else:
        raise SystemExit(main())
