"""``dslc eval``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import session_of
from dslc.cli.options import trust_option
from dslc.cli.output import emit, settings
from dslc.cli.settings import eval_options, read_config


@click.command(cls=Command, name="eval")
@eval_options
@click.option("--weights", metavar="FILE", help="Evaluate these weights instead of the published ones.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto.")
@trust_option
def command(weights: str | None, device: str, trust: bool, **flags: Any) -> None:
    """Compute loss and metrics over the evaluation data."""
    from dslc.cli.compile import artifact_of
    from dslc.runtime.train.files import require_data, require_weights
    from dslc.runtime.train.loop import evaluate
    from dslc.runtime.train.progress import numbers

    config = read_config(**flags)
    require_data(config, training=False)
    require_weights(None if weights is None else Path(weights))
    with session_of(artifact_of(config, trust=trust), device=device, weights=weights, use="eval") as session:
        found = evaluate(config, session, console=sys.stderr if settings().json else sys.stdout)
    values = {**({} if found.loss is None else {"loss": found.loss}), **found.metrics}
    emit({"rows": found.rows, "values": values}, one_line(f"{numbers(values)}  ({found.rows} rows)"))
