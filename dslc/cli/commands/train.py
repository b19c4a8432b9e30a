"""``dslc train``"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.app import Command
from dslc.cli.output import emit, note, settings
from dslc.cli.progress import build_progress
from dslc.cli.settings import config_options, read_config

if TYPE_CHECKING:
    from dslc.runtime.train.loop import TrainResult


@click.command(cls=Command)
@config_options
@click.option("--weights", metavar="FILE", help="Start from these weights, not from initial ones.")
@click.option("--resume", is_flag=True, help="Go on from the newest sound checkpoint of the run.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu or auto.")
def command(weights: str | None, resume: bool, device: str, **flags: Any) -> int:
    """Train the model of ./dslc.yaml, building it where stale.

    Ctrl-C finishes the step, saves a checkpoint and exits with 130; `dslc train --resume` goes on. The weights are
    published as build/NAME/NAME.safetensors.
    """
    from dslc.cli.compile import build_config
    from dslc.face import load
    from dslc.runtime.train.loop import train

    if weights is not None and resume:
        raise click.UsageError("--weights and --resume exclude each other: a checkpoint has its weights")
    config = read_config(**flags)
    with build_progress() as progress:
        path, built = build_config(config, progress)
    if built is not None:
        note(f"built {path} in {built.seconds:.2f} s")
    with load(path, device=device, weights=weights or "init", seed=config.train.seed) as session:
        # With --json, stdout holds the result alone.
        console = sys.stderr if settings().json else sys.stdout
        result = train(config, session, path.parent, resume=resume, console=console)
    emit(_data(result), _text(result))
    return result.exit_code


def _text(result: TrainResult) -> str:
    if result.weights is None:
        return f"stopped after {result.steps} steps; `dslc train --resume` goes on from {result.checkpoint}"
    from dslc.runtime.train.progress import numbers

    return f"{result.steps} steps; {numbers(result.metrics) or 'not evaluated'}; weights in {result.weights}"


def _data(result: TrainResult) -> dict[str, Any]:
    return {
        "steps": result.steps,
        "metrics": dict(result.metrics),
        "run": str(result.run_dir),
        "checkpoint": None if result.checkpoint is None else str(result.checkpoint),
        "weights": None if result.weights is None else str(result.weights),
        "exit_code": result.exit_code,
    }
