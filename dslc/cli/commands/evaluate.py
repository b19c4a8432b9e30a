"""``dslc eval``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dslc.base.version import has_compiler
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import require_weights_of, session_of
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
    from dslc.cli.artifacts import notes_before_build, require_published
    from dslc.cli.compile import artifact_of, check_config, foreseen
    from dslc.runtime.data.columns.fitted import Fitted
    from dslc.runtime.predict.units import units_of
    from dslc.runtime.train.files import require_data, require_weights
    from dslc.runtime.train.loop import evaluate
    from dslc.runtime.train.progress import numbers, reporter
    from dslc.runtime.train.setup import open_eval

    config = read_config(**flags)
    require_data(config, training=False)
    require_weights(None if weights is None else Path(weights))
    console = sys.stderr if settings().json else sys.stdout
    checked = check_config(config) if has_compiler() else None
    data = None
    if checked is not None:  # bad data is refused before the build
        model = foreseen(config, checked)
        notes = notes_before_build(config, checked, weights)
        if notes is not None or not config.data.columns:  # without the weights it is unknown what was fitted
            data = open_eval(config, model, notes or {}, reporter(console).line)
        require_published(checked, notes, weights, model.name)
    artifact = artifact_of(config, trust=trust, checked=checked, device=device)
    with session_of(artifact, device=device, weights=weights, use="eval") as session:
        require_weights_of(session, session.interface.name)
        if data is None:
            data = open_eval(config, session, session.weights.notes, reporter(console).line)
        found = evaluate(config, session, console, data)
        units = units_of(session.interface, Fitted.of_notes(session.weights.notes, "the weights") or Fitted())
    errors = {}
    if units.names:
        from dslc.runtime.predict.regression import errors_of

        with session_of(artifact, device=device, weights=weights, use="predict") as session:
            found_errors = errors_of(session, data, units, config.data.workers)
        errors = {name: each.values() for name, each in found_errors.items()}
    values = {**({} if found.loss is None else {"loss": found.loss}), **found.metrics}
    lines = [one_line(f"{numbers(values)}  ({found.rows} rows)"), *(_line(*each) for each in errors.items())]
    emit({"rows": found.rows, "values": values, **({"units": errors} if errors else {})}, "\n".join(lines))


def _line(name: str, values: dict[str, float | None]) -> str:
    listed = "  ".join(f"{key} {value:.6g}" for key, value in values.items() if value is not None)
    return one_line(f"{name}, in the units of the data: {listed}")
