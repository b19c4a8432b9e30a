"""``dslc runs``"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dslc.base.errors import DslcError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit, note, settings, table
from dslc.cli.settings import read_config

if TYPE_CHECKING:
    from dslc.runtime.history.folders import StoredRun

_USE = "[compare RUN RUN... | show RUN]"
_LONGEST: Final = 24  # characters of a configuration's value in a table
_MOST_COLUMNS: Final = 6  # columns of differences in a list; `compare` shows all
_STATES: Final = ("finished", "stopped", "running", "killed", "failed", "nan", "damaged")
# The first ten differ in hue; more runs repeat them.
_COLORS: Final = (
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip


@click.command(cls=Command)
@click.argument("words", metavar=_USE, nargs=-1)
@click.option("--config", "path", metavar="FILE", help="Read this file instead of ./dslc.yaml.")
@click.option("--sort", metavar="KEY", default="started", help="started (default), name, time, steps, or a metric.")
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only runs in this state. Repeatable."
)
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Only runs with this value. Repeatable.")
@click.option("--plot", metavar="FILE", help="compare: draw the curves of all runs into FILE (SVG).")
@click.option("--yaml", "yaml", is_flag=True, help="show: print a dslc.yaml that repeats the run.")
def command(
    words: tuple[str, ...],
    path: str | None,
    sort: str,
    reverse: bool,
    states: tuple[str, ...],
    where: tuple[str, ...],
    plot: str | None,
    yaml: bool,
) -> None:
    """List the runs of a project, compare some, or show one.

    The list is newest first, with the configuration's fields in which the runs differ; `*` marks the published run.
    `compare` shows all differences and metrics side by side, `show` everything about one run. Other commands
    take the weights of a run if --weights names its folder: of one that did not end, those of its best checkpoint,
    else of the newest.
    """
    from dslc.runtime.history.comparison import published
    from dslc.runtime.history.folders import all_runs, find_run

    action, names = (words[0], words[1:]) if words else ("list", ())
    if action not in ("list", "compare", "show") or (action == "list" and names):
        raise click.UsageError(f"write `dslc runs`, or `dslc runs` with {_USE}")
    if (plot is not None and action != "compare") or (yaml and action != "show"):
        raise click.UsageError("--plot needs `compare`, --yaml needs `show`")
    root, target = _places(path)
    if action == "list":
        _list(_ordered(_chosen(all_runs(root), states, where), sort, reverse), target)
        return
    if (action == "show" and len(names) != 1) or (action == "compare" and len(set(names)) < 2):
        raise click.UsageError("name one run" if action == "show" else "name at least two runs to compare")
    runs = [find_run(root, name) for name in dict.fromkeys(names)]
    if yaml:
        from dslc.runtime.history.as_yaml import as_yaml

        text = as_yaml(runs[0])
        emit({"yaml": text}, text.rstrip("\n"))
    elif action == "show":
        _show(runs[0], published(runs, target) is not None)
    else:
        _compare(runs, target, plot)


def _places(path: str | None) -> tuple[Path, Path | None]:
    """The folder of the runs, and the file of the published weights if it is known."""
    from dslc.cli.compile import artifact_path

    config = read_config(path=path)
    try:
        target = artifact_path(config).with_suffix(".safetensors")
    except DslcError as error:  # the model may be broken for now; its runs are listed nevertheless
        note(f"warning: which weights are published is not known: {error.message}")
        target = None
    return config.save.dir.parent, target


def _chosen(runs: Sequence[StoredRun], states: Sequence[str], where: Sequence[str]) -> list[StoredRun]:
    from dslc.runtime.history.comparison import chosen

    wanted = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not FIELD=VALUE", param_hint="--where")
        wanted[name] = value
    return chosen(runs, states, wanted)


def _ordered(runs: list[StoredRun], sort: str, reverse: bool) -> list[StoredRun]:
    """Newest first, longest first, best first; runs without the value come last. A usage error for an unknown key."""
    from dslc.runtime.history.comparison import metric_of

    if sort in ("started", "name"):
        return sorted(runs, key=lambda run: run.name if sort == "name" else run.started,
                      reverse=(sort == "started") != reverse)  # fmt: skip
    known = sorted({name for run in runs for name in run.metrics})
    if sort not in ("time", "steps", *known):
        names = ", ".join(("started", "name", "time", "steps", *map(one_line, known)))
        raise click.BadParameter(f"{sort!r} is none of: {names}", param_hint="--sort")

    def value(run: StoredRun) -> float | None:
        return run.seconds if sort == "time" else run.number("step") if sort == "steps" else metric_of(run, sort)

    having = [(found, run) for run in runs if (found := value(run)) is not None]
    having.sort(key=lambda pair: pair[0], reverse=("loss" not in sort) != reverse)
    return [run for _, run in having] + [run for run in runs if value(run) is None]


def _list(runs: Sequence[StoredRun], target: Path | None) -> None:
    from dslc.runtime.history.comparison import as_json, differing, published

    holder, fields = published(runs, target), differing(runs)
    data = {"runs": [as_json(run, run is holder) for run in runs], "differing": fields}
    shown_fields = fields[:_MOST_COLUMNS]
    rows = [
        (
            run.name + ("*" if run is holder else ""),
            _state(run),
            _steps(run),
            "-" if run.best is None else f"{run.best[0]} {run.best[1]:.4g}",
            _time(run.seconds),
            run.started[:16].replace("T", " ") or "-",
            *(_cell(run, name) for name in shown_fields),
        )
        for run in runs
    ]
    head = ("run", "state", "steps", "best", "time", "started", *(name.removeprefix("train.") for name in shown_fields))
    text = table(head, rows, right=(2, 4)) if rows else "there are no runs here yet: `dslc train` makes one"
    if len(fields) > _MOST_COLUMNS:
        text += f"\n{len(fields) - _MOST_COLUMNS} more fields differ; `dslc runs compare` shows them"
    emit(data, text)
    for run in runs:
        if run.damaged is not None:
            note(one_line(f"warning: run {run.name}: {run.damaged}"))


def _state(run: StoredRun) -> str:
    """The state, and whether an incomplete run has weights to use."""
    from dslc.runtime.history.comparison import usable_weights

    if run.state == "finished":
        return run.state
    return f"{run.state}, {'no weights' if usable_weights(run) is None else 'has weights'}"


def _steps(run: StoredRun) -> str:
    done, total = run.number("step"), run.number("steps")
    return "-" if done is None or total is None else f"{done:.0f}/{total:.0f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"


def _cell(run: StoredRun, name: str) -> str:
    from dslc.runtime.history.comparison import shown

    text = shown(run.config.get(name))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _compare(runs: Sequence[StoredRun], target: Path | None, plot: str | None) -> None:
    from dslc.runtime.history.comparison import as_json, curves_of, differing, facts, published, shown

    fields, holder = differing(runs), published(runs, target)
    known = [facts(run) for run in runs]
    rows = [("state", *(_state(run) for run in runs)), ("steps", *(_steps(run) for run in runs))]
    rows += [("time", *(_time(run.seconds) for run in runs))]
    rows += [
        (key, *(of[key][:_LONGEST] or "-" for of in known)) for key in known[0] if len({of[key] for of in known}) > 1
    ]
    rows += [(name, *(shown(run.config.get(name)) for run in runs)) for name in fields]
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        rows.append((f"{name} (last)", *(_number(run.metrics.get(name)) for run in runs)))
    rows.append(("best", *("-" if run.best is None else f"{run.best[0]} {run.best[1]:.4g}" for run in runs)))
    if plot is not None:
        _draw(Path(plot), curves_of(runs), [run.name for run in runs])
    text = table(("", *(run.name + ("*" if run is holder else "") for run in runs)), rows)
    data = {"runs": [as_json(run, run is holder) for run in runs], "differing": fields, "plot": plot}
    emit(data, text + (f"\n{one_line(f'curves in {plot}')}" if plot else ""))


def _draw(path: Path, found: Mapping[str, Any], names: Sequence[str]) -> None:
    from dslc.base.publish import publish_bytes
    from dslc.runtime.train.plot import svg

    colors = {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}
    publish_bytes(path, svg(found, colors).encode(errors="replace"), point="plot")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _show(run: StoredRun, holds: bool) -> None:
    from dslc.runtime.history.comparison import as_json, facts, shown, usable_weights

    data = {**as_json(run, holds), "origins": dict(run.origins), "files": _files(run.folder)}
    weights = usable_weights(run)
    rows = [("run", run.name + (" (published)" if holds else "")), ("folder", str(run.folder)), ("state", _state(run))]
    rows += [("why", run.damaged)] if run.damaged is not None else []
    rows += [("error", run.text("error"))] if run.text("error") else []
    rows += [("steps", _steps(run)), ("started", run.started or "-"), ("time", _time(run.seconds))]
    rows += [(key, value) for key, value in facts(run).items() if value]
    rows += [("best", f"{run.best[0]} {run.best[1]:.6g} at step {run.best[2]}")] if run.best is not None else []
    rows += [(f"{name} (last)", f"{value:.6g}") for name, value in run.metrics.items()]
    rows += [(name, shown(value)) for name, value in run.config.items() if run.origins.get(name) != "default"]
    rows += [("files", ", ".join(data["files"]))]
    if run.state in ("stopped", "killed", "failed", "nan"):
        rows.append(("resume", f"dslc train --resume {run.name}"))
    if weights is not None:
        use = shlex.join([*_arguments(run), "--weights", str(weights)])
        rows += [("evaluate", f"dslc eval {use}"), ("predict", f"dslc predict ... {use}")]
    if weights is not None:
        rows.append(("publish", f"dslc publish {run.name}"))
    if run.config:
        rows.append(("repeat", f"dslc runs show {run.name} --yaml > again.yaml; dslc train --config again.yaml"))
    emit(data, table(("", ""), rows).lstrip("\n") if not settings().json else "")


def _arguments(run: StoredRun) -> list[str]:
    """The flags that build the model of a run, whatever dslc.yaml says now."""
    from dslc.runtime.history.comparison import shown

    given = {name.removeprefix("args."): value for name, value in run.config.items() if name.startswith("args.")}
    return [part for name, value in given.items() for part in ("-D", f"{name}={shown(value)}")]


def _files(folder: Path) -> list[str]:
    try:
        return sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    except OSError:
        return []
