"""``dslc build``"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dslc.cli.app import Command
from dslc.cli.options import PRECISION_HELP, TARGET_HELP, define_option, size_option
from dslc.cli.output import emit, size_text, table
from dslc.cli.progress import build_progress

if TYPE_CHECKING:
    from dslc.compiler.pipeline import BuildResult


_LIBRARIES: Final = {"cublaslt": "cuBLASLt", "cudnn": "cuDNN"}


@click.command(cls=Command)
@click.argument("model", metavar="[FILE[:MODEL]]", required=False)
@click.option("--name", metavar="NAME", help="Name of the artifact and its Python module.")
@click.option("-o", "out", metavar="FOLDER", help="Publish into FOLDER/NAME; default: build.")
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@click.option(
    "--providers",
    metavar="NAME",
    help="Run ops by kernels (own), through numpy (reference), or both (auto); vendor: contractions of a GPU through "
    "cuBLASLt and cuDNN, which must be installed where it runs.",
)
@click.option(
    "--bulk",
    metavar="0|N|all",
    help="How many kernels a GPU is given with one launch: all of a step (the default), N, or 0: each by itself.",
)
@click.option(
    "--steps-per-launch",
    metavar="N",
    help="How many training steps a GPU is given with one launch, for small models; 1 by default.",
)
@click.option(
    "--streams",
    metavar="N|auto",
    help="On how many streams of a GPU kernels may run, 1 to 8; auto (the default): the number of least modelled time.",
)
@click.option(
    "--mirror",
    metavar="auto|never|SIZE",
    help="Compute values again in the backward pass: where it costs next to nothing (auto, the default), never, or so "
    "that the program fits into SIZE, as 20GiB.",
)
@define_option
@size_option
@click.option("--report", metavar="FILE", help="Write the report there, too, with the seconds that each pass took.")
@click.option("--force", is_flag=True, help="Replace what is there, whatever it is.")
def command(
    model: str | None,
    name: str | None,
    out: str | None,
    target: str | None,
    precision: str | None,
    providers: str | None,
    mirror: str | None,
    bulk: str | None,
    steps_per_launch: str | None,
    streams: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    report: str | None,
    force: bool,
) -> None:
    """Compile a model into an artifact that Python can import.

    Without FILE, the model, arguments and options of ./dslc.yaml; with it, those of the command line alone. Beside the
    artifact lies report.html: what each source line takes in memory and in modelled time, and what each pass did.
    """
    from dslc.cli.compile import options_of, publish
    from dslc.cli.origins import placed
    from dslc.cli.requests import requested

    request = requested(model, target=target, precision=precision, defines=defines, size=size)
    flags = {
        "providers": providers,
        "mirror": mirror,
        "bulk": bulk,
        "streams": streams,
        "steps_per_launch": steps_per_launch,
    }
    chosen = {option: value for option, value in flags.items() if value is not None}
    options = options_of({**request.build, **chosen}, name)
    folder = Path(out) if out is not None else request.root / "build"
    with placed(request.config), build_progress() as progress:
        path, result = publish(request.checked, options, folder, force=force, progress=progress)
    if report is not None:
        from dslc.base.publish import publish_bytes
        from dslc.compiler.report.page import report as page

        publish_bytes(Path(report), page(result, request.checked.graph, times=True).encode())
    emit(_data(path, result), _text(path, result))


def _text(path: Path, result: BuildResult) -> str:
    from dslc.cli.compile import REPORT

    rows = [
        (
            report.entry,
            " ".join(f"{name}={value}" for name, value in report.sizes.items()),
            f"{report.nodes:,}",
            size_text(report.io_bytes),
            size_text(report.work_bytes),
        )
        for report in result.reports
    ]
    state = result.header["state"]["bytes"]
    return "\n".join(
        [
            table(("entry", "sizes", "nodes", "io", "work"), rows, (2, 3, 4)),
            *_how_it_runs(result),
            *_mirrored(result),
            f"report {path.with_name(REPORT)}",
            f"state {size_text(state)}; built {path} ({size_text(len(result.artifact))}) in {result.seconds:.2f} s",
        ]
    )


def _how_it_runs(result: BuildResult) -> list[str]:
    """How many nodes have kernels, the ops that are left to numpy and so slower than they could be, and what was
    compiled."""
    ours, rest = _nodes(result)
    if not ours:
        return []
    cached = result.kernels - result.cache.compiled
    listed = f"; {rest.total():,} through numpy: {', '.join(sorted(rest))}" if rest else ""
    return [
        f"{ours:,} nodes run as kernels{listed}",
        *_contractions(result),
        f"kernels: {result.cache.compiled:,} compiled, {cached:,} from the cache",
    ]


def _mirrored(result: BuildResult) -> list[str]:
    """What is computed again in the backward pass, and what that is worth."""
    return [
        f"{report.entry}: {said.nodes:,} nodes compute again what would take "
        f"{size_text(said.bytes_before - said.bytes_after)}, for {said.share:+.1%} of the step's modelled time"
        for report in result.reports
        if (said := report.mirrored) is not None
    ]


def _contractions(result: BuildResult) -> list[str]:
    """Where products and convolutions run when libraries were asked for; nothing otherwise."""
    calls, rest = _library_calls(result)
    if not calls and not rest:
        return []
    parts = [f"{count:,} {_LIBRARIES[name]}" for name, count in sorted(calls.items())]
    if rest:
        parts.append(f"{rest.total():,} own kernels: " + ", ".join(f"{c:,} {what}" for what, c in sorted(rest.items())))
    return [f"contractions: {'; '.join(parts)}"]


def _library_calls(result: BuildResult) -> tuple[Counter[str], Counter[str]]:
    """Contractions by library, and those with kernels of our own by op and reason."""
    from dslc.compiler.codegen.cuda.vendor import census

    return census(node for program in result.programs if program.vendor for node in program.kernels)


def _nodes(result: BuildResult) -> tuple[int, Counter[str]]:
    """How many nodes run as kernels, and how many of each op through numpy."""
    rest: Counter[str] = Counter()
    for program in result.programs:
        ours = {*program.kernels}
        rest.update(node.op.name for node in program.graph.nodes if not node.op.view and node not in ours)
    return sum(len(program.kernels) for program in result.programs), rest


def _data(path: Path, result: BuildResult) -> dict[str, Any]:
    from dslc.cli.compile import REPORT

    ours, rest = _nodes(result)
    calls, own = _library_calls(result)
    return {
        "path": str(path),
        "report": str(path.with_name(REPORT)),
        "name": result.name,
        "bytes": len(result.artifact),
        "seconds": result.seconds,
        "state_bytes": result.header["state"]["bytes"],
        "nodes": {"kernels": ours, "numpy": rest.total(), "numpy_ops": dict(sorted(rest.items()))},
        "contractions": {"libraries": dict(sorted(calls.items())), "own": dict(sorted(own.items()))},
        "kernels": {
            "total": result.kernels,
            "compiled": result.cache.compiled,
            "cached": result.kernels - result.cache.compiled,
        },
        "cache": result.cache.as_json(),
        "programs": [
            {
                "entry": report.entry,
                "sizes": dict(report.sizes),
                "nodes": report.nodes,
                "io_bytes": report.io_bytes,
                "work_bytes": report.work_bytes,
                "lower_bound": report.lower_bound,
                "mirrored": None if report.mirrored is None else report.mirrored.as_json(),
                "passes": [
                    {
                        "name": p.name,
                        "seconds": p.seconds,
                        "nodes_before": p.nodes_before,
                        "nodes_after": p.nodes_after,
                        "moved_before": p.moved_before,
                        "moved_after": p.moved_after,
                    }
                    for p in report.passes
                ],
            }
            for report in result.reports
        ],
    }
