"""``dslc doctor``"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dslc.base.errors import EXIT_OK, exit_code
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit, table

if TYPE_CHECKING:
    from dslc.cli.doctor.machine import Ability, Demands, Fact


@click.command(cls=Command)
@click.option("--target", metavar="NAME", help="Require that builds for this target work here.")
@click.option("--providers", metavar="NAME", help="vendor: require that cuBLASLt and cuDNN run here.")
@click.option("--device", metavar="NAME", help="Require that this device works here: cpu, gpu or gpu:1.")
def command(target: str | None, providers: str | None, device: str | None) -> int:
    """Show what is installed here, and what dslc can do with it.

    Each failure is listed with the line that fixes it. The exit code is 4 if the CPU, or a requested feature, does not
    work: `dslc doctor --target sm_90 --providers vendor --device gpu`.
    """
    from dslc.cli.doctor.machine import examine
    from dslc.cli.doctor.probes import ask

    demands = _demands(target, providers, device)
    facts, abilities = examine(ask, demands)
    failed = [a for a in abilities if a.why is not None and (a.asked or a is abilities[0])]
    data = {
        "facts": [asdict(f) for f in facts],
        "abilities": [{"works": a.why is None, **asdict(a)} for a in abilities],
    }
    emit({**data, "sound": not failed}, _text(facts, abilities))
    return exit_code("R201") if failed else EXIT_OK


def _demands(target: str | None, providers: str | None, device: str | None) -> Demands:
    from dslc.cli.doctor.machine import Demands
    from dslc.runtime.session.open import check_options

    targets: tuple[str, ...] = ()
    if target is not None or providers not in (None, "vendor"):
        from dslc.compiler.options import Options

        options = Options(target or "sm_90", providers or "auto")
        options.check()
        targets = options.targets if target is not None else ()
    gpu = None
    if device is not None:
        check_options(device=device)
        gpu = int(device.partition(":")[2] or 0) if device.startswith("gpu") else None
    return Demands(targets, providers == "vendor", gpu)


def _text(facts: list[Fact], abilities: list[Ability]) -> str:
    lines = []
    for section in dict.fromkeys(f.section for f in facts):
        rows = [(f"  {f.name}", f.value or "none", f.where or "") for f in facts if f.section == section]
        lines += [table((section, "", ""), rows), ""]
    lines += [f"works: {a.name}" for a in abilities if a.why is None]
    for ability in abilities:
        if ability.why is not None:
            lines += [f"does not work: {ability.name}", f"  {one_line(ability.why)}"]
            lines += [f"  = help: {one_line(ability.help)}"] if ability.help else []
    return "\n".join(lines)
