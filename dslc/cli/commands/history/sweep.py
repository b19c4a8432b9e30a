"""``dslc sweep``"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dslc.base.errors import CODES, DslcError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import trust_option
from dslc.cli.output import emit, note, table
from dslc.cli.progress import SweepProgress
from dslc.cli.settings import config_options, read_source
from dslc.cli.trials import BUILT, CHILD, first_artifact, gpus_of, model_of, models_checked, said, shown

if TYPE_CHECKING:
    from dslc.runtime.config.load import ConfigSource
    from dslc.runtime.sweep.plan import SweepPlan
    from dslc.runtime.sweep.state import Entry
    from dslc.runtime.sweep.sweep import SweepResult

_ROWS: Final = 30  # of the table; --json has all trials
_FAILURES: Final = 5  # that are explained


@click.command(cls=Command)
@config_options
@click.option(
    "--space",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Values to try: train.lr=[0.1,0.01] or 'train.lr={log_uniform: [1e-4, 0.1]}'. Repeatable.",
)
@click.option("--method", metavar="NAME", help="grid, random or optuna.")
@click.option("--trials", metavar="N", help="Number of trials of random and optuna; default: 20.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Trials at a time; default: one for each GPU, one on a CPU.",
)
@click.option("--name", default="sweep", metavar="NAME", help="Folder of the sweep in runs/; default: sweep.")
@click.option("--fresh", is_flag=True, help="Start another sweep instead of going on with the newest one.")
@click.option("--allow-changes", is_flag=True, help="Go on although the space or the configuration has changed.")
@click.option("--retry", is_flag=True, help="Run failed trials again.")
@click.option(
    "--publish", type=click.Choice(["best"]), help="Publish the weights of the best trial if they are better."
)
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto, which uses all GPUs.")
@trust_option
def command(
    space: tuple[str, ...],
    method: str | None,
    trials: str | None,
    jobs: int | None,
    name: str,
    fresh: bool,
    allow_changes: bool,
    retry: bool,
    publish: str | None,
    device: str,
    trust: bool,
    **flags: Any,
) -> int:
    """Train with each of several values, and compare the results.

    `sweep.space` in dslc.yaml says which values of which fields. Each trial is a run with a folder of its own,
    runs/sweep/001 and so on; none is published without --publish. The same command continues a sweep that was stopped
    or killed. Ctrl-C lets each trial finish its step and save.
    """
    from dslc.runtime.cpu.native import thread_count
    from dslc.runtime.sweep.plan import plan_sweep
    from dslc.runtime.sweep.pool import places
    from dslc.runtime.sweep.resume import choose_folder
    from dslc.runtime.sweep.sweep import require_startable, run_sweep
    from dslc.runtime.sweep.trial import task_of
    from dslc.runtime.train.files import require_data, require_weights

    source, given = _source(space, {"method": method, "trials": trials}, flags)
    plan = plan_sweep(source)
    require_data(plan.base, training=True)
    digests = models_checked(plan, trust=trust)
    for each in plan.samples:
        require_weights(each.config.start.weights)
    folder = choose_folder(plan, name, fresh=fresh)
    texts = ",".join(sorted(set(digests.values())))
    require_startable(plan, folder, texts, allow_changes=allow_changes, retry=retry)
    artifact = first_artifact(plan, trust=trust)
    gpus = gpus_of(artifact, device)
    shares = places(device, jobs or 0, thread_count(), gpus)
    if jobs is not None and jobs > len(shares):
        note(f"{len(shares)} trials run at a time, one for each GPU")
    kept = {name: value for name, value in given.items() if not name.startswith("sweep.")}
    progress = SweepProgress(lambda entry: _ended(entry, folder.name))
    try:
        result = run_sweep(
            plan,
            folder,
            texts,
            (sys.executable, "-P", "-c", CHILD),
            shares,
            lambda trial, changed, place: {
                **task_of(source, kept, changed, trial, place),
                "trust": trust,
                "source": digests.get(model_of(trial.config)),
            },
            progress,
            allow_changes=allow_changes,
            retry=retry,
        )
    finally:
        progress.clear()
    failed = [entry for entry in result.entries if entry.error is not None]
    if failed and len(failed) == len(result.entries):
        raise _all_failed(failed, folder)
    published, lines = _published(plan, result, folder.name) if publish and result.best else (None, [])
    emit(_data(result, published), "\n".join([*_text(plan, result, folder.name, published), *lines]))
    return result.exit_code


def _source(
    space: Sequence[str], sweep: Mapping[str, object], flags: Mapping[str, Any]
) -> tuple[ConfigSource, dict[str, object]]:
    """The origins of the configuration; ``--space`` adds keys to the space of the file and replaces others."""
    from dslc.runtime.config.values import moved
    from dslc.runtime.config.yaml import Mark, Value, parse_yaml

    source, given = read_source(sweep=sweep, **flags)
    if not space:
        return source, given
    written = source.config().sweep.space.written
    keys = dict(written.data) if written is not None and isinstance(written.data, dict) else {}
    for text in space:
        key, equals, values = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not FIELD=VALUES", param_hint="--space")
        origin = f"--space {key}"
        inner = parse_yaml(f"value: {values}".encode(errors="surrogatepass"), origin).data
        if not isinstance(inner, dict) or list(inner) != ["value"]:
            raise click.BadParameter(f"{values!r} is more than one value", param_hint=one_line(origin))
        keys[key] = moved(inner["value"], origin)
    return read_source(sweep={**sweep, "space": Value(keys, Mark("--space", 0, 0))}, **flags)


def _published(plan: SweepPlan, result: SweepResult, sweep: str) -> tuple[str | None, list[str]]:
    """Publish the best trial's weights if they are better than the published ones: the file, and what to say."""
    from dslc.cli.compile import artifact_of, project_root
    from dslc.runtime.history.folders import run_in
    from dslc.runtime.history.publication import publish_run

    best = result.best
    assert best is not None
    if _other_model(plan, best):
        return None, [f"not published: its model is not that of {plan.base.path}"]
    path = artifact_of(plan.base).path
    assert path is not None
    target = path.with_suffix(".safetensors")
    try:
        run = run_in(result.folder / best.folder)
        _, done = publish_run(run, target, project_root(plan.base), note, always=False)
    except DslcError as error:
        return None, [f"not published: {error.message}"]
    if done.refused is not None:
        return None, [f"not published: {done.refused}"]
    kept = f"; the previous ones are in {done.previous.name}" if done.previous is not None else ""
    return str(target), [f"published the weights of run {sweep}/{best.folder}: {target}{kept}"]


