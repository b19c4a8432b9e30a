"""``dslc bench``"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import lock_options, names_source, sizes, source_options, trust_option
from dslc.cli.output import emit, note, size_text
from dslc.runtime.session.measure import ENTRIES

if TYPE_CHECKING:
    from dslc.runtime.session.context import Loaded
    from dslc.runtime.session.measure import Steps
    from dslc.runtime.session.session import Session

_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 20


@click.command(cls=Command)
@click.argument("model", metavar="[ARTIFACT|FILE[:MODEL]]", required=False)
@click.option("--entry", type=click.Choice(ENTRIES), help="The entry to time; default: train_step, else predict.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto: a GPU, if there is one.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=3.0, metavar="N", help="Seconds of timed steps; default: 3."
)
@click.option(
    "--top", type=click.IntRange(0, 10000), default=12, metavar="N", help="Show the N longest rows; default: 12."
)
@click.option("--against", metavar="FILE", help="Compare with an earlier output of --json; exit 1 if slower.")
@click.option(
    "--tolerance", type=click.FloatRange(0, 10), default=0.05, metavar="X", help="Tolerated slowdown; default: 0.05."
)
@source_options("build for this target; default: that of the device", "A size of a dim, such as B=64.")
@lock_options
@trust_option
def command(
    model: str | None,
    entry: str | None,
    device: str,
    seconds: float,
    top: int,
    against: str | None,
    tolerance: float,
    target: str | None,
    precision: str | None,
    providers: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    locked: bool,
    gpu: str | None,
    trust: bool,
) -> int:
    """Time a model's steps, and each kernel against the roofline.

    Weights and inputs are random. FILE is compiled first, and not published; for an ARTIFACT, --size selects one of the
    built sizes. Kernels are timed one by one: their sum is less than the step's time if the step has gaps, and more if
    it runs kernels concurrently. The roof is the speed of the machine's memory and arithmetic. To gate a change:
    `dslc bench net.nn --json > base.json`, then `dslc bench net.nn --against base.json`.
    """
    from dslc.cli.views.bench import census, comparison, line_rows, node_rows, read_earlier
    from dslc.runtime.artifact.loops import unrolled
    from dslc.runtime.session import measure

    building = {"target": target, "precision": precision, "providers": providers, "locked": locked or None, "gpu": gpu}
    wanted = sizes(size)
    with _opened(model, device, building, defines, size, trust) as session:
        entry = entry or next((e for e in ENTRIES if measure.has(session, e)), ENTRIES[-1])
        chosen = {**_single(wanted, ""), **_single(wanted, entry.partition("_")[0])}
        program = measure.program_of(session, entry, chosen)
        inputs = measure.random_inputs(session, program)
        steps = measure.time_steps(session, program, inputs, seconds)
        median = statistics.median(steps.times)
        rounds = min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, int(seconds / median / 4)))
        measured = measure.measure(session, program, inputs, rounds)
        recorded = session.artifact.header["options"].get("precision", {})
        plan = unrolled(program.plan)
        nodes = node_rows(plan, measured, recorded.get("compute") == "tf32")
        data = {
            **_described(session, program),
            "step": _step(session, program, steps),
            "counted": {name: round(value, 3) for name, value in steps.counted.items()},
            "instructions": census(plan),
            "roof": dict(measured.roof),
            "lines": [row.as_json() for row in line_rows(nodes)],
            "nodes": [row.as_json() for row in nodes],
            "nodes_seconds": sum(row.seconds for row in nodes),
        }
    text = _text(data, nodes, top)
    if against is None:
        emit(data, text)
        return EXIT_OK
    ratio, compared = comparison(read_earlier(against, data), data, top)
    slower = ratio > 1 + tolerance
    verdict = f"{'slower' if slower else 'not slower'}: {ratio:.3f} times the earlier step, {1 + tolerance:g} allowed"
    emit({**data, "against": {"ratio": ratio, "tolerance": tolerance, "slower": slower}},
         "\n".join([text, "", compared, verdict]))  # fmt: skip
    return EXIT_DIFFERENCE if slower else EXIT_OK


def _opened(
    model: str | None,
    device: str,
    building: dict[str, Any],
    defines: tuple[str, ...],
    size: tuple[str, ...],
    trust: bool,
) -> Session:
    """A session of the named artifact, or of the one that the file compiles to."""
    from dslc.cli.artifacts import artifact_to_run, session_of
    from dslc.face import reference_meanings

    asked = {name: value for name, value in building.items() if value is not None}
    if not names_source(model):
        for name in (*asked, *(["D"] if defines else [])):
            raise click.UsageError(f"--{name} is for models that are built here: give FILE.nn")
        return session_of(artifact_to_run(model, trust=trust, device=device), device=device, weights="init")
    from dslc.cli.locks.find import choices_lines
    from dslc.cli.progress import build_progress
    from dslc.cli.requests import requested
    from dslc.cli.targets import target_of
    from dslc.compiler.pipeline import build
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.session.load import start

    target = asked.get("target") or target_of(device)
    request = requested(model, target=target, precision=asked.get("precision"), defines=defines, size=size)
    options = request.options(cpu="native", **{name: asked.get(name) for name in ("providers", "locked", "gpu")})
    with build_progress() as progress:
        result = build(request.checked, options, progress)
    for line in choices_lines({target: each.as_json() for target, each in result.origins.items()}):
        note(line)
    return start(
        Artifact.of_bytes(result.artifact, place=model), ".", device=device, weights="init", seed=0, contexts=1,
        verify="all", meanings=reference_meanings,
    )  # fmt: skip


def _single(wanted: dict[str, dict[str, list[int]]], entry: str) -> dict[str, int]:
    """The one requested size of each dim."""
    return {dim: values[-1] for dim, values in wanted.get(entry, {}).items()}


def _described(session: Session, program: Loaded) -> dict[str, Any]:
    header = session.artifact.header
    recorded = header["options"]
    return {
        "name": session.name,
        "artifact": session.artifact.id,
        "entry": program.entry,
        "sizes": dict(program.sizes),
        "device": session.device,
        "precision": recorded.get("precision", {}).get("compute"),
        "options": {name: recorded.get(name) for name in ("providers", "bulk")},
        "bytes": {"state": header["state"]["bytes"], "io": program.io_bytes, "work": program.work_bytes},
    }


def _step(session: Session, program: Loaded, steps: Steps) -> dict[str, Any]:
    median = statistics.median(steps.times)
    ordered = sorted(steps.times)
    train, batch = session.interface.train, session.interface.batch
    rows = program.sizes.get(batch or "", 0)
    if program.entry == "train_step" and train is not None:
        rows *= train.parts
    return {
        "median": median,
        "min": ordered[0],
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[-1 - len(ordered) // 10],
        "steps": len(ordered),
        "rows": rows or None,
        "rows_per_second": rows / median if rows else None,
    }


_FAST: Final = (
    "         of roof is above 100% if a kernel's bytes come from a cache, which is faster than the copy of memory"
)


def _times(ratio: float) -> str:
    """The kernels' time compared with the step's: kernels that overlap take more than the step."""
    if ratio > 1:
        return f"{ratio:.2f} times the step: there, kernels overlap or wait less"
    return f"{ratio:.0%} of the step; the rest are gaps"


def _text(data: dict[str, Any], nodes: list[Any], top: int) -> str:
    from dslc.cli.views.bench import line_rows, rate_text, rows_table, time_text

    step, held = data["step"], data["bytes"]
    named = " ".join([data["entry"], *(f"{n}={v}" for n, v in data["sizes"].items())])
    total = data["nodes_seconds"]
    rate = f"; {step['rows_per_second']:,.0f} rows/s" if step["rows"] else ""
    counted = [f"{name.replace('_', ' ')} {value:g}" for name, value in data["counted"].items() if "bytes" not in name]
    moved = [f"{size_text(round(v))} {n[6:]}" for n, v in data["counted"].items() if n.startswith("bytes_")]
    peaks = [f"{rate_text(v, 'FLOP/s')} {n}" for n, v in data["roof"].items() if n != "copy"]
    lines = [
        one_line(f"{data['name']}: {named} on {data['device']}, {data['precision']}"),
        f"step     {time_text(step['median'])} ({time_text(step['p10'])} to {time_text(step['p90'])}, min "
        f"{time_text(step['min'])}, {step['steps']:,} steps){rate}",
        f"memory   {size_text(held['state'])} state, {size_text(held['io'])} io, {size_text(held['work'])} work",
        f"a step   {', '.join(f'{count:,} {name}' for name, count in data['instructions'].items() if count)}",
        *([f"         {', '.join([*counted, *moved])}"] if counted else []),
        f"roof     copy {rate_text(data['roof']['copy'], 'B/s')}, {', '.join(peaks)}",
        f"kernels  {time_text(total)} when each runs alone, {_times(total / step['median'])}",
        *([_FAST] if any(node.of_roof > 1 for node in nodes) else []),
        "",
        rows_table(line_rows(nodes), total, top, "line"),
        "",
        rows_table(sorted(nodes, key=lambda r: -r.seconds), total, top, "node"),
    ]
    return "\n".join(lines)
