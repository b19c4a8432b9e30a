"""``dslc build``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.locks.find import advice_lines, choices_lines
from dslc.cli.locks.providers import needs_line
from dslc.cli.options import PRECISION_HELP, TARGET_HELP, define_option, lock_options, size_option
from dslc.cli.output import emit, size_text, table
from dslc.cli.progress import build_progress

if TYPE_CHECKING:
    from dslc.compiler.cached_build import Finished
    from dslc.compiler.options import Options


@click.command(cls=Command)
@click.argument("model", metavar="[FILE[:MODEL]]", required=False)
@click.option("--name", metavar="NAME", help="Name of the artifact and its Python module.")
@click.option("-o", "out", metavar="FOLDER", help="Publish into FOLDER/NAME; default: build.")
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option(
    "--cpu",
    metavar="all|native|LEVEL",
    help="CPUs that run the artifact: all (the default); native: those like this machine's, which compiles faster; or "
    "a level such as x86_64_v3.",
)
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@click.option(
    "--providers",
    metavar="NAME",
    help="auto (the default): whatever is fastest: dslc's kernels, on a GPU also NVIDIA's libraries, if the project's "
    "lock names them or they are installed here; own: dslc's kernels alone; vendor: on a GPU also cuBLASLt and cuDNN, "
    "which must be installed on the machine that runs the artifact; reference: numpy.",
)
@click.option(
    "--bulk",
    metavar="0|N|all",
    help="Kernels per GPU launch: all of a step (the default), N, or 0: one launch and wait per kernel.",
)
@click.option(
    "--steps-per-launch",
    metavar="N",
    help="Training steps per GPU launch, for small models; default: 1.",
)
@click.option(
    "--streams",
    metavar="N|auto",
    help="GPU streams, 1 to 8; auto (the default): the number with the least modelled time.",
)
@click.option(
    "--mirror",
    metavar="auto|never|SIZE",
    help="Recompute values in the backward pass to save memory: if it costs little time (auto, the default), never, or "
    "until the program fits into SIZE, such as 20GiB.",
)
@click.option(
    "--prepare",
    metavar="auto|never",
    help="auto (the default): compute what depends on the weights alone, such as casts, once after the weights change, "
    "if that makes predict faster; never: at every call, which takes less memory.",
)
@define_option
@size_option
@lock_options
@click.option("--report", metavar="FILE", help="Also write the report to FILE, with the seconds of each pass.")
@click.option("--force", is_flag=True, help="Replace the existing files, whatever they are.")
def command(
    model: str | None,
    name: str | None,
    out: str | None,
    target: str | None,
    cpu: str | None,
    precision: str | None,
    providers: str | None,
    mirror: str | None,
    prepare: str | None,
    bulk: str | None,
    steps_per_launch: str | None,
    streams: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    locked: bool,
    gpu: str | None,
    report: str | None,
    force: bool,
) -> None:
    """Compile a model into an artifact that Python can import.

    Without FILE, the model, arguments and options come from ./dslc.yaml; with FILE, from the command line alone. Next
    to the artifact, report.html shows the memory and modelled time of each source line, and the effect of each pass.
    """
    from dslc.cli.compile import publish
    from dslc.cli.origins import placed
    from dslc.cli.requests import requested

    request = requested(model, target=target, precision=precision, defines=defines, size=size)
    flags: dict[str, Any] = {
        "cpu": cpu,
        "providers": providers,
        "mirror": mirror,
        "prepare": prepare,
        "bulk": bulk,
        "streams": streams,
        "steps_per_launch": steps_per_launch,
        "locked": locked or None,
        "gpu": gpu,
    }
    options = request.options(name, lock=None, **flags)
    folder = Path(out) if out is not None else request.root / "build"
    rebuild = report is not None  # the report shows the times of passes that ran
    with placed(request.config), build_progress() as progress:
        path, made = publish(
            request.checked, options, folder, root=request.root if out is None else None, force=force, rebuild=rebuild,
            progress=progress,
        )  # fmt: skip
    if report is not None:
        from dslc.base.publish import publish_bytes
        from dslc.compiler.report.page import report as page

        assert made.result is not None
        publish_bytes(Path(report), page(made.result, request.checked.graph, times=True).encode())
    emit(_data(path, made), _text(path, made, options))


def _text(path: Path, made: Finished, options: Options) -> str:
    facts = made.facts
    rows = [
        (
            program["entry"],
            " ".join(f"{name}={value}" for name, value in program["sizes"].items()),
            f"{program['nodes']:,}",
            size_text(program["io_bytes"]),
            size_text(program["work_bytes"]),
        )
        for program in facts["programs"]
    ]
    whole = "" if made.result is not None else ", taken from the cache: an equal build exists"
    return "\n".join(
        [
            table(("entry", "sizes", "nodes", "io", "work"), rows, (2, 3, 4)),
            *_how_it_runs(made),
            *needs_line(made.facts["contractions"]["libraries"], options),
            *_mirrored(facts["programs"]),
            f"report {one_line(_report(path))}",
            f"state {size_text(facts['state_bytes'])}; built {one_line(path)} ({size_text(facts['bytes'])}) in "
            f"{made.seconds:.2f} s{whole}",
        ]
    )


def _how_it_runs(made: Finished) -> list[str]:
    """How many nodes have kernels, which ops run through numpy and are therefore slower, and the number of compiled
    kernels."""
    nodes = made.facts["nodes"]
    if not nodes["kernels"]:
        return []
    listed = f"; {nodes['numpy']:,} through numpy: {', '.join(nodes['numpy_ops'])}" if nodes["numpy"] else ""
    return [
        f"{nodes['kernels']:,} nodes run as kernels{listed}",
        *_contractions(made.facts["contractions"]),
        *choices_lines(made.facts["choices"]),
        *advice_lines(made.facts["unmeasured"]),
        f"kernels: {made.compiled:,} compiled, {made.facts['kernels'] - made.compiled:,} from the cache",
    ]


def _mirrored(programs: list[dict[str, Any]]) -> list[str]:
    """What is recomputed in the backward pass, the memory that it saves, and its cost in time."""
    return [
        f"{program['entry']}: {said['nodes']:,} recomputing nodes save "
        f"{size_text(said['bytes_before'] - said['bytes_after'])}, for "
        f"{said['seconds_after'] / said['seconds_before'] - 1:+.1%} of the step's modelled time"
        for program in programs
        if (said := program["mirrored"]) is not None
    ]


def _contractions(counted: dict[str, dict[str, int]]) -> list[str]:
    """Where contractions and convolutions run if libraries were requested; else empty."""
    calls, rest = counted["libraries"], counted["own"]
    if not calls and not rest:
        return []
    from dslc.runtime.cuda.libraries.registry import LIBRARIES

    parts = [f"{count:,} {LIBRARIES[name]().title}" for name, count in calls.items()]
    if rest:
        parts.append(f"{sum(rest.values()):,} own kernels: " + ", ".join(f"{c:,} {what}" for what, c in rest.items()))
    return [f"contractions: {'; '.join(parts)}"]


def _report(path: Path) -> Path:
    from dslc.compiler.cached_build import REPORT

    return path.with_name(REPORT)


def _data(path: Path, made: Finished) -> dict[str, Any]:
    """``whole_from_cache``: no pass ran; the seconds of the passes are those of the cached build."""
    total = made.facts["kernels"]
    return {
        "path": str(path),
        "report": str(_report(path)),
        **made.facts,
        "seconds": made.seconds,
        "whole_from_cache": made.result is None,
        "kernels": {"total": total, "compiled": made.compiled, "cached": total - made.compiled},
        "cache": made.cache.as_json(),
    }