def _other_model(plan: SweepPlan, entry: Entry) -> dict[str, Any]:
    """The values of a trial that decide which model is built and differ from those of dslc.yaml, by key."""
    base = {each.name: each.value for each in plan.base.entries}
    return {
        axis.key: entry.values[axis.key]
        for axis in plan.base.sweep.space.axes
        if axis.field.startswith(BUILT) and base.get(axis.field) != entry.values[axis.key]
    }


def _all_failed(failed: Sequence[Entry], folder: Path) -> DslcError:
    """The error of the first trial as that of the sweep."""
    code, _, cause = (failed[0].error or "").partition(": ")
    return DslcError(
        code if code in CODES else "R406",
        f"all {len(failed)} trials failed; {folder.name}/{failed[0].folder}: {cause}",
        place=str(folder),
        help="output.txt in the folder of each trial says more; `dslc sweep --retry` runs them again",
    )


def _ended(entry: Entry, sweep: str) -> str:
    """One trial in words: ``sweep/003  accuracy 0.9812  train.lr=0.01``."""
    how = entry.error if entry.error is not None else entry.state
    if entry.result is not None:
        how = f"{entry.result.metric} {entry.result.value:.4g}"
    return f"{sweep}/{entry.folder}  {how}  {said(entry.values)}"


def _ranked(result: SweepResult) -> list[Entry]:
    """The trials with the best first; those without a value last, in their order."""
    sign = -1.0 if result.rule.highest else 1.0

    def rank(entry: Entry) -> tuple[bool, float]:
        value = float("nan") if entry.result is None else entry.result.value
        return value != value, 0.0 if value != value else sign * value

    return sorted(result.entries, key=rank)


def _text(plan: SweepPlan, result: SweepResult, sweep: str, published: str | None) -> list[str]:
    keys = [axis.key for axis in plan.base.sweep.space.axes]
    ranked = _ranked(result)
    rows = [
        (
            f"{sweep}/{entry.folder}",
            entry.state if entry.result is None else f"{entry.result.value:.4g}",
            *(shown(entry.values.get(key)) for key in keys),
        )
        for entry in ranked[:_ROWS]
    ]
    lines = [table(("run", result.rule.metric, *keys), rows, right=range(1, len(keys) + 2))]
    if len(ranked) > _ROWS:
        lines.append(f"and {len(ranked) - _ROWS} more: `dslc sweep --json` shows all")
    if not result.comparable:
        lines.append("warning: the trials were evaluated on different data, so their values cannot be compared")
    left = result.total - sum(entry.done for entry in result.entries)
    if left > 0:
        lines.append(f"{left} of {result.total} trials are not done; the same command goes on")
    failed = [entry for entry in result.entries if entry.error is not None]
    lines += [f"{sweep}/{entry.folder} failed: {entry.error}" for entry in failed[:_FAILURES]]
    if failed:
        lines.append(f"{len(failed)} of {result.total} trials failed; `dslc sweep --retry` runs them again")
    best = result.best
    if best is not None and best.result is not None:
        run = f"{sweep}/{best.folder}"
        lines.append(f"best: {run}, {best.result.metric} {best.result.value:.4g}  {said(best.values)}")
        other = _other_model(plan, best)
        first = f"write {said(other)} into {plan.base.path}, run `dslc build`, then " if other else ""
        if published is None:
            lines.append(f"to publish its weights: {first}`dslc publish {run}`")
    return [one_line(line) if "\n" not in line else line for line in lines]


def _data(result: SweepResult, published: str | None) -> dict[str, Any]:
    best = result.best
    return {
        "folder": str(result.folder),
        "metric": result.rule.metric,
        "highest": result.rule.highest,
        "trials": [
            {
                "run": f"{result.folder.name}/{entry.folder}",
                **entry.as_json(),
                "folder": str(result.folder / entry.folder),
            }
            for entry in result.entries
        ],
        "best": None if best is None else f"{result.folder.name}/{best.folder}",
        "published": published,
        "exit_code": result.exit_code,
    }
