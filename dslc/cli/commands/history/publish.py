"""``dslc publish``"""

from __future__ import annotations

from typing import Any

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit, note
from dslc.cli.settings import eval_options, read_config


@click.command(cls=Command)
@click.argument("run")
@eval_options
def command(run: str, **flags: Any) -> None:
    """Publish the weights of a run in place of the published ones.

    RUN is the name of a folder in `runs/`. The weights become build/NAME/NAME.safetensors; those published before
    become NAME.previous.safetensors. Of a run that did not end, the best checkpoint (`save.best`) is taken, else the
    newest.
    `dslc train` publishes by itself only if nothing is published yet, or if its weights are better by `save.best` (by
    the loss without it) on the same evaluation data.
    """
    from dslc.cli.compile import artifact_path, project_root
    from dslc.runtime.history.folders import find_run
    from dslc.runtime.history.publication import publish_run

    config = read_config(**flags)
    found = find_run(config.save.dir.parent, run)
    target = artifact_path(config).with_suffix(".safetensors")
    score, done = publish_run(found, target, project_root(config), lambda text: note(f"warning: {text}"))
    kept = f"; the previous ones are in {done.previous.name}" if done.previous is not None else ""
    data = {
        "run": found.name,
        "weights": str(target),
        "previous": None if done.previous is None else str(done.previous),
        "score": None if score is None else score.as_json(),
    }
    of = "" if score is None else f", {score.shown}"
    emit(data, one_line(f"published the weights of run {found.name}{of}: {target}{kept}"))
