"""``dslc train``"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK, NumericError
from dslc.base.version import has_compiler
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import session_of
from dslc.cli.options import trust_option
from dslc.cli.output import emit, settings
from dslc.cli.settings import config_options, read_config

if TYPE_CHECKING:
    from dslc.runtime.train.diagnose import NonfiniteStep, Overfit
    from dslc.runtime.train.loop import TrainResult


@click.command(cls=Command)
@config_options
@click.option("--weights", metavar="FILE", help="Start from these weights instead of initial ones.")
@click.option(
    "--map",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="Rename tensors of the weights file, by name, prefix or pattern; or the name of a map.",
)
@click.option(
    "--partial", is_flag=True, help="Tensors that the file lacks, or has in another shape, keep their initial values."
)
@click.option(
    "--replace",
    multiple=True,
    metavar="NAMES",
    help="These tensors keep their initial values, such as `head`. Repeatable.",
)
@click.option(
    "--resume",
    metavar="[RUN]",
    is_flag=False,
    flag_value="",
    help="Continue from the newest valid checkpoint of the newest run, or of the run with this name.",
)
@click.option(
    "--allow-changes", is_flag=True, help="Resume although the configuration has changed since the checkpoint."
)
@click.option(
    "--overfit-one-batch",
    "overfit",
    is_flag=True,
    help="Train on one batch only, to check that the model can learn it.",
)
@click.option("--steps", metavar="N", type=click.IntRange(2, 10**6), help="Steps of --overfit-one-batch; default: 200.")
@click.option("--no-publish", is_flag=True, help="Keep the weights in the run's folder only, however good they are.")
@click.option("--find-nan", is_flag=True, help="Replay the run and name the first node that is not finite.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto.")
@click.option(
    "--processes", metavar="N", type=click.IntRange(1, 1024), help="Train with N processes of this host: docs/scale.md."
)
@click.option("--gpus", metavar="N", type=click.IntRange(1, 1024), help="Train on N GPUs of this host: docs/scale.md.")
@trust_option
def command(
    weights: str | None,
    renames: tuple[str, ...],
    partial: bool,
    replace: tuple[str, ...],
    resume: str | None,
    allow_changes: bool,
    overfit: bool,
    steps: int | None,
    no_publish: bool,
    find_nan: bool,
    device: str,
    processes: int | None,
    gpus: int | None,
    trust: bool,
    **flags: Any,
) -> int:
    """Train the model of ./dslc.yaml; build it first if needed.

    A build is for this machine's CPU, and for its GPU if --device or --gpus names it; `dslc build` builds for all CPUs.

    Ctrl-C finishes the step, saves a checkpoint and exits with 130; `dslc train --resume` continues. The weights stay
    in the run's folder. They are published as build/NAME/NAME.safetensors if nothing is published there, or if they are
    better; `dslc publish RUN` publishes others. For --weights of another model, --map renames tensors, and --replace
    names those of a new head.

    With --processes or --gpus, or if torchrun, srun or mpirun starts it, several processes share the shards of a step
    (`mesh`), each with its GPU or its part of the CPU: the bits are the same for any number of them.
    """
    from dslc.cli import ranks
    from dslc.cli.compile import artifact_of, check_config, foreseen
    from dslc.runtime.ranks.shared import Leader, follow
    from dslc.runtime.sinks.known import require_sinks
    from dslc.runtime.train import diagnose
    from dslc.runtime.train.diagnose import overfit_one_batch
    from dslc.runtime.train.files import require_data, require_weights
    from dslc.runtime.train.loop import train
    from dslc.runtime.train.progress import reporter
    from dslc.runtime.train.resume import continued, fitted_of_run, plan_before_build
    from dslc.runtime.train.setup import planned
    from dslc.runtime.train.start import require_start
    from dslc.runtime.train.trainable import Trainable

    resuming = resume is not None
    if allow_changes and not resuming:
        raise click.UsageError("--allow-changes needs --resume")
    if weights is not None and resuming:
        raise click.UsageError("--weights and --resume exclude each other: a checkpoint has its weights")
    _check_flags(overfit=overfit, find_nan=find_nan, resume=resuming, steps=steps)
    start = {"weights": weights, "map": name_map(renames), "partial": partial or None, "replace": replace or None}
    if gpus is not None and (processes is not None or device == "cpu"):
        raise click.UsageError(f"--gpus and --{'device cpu' if processes is None else 'processes'} exclude each other")
    place = ranks.place(processes, gpus)
    count = processes or gpus or 1
    if (place is not None or count > 1) and (overfit or find_nan):
        raise click.UsageError("--overfit-one-batch and --find-nan run in one process")
    if place is None and count > 1:
        return ranks.start(count)
    device = ranks.device_of(place, device, gpus)
    out = sys.stderr if settings().json else sys.stdout  # with --json, stdout holds only the result
    with ranks.joined(place) as group, ranks.console_of(group, out) as console:
        config = read_config(**flags, start=start)
        require_data(config, training=True)
        require_sinks(config.save.sinks)
        line = reporter(console).line
        run = ranks.decided(  # its name, or True for the newest
            group, lambda: continued(config, resume or resuming, line, allow_changes=allow_changes)
        )
        require_weights(None if run else config.start.weights)
        checked = check_config(config) if has_compiler() else None
        plan = None
        if checked is not None:  # weights and data that do not fit are refused before the build
            model = foreseen(config, checked)
            if not (run or find_nan):
                require_start(config.start, model.weights)
            plan = plan_before_build(config, model, reporter(console).line, resume=run, replay=find_nan)
        artifact = ranks.built(group, lambda: artifact_of(config, trust=trust, checked=checked, device=device))
        assert artifact.path is not None
        part = (0, 1) if place is None else (place.rank, place.size)
        seed = config.train.seed
        with session_of(artifact, device=device, weights="init", seed=seed, use="train", part=part) as session:
            if overfit:
                return _report_overfit(overfit_one_batch(config, session, steps or 200, console, plan))
            if find_nan:
                return _report_nonfinite(diagnose.find_nan(config, session, console, plan))
            folder = None if no_publish else artifact.path.parent
            trained: Trainable = session
            if group is not None:
                fitted = fitted_of_run(config, run) if run and plan is None else None
                whole = planned(config, session, plan, reporter(console).line, fitted)
                trained, plan = ranks.shared(config, session, whole, group)
                if group.rank > 0:
                    return follow(config, session, plan, group)
            result = train(
                config, trained, folder, resume=run, console=console, plan=plan, allow_changes=allow_changes
            )  # fmt: skip
            if isinstance(trained, Leader):
                trained.end(result.exit_code)
    emit(_data(result), one_line(_text(result)))
    return result.exit_code


def name_map(texts: tuple[str, ...]) -> list[str | dict[str, str]] | None:
    """The names of maps, and one mapping of all ``OLD=NEW`` texts, which overrides them; None if there are none. A
    usage error for a malformed text or a repeated name."""
    maps: list[str | dict[str, str]] = []
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals and ("/" in old or old.endswith((".map", ".yaml", ".yml"))):
            maps.append(old)
            continue
        if not (old and new) or old in found:
            why = "is given twice" if old in found else "is not OLD=NEW, nor the name of a map"
            raise click.BadParameter(f"{text!r} {why}", param_hint="--map")
        found[old] = new
    return maps + ([found] if found else []) or None


def _check_flags(*, overfit: bool, find_nan: bool, resume: bool, steps: int | None) -> None:
    if overfit + find_nan + resume > 1:
        raise click.UsageError("--overfit-one-batch, --find-nan and --resume exclude each other")
    if steps is not None and not overfit:
        raise click.UsageError("--steps needs --overfit-one-batch; --epochs sets the length of a training")


def _report_overfit(found: Overfit) -> int:
    """Exit code 1 (a difference) if the batch was not learned."""
    said = f"loss {found.first:.4g} -> {found.last:.4g} in {found.steps} steps on one batch"
    verdict = (
        "the model can learn it"
        if found.learned
        else "the batch was not learned: check the learning rate (--lr), the labels and the loss, or try more --steps"
    )
    data = {"first": found.first, "last": found.last, "steps": found.steps, "learned": found.learned}
    emit(data, f"{said}: {verdict}")
    return EXIT_OK if found.learned else EXIT_DIFFERENCE


def _report_nonfinite(found: NonfiniteStep | None) -> int:
    if found is None:
        emit({"step": None}, "every step up to the end of the run is finite")
        return EXIT_OK
    what = found.what if found.what is not None else "a gradient; all results are finite"
    raise NumericError(
        "R501",
        f"in step {found.step}, replayed from step {found.start}: {what}",
        place=f"step {found.step}",
        help="try a lower learning rate (--lr) or a warm-up; look at the node's inputs (log, division, exp)",
    )


def _text(result: TrainResult) -> str:
    if result.weights is None:
        return f"stopped after {result.steps} steps; `dslc train --resume` continues from {result.checkpoint}"
    from dslc.runtime.train.progress import numbers

    where = result.published or result.weights
    return f"{result.steps} steps; {numbers(result.metrics) or 'not evaluated'}; weights in {where}"


def _data(result: TrainResult) -> dict[str, Any]:
    return {
        "steps": result.steps,
        "metrics": dict(result.metrics),
        "run": str(result.run_dir),
        "checkpoint": None if result.checkpoint is None else str(result.checkpoint),
        "weights": None if result.weights is None else str(result.weights),
        "published": None if result.published is None else str(result.published),
        "exit_code": result.exit_code,
        **({} if result.started is None else {"started": dict(result.started)}),
    }
