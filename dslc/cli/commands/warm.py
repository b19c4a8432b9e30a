"""``dslc warm``"""

from __future__ import annotations

import time

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import artifact_to_run, session_of
from dslc.cli.options import trust_option
from dslc.cli.output import emit


@click.command(cls=Command)
@click.argument("artifact", required=False)
@click.option("--device", default="gpu", metavar="NAME", help="gpu, or gpu:1 for the second one.")
@trust_option
def command(artifact: str | None, device: str, trust: bool) -> None:
    """Let cuBLASLt and cuDNN choose for this GPU; store the choices.

    For artifacts of --providers vendor: stores the libraries' choices for each size in the private cache, by artifact,
    GPU, driver and library versions. Later loads take them from there: `dslc warm build/resnet50`. Another GPU or
    version chooses again. ARTIFACT is a .dslc file or its folder; without it, that of ./dslc.yaml.
    """
    found = artifact_to_run(artifact, trust=trust, device=device)
    begun = time.monotonic()
    with session_of(found, device=device, weights="init") as session:
        first = time.monotonic() - begun
        kept, name, on = session.keep_choices(), session.name, session.device
    data = {"path": str(found.path), "device": on, "kept": kept, "load_seconds": first}
    if not kept:
        emit(data, one_line(f"{name} uses no library on {on}: nothing to choose"))
        return
    begun = time.monotonic()
    session_of(found, device=device, weights="init").close()
    again = time.monotonic() - begun
    emit(
        {**data, "load_seconds_again": again},
        one_line(f"kept {kept} choices for {name} on {on}; this load took {first:.2f} s, the next one {again:.2f} s"),
    )
