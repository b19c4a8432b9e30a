"""``dslc predict``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import artifact_to_run, require_weights_of, session_of
from dslc.cli.options import trust_option
from dslc.cli.output import emit, say

if TYPE_CHECKING:
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.config.config import Config

_UNCLEAR = (
    "the target `{0}` is scaled, and it is not clear which result predicts it: results stay scaled. "
    "Name the result `{0}`, or use session.data.decode"
)


@click.command(cls=Command)
@click.argument("inputs", nargs=-1, metavar="[[NAME=]SOURCE...]")
@click.option(
    "-o", "out", required=True, metavar="FILE", help="Output: .csv, .jsonl, .parquet, .npz, or .npy for one result."
)
@click.option("--artifact", metavar="PATH", help="A .dslc file or its folder; default: the artifact of ./dslc.yaml.")
@click.option("--weights", metavar="FILE", help="Use these weights instead of the published ones.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto.")
@click.option(
    "--workers", type=click.IntRange(0, 256), default=0, metavar="N", help="Processes that read ahead; default: 0."
)
@click.option("--rows", "names", metavar="SOURCE", help="Names of the rows: a column of a table, such as new.csv:id.")
@trust_option
def command(
    inputs: tuple[str, ...],
    out: str,
    artifact: str | None,
    weights: str | None,
    device: str,
    workers: int,
    names: str | None,
    trust: bool,
) -> None:
    """Run a model on data in files; write its results to one.

    SOURCE is data as in dslc.yaml: `file.npz:x`, `file.npy`, `new.csv:area,rooms`, `photos/:image`. Without its key,
    it takes that of dslc.yaml: `new.csv`, `photos/`. NAME is the model's input; a model with one input needs none.
    Without any SOURCE, the data is that of data.eval. A table has a row's name or number, the class of a classifier,
    and the results. Predictions of a scaled target are in the units of the data; NAME.scaled are the results.
    """
    from dslc.runtime.data.columns.fitted import Fitted
    from dslc.runtime.predict.files import FORMATS, check_target, write
    from dslc.runtime.predict.layout import class_names, layout_of
    from dslc.runtime.predict.rows import open_rows
    from dslc.runtime.predict.sources import of_weights, one_source, sources
    from dslc.runtime.predict.units import units_of

    target = Path(out)
    if target.suffix not in FORMATS:
        raise click.BadParameter(f"{out!r} ends in none of {', '.join(FORMATS)}", param_hint="-o")
    config = _config() if artifact is None else None
    found = artifact_to_run(artifact, trust=trust)
    with session_of(found, device=device, weights=weights, use="predict") as session:
        face = session.interface
        require_weights_of(session, face.name)
        check_target(target, face)
        fitted = Fitted.of_notes(session.weights.notes, "the weights") or Fitted()
        known = of_weights(fitted) if config is None else {**config.data.train, **config.data.eval}
        if not inputs:
            known = {} if config is None else dict(config.data.eval)
        rows = open_rows(
            session,
            sources(inputs, [tensor.name for tensor in face.inputs], known),
            lambda text: say(one_line(text), err=True),
            None if config is None else config.data,
            None if names is None else one_source(names),
        )
        units = units_of(face, fitted, single=target.suffix == ".npy")
        for name in units.unclear:
            say(one_line(_UNCLEAR.format(name)), err=True)
        classes, face = class_names(face, fitted), units.interface
        shapes = write(target, units.parts(rows.batches(workers)), lambda: layout_of(face, classes), face)
    dtypes = _dtypes(face)
    told = dict.fromkeys(units.names, " (in the units of the data)")
    text = ", ".join(f"{name} {dtypes[name]}{shape}{told.get(name, '')}" for name, shape in shapes.items())
    emit({"out": str(target), "rows": rows.count, "results": shapes}, one_line(f"wrote {target}: {text}"))


def _config() -> Config:
    from dslc.cli.settings import default_config

    return default_config("name an artifact: build/NAME")


def _dtypes(interface: Interface) -> dict[str, str]:
    """numpy's name of each result's dtype; bf16 results are written as float32."""
    from dslc.runtime.artifact.dtypes import numpy_name

    return {r.name: numpy_name("f32" if r.dtype == "bf16" else r.dtype) for r in interface.results}
