"""From a checked model to an artifact: every entry at every size runs the passes of ``passes/order.py``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from dslc.base.cache import Cache
from dslc.base.errors import BuildError
from dslc.compiler.artifact.budget import bytes_needed, check_budget
from dslc.compiler.artifact.interface import interface
from dslc.compiler.artifact.naming import artifact_name
from dslc.compiler.artifact.state_layout import StateLayout, layout_state
from dslc.compiler.build_result import BuildResult, EntryReport, entry_report
from dslc.compiler.check import entries
from dslc.compiler.check.model import Checked
from dslc.compiler.check.rows import batch_rows
from dslc.compiler.codegen.targets import ARCHITECTURES, DEFAULT
from dslc.compiler.collection import no_collection
from dslc.compiler.ir.build import Build, LossScale, Precision
from dslc.compiler.ir.choice import NO_CHOICES, Choices
from dslc.compiler.ir.program import TRAINING, Program, untitled
from dslc.compiler.ir.types import DType
from dslc.compiler.lock.choices import origins, provenance, require
from dslc.compiler.options import (
    Options,
    Sizes,
    budget_of,
    entry_sizes,
    precision_of,
    recorded_options,
    rounded_up,
    train_sizes,
)
from dslc.compiler.passes.mirror.mirror import plans
from dslc.compiler.passes.order import FUSING, LOWERING, PIPELINE, PLANNING
from dslc.compiler.passes.plan.prepared_program import prepare_program, relocated
from dslc.compiler.passes.plan.workspaces import with_limit
from dslc.compiler.passes.runner import Keep, PassReport, pass_name, run_passes
from dslc.runtime.artifact.header_schema import PREPARE

Progress = Callable[[str, int, int], None]


def cut(checked: Checked, entry: str, sizes: Sizes, scale: LossScale | None = None) -> Program:
    """The Program of an entry of ``entry_sizes`` before any pass. ``scale``: the loss scale of this precision."""
    entry, turn = untitled(entry)
    trained = {
        "accumulate_step": entries.accumulate_step,
        "train_step": entries.train_step,
        "update_step": entries.update_step,
    }
    if entry in trained:
        return trained[entry](checked, sizes, scale, turn)
    if entry == "init":
        return entries.init(checked, sizes, scale)
    others = {"eval_step": entries.eval_step, "eval_finish": entries.eval_finish, "predict": entries.predict}
    return others[entry](checked, sizes)


def build_options(checked: Checked, options: Options, layout: StateLayout, target: str = DEFAULT) -> Build:
    """The frozen Build that the passes read."""
    dtypes = precision_of(checked, options)
    return Build(
        target=target,
        provider=options.provider,
        precision=dtypes,
        fuse=options.fuse,
        mirror="never" if options.mirror == "never" else "auto",
        mirror_words=checked.mirror,
        streams=options.streams,
        choices=options.tuned[target].choices if target in options.tuned else NO_CHOICES,
        prepare=options.prepare == "auto",
        budget=None if (budget := budget_of(checked, options)) is None else budget - layout.bytes,
        train=entries.train_spec(checked, dtypes.loss_scale),
        state=layout.offsets,
        state_bytes=layout.bytes,
        pieces=layout.pieces,
    )


def compile_entry(
    checked: Checked,
    entry: str,
    sizes: Sizes,
    options: Options,
    *,
    target: str | None = None,
    after: str | None = None,
    keep: Keep | None = None,
    choices: Choices | None = None,
) -> tuple[Program, tuple[PassReport, ...]]:
    """Runs the passes over one entry: all of them, or those up to and including the pass named ``after``.

    ``target``: one of the options' targets, by default the first. ``keep`` is called with the program after each pass.
    ``choices``: replaces the measurements of the options.
    """
    options.check()
    target = target or options.targets[0]
    dtypes = precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale, _trained_sizes(checked, options, entry, sizes))
    build = build_options(checked, options, layout, target)
    if choices is not None:
        build = replace(build, choices=choices)
    if entry == "eval_finish":  # a few scalars, combined in f64 for every precision
        build = replace(build, precision=Precision(DType.F64, build.precision.params))
    names = [pass_name(p) for p in PIPELINE]
    if after is not None and after not in names:
        raise BuildError("E0603", f"there is no pass `{after}`", place="--after", help=f"passes: {', '.join(names)}")
    program = replace(cut(checked, entry, sizes, dtypes.loss_scale), target=target)
    return run_passes(program, jointly(program, build), PIPELINE, until=after, keep=keep)


def _trained_sizes(checked: Checked, options: Options, entry: str, sizes: Sizes) -> Sizes:
    """The sizes of the training step whose states lie in the state region."""
    return sizes if untitled(entry)[0] in TRAINING else train_sizes(checked, options)


def jointly(program: Program, build: Build) -> Build:
    """The build whose measured ways share a limit of their workspaces: that with which the program, before any pass,
    fits the budget and ends first. The same build without a budget or without measurements."""
    if build.budget is None or not build.choices.ways:
        return build
    with no_collection():
        lowered = _lowered(program, build)
        return with_limit(build, lambda each: plans(lowered, [each], FUSING, PLANNING)[0])


def _lowered(program: Program, build: Build) -> Program:
    for step in LOWERING:
        program = step(program, build)
    return program


def foresee(
    checked: Checked, entry: str, sizes: Sizes, options: Options, mirrors: Sequence[str | int]
) -> list[Program]:
    """The program that ``compile_entry`` would plan for each value of ``Options.mirror``, for the options' first
    target. The programs are not verified, and shared parts are computed once, so this is much faster."""
    options.check()
    target, dtypes = options.targets[0], precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale, _trained_sizes(checked, options, entry, sizes))
    builds = [build_options(checked, replace(options, mirror=each), layout, target) for each in mirrors]
    program = replace(cut(checked, entry, sizes, dtypes.loss_scale), target=target)
    with no_collection():
        program = _lowered(program, builds[0])
        if not builds[0].choices.ways:
            return plans(program, builds, FUSING, PLANNING)

        def planned(build: Build) -> Program:
            return plans(program, [build], FUSING, PLANNING)[0]

        return [planned(with_limit(build, planned)) for build in builds]


def build(
    checked: Checked, options: Options, progress: Progress | None = None, cache: Cache | None = None
) -> BuildResult:
    """Compiles every entry and assembles the artifact. Raises BuildError and DslcError; EnvironmentFault R210 if the
    options say ``locked`` and the lock lacks a problem.

    ``cache``: the cache of compiled kernels, by default this user's.
    """
    started = time.monotonic()
    options.check()
    dtypes = precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale, train_sizes(checked, options))
    wanted = [(target, *each) for target in options.targets for each in entry_sizes(checked, options)]
    name = artifact_name(checked, options.name)
    programs, reports = _programs(checked, options, layout, wanted, progress)
    gpus = [target for target in options.targets if target in ARCHITECTURES]
    chosen = {target: origins(programs, target, options.tuned.get(target)) for target in gpus}
    if options.locked:
        require(chosen, options.tuned)
    batch = None if checked.batch is None else max(p.sizes[checked.batch.name] for p in programs)
    need = bytes_needed(layout, programs)
    mirrored = any(program.mirrored is not None for program in programs)
    fits_at = partial(_need_at, checked, options, layout)
    check_budget(checked, budget_of(checked, options), batch, need, fits_at, mirrored=mirrored)
    if progress is not None:
        progress("artifact", len(wanted), len(wanted))
    from dslc.compiler.artifact.emit import About, emit_artifact  # imported here because a forecast does not need it
    from dslc.compiler.toolchain.kernel_compiler import KernelCompiler
    from dslc.compiler.toolchain.versions import toolchain

    compiler = KernelCompiler(Cache.open() if cache is None else cache, progress)
    about = About(
        name=name,
        model=checked.name,
        interface=interface(checked, name, dtypes),
        options=recorded_options(checked, options),
        toolchain=toolchain(options.targets),
        source_sha256=checked.digest,
        rows=batch_rows(checked),
        provider=options.provider,
        lock=provenance(programs, options.tuned),
        packages=[each.provenance for each in checked.packages],
    )
    artifact, header = emit_artifact(programs, about, layout, compiler, options.level)
    counts = compiler.cache.counts
    seconds = time.monotonic() - started
    return BuildResult(
        name, artifact, header, tuple(programs), tuple(reports), seconds, compiler.asked, counts, compiler.loose, chosen
    )


def _programs(
    checked: Checked,
    options: Options,
    layout: StateLayout,
    wanted: Sequence[tuple[str, str, Sizes]],
    progress: Progress | None,
) -> tuple[list[Program], list[EntryReport]]:
    """The program of each wanted (target, entry, sizes), with its report; then one per target that prepares what they
    read from the weights."""
    programs: list[Program] = []
    reports: list[EntryReport] = []
    for i, (target, entry, sizes) in enumerate(wanted):
        if progress is not None:
            progress(_title(entry, sizes), i, len(wanted))
        program, passes = compile_entry(checked, entry, sizes, options, target=target)
        programs.append(program)
        reports.append(entry_report(program, passes))
    for target in options.targets:
        made = compile_prepare(checked, programs, options, layout, target)
        if made is not None:
            programs = [relocated(p, made[0]) if p.target == target and p.prepared else p for p in programs]
            programs.append(made[0])
            reports.append(entry_report(*made))
    return programs, reports


def compile_prepare(
    checked: Checked, programs: Iterable[Program], options: Options, layout: StateLayout, target: str = DEFAULT
) -> tuple[Program, tuple[PassReport, ...]] | None:
    """The program ``prepare`` of a target: what its finished programs of ``predict`` read prepared, each value once.
    None if they read nothing of this kind."""
    program = prepare_program(_default_sizes(checked), [p for p in programs if p.target == target])
    build = build_options(checked, options, layout, target)
    return None if program is None else run_passes(program, build, PLANNING)


def inspect_prepare(
    checked: Checked, options: Options, *, after: str | None = None, keep: Keep | None = None
) -> Program:
    """``prepare`` of the options' first target after the pass named ``after``, before all for None. ``keep``: as for
    ``compile_entry``. BuildError E0508 if nothing is prepared, E0603 for a pass that `prepare` does not run."""
    names = [pass_name(step) for step in PLANNING]
    if after is not None and after not in names:
        raise BuildError("E0603", f"`{PREPARE}` runs no pass `{after}`", place="--after", help=", ".join(names))
    sizes = [each for name, each in entry_sizes(checked, options) if name == "predict"]
    program = prepare_program(
        _default_sizes(checked), [compile_entry(checked, "predict", each, options)[0] for each in sizes]
    )
    if program is None:
        cause = f"`predict` of `{checked.name}` reads nothing that is computed from the weights alone"
        raise BuildError("E0508", cause, place="--entry", help="use --entry predict")
    dtypes = precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale, train_sizes(checked, options))
    build = build_options(checked, options, layout, options.targets[0])
    return program if after is None else run_passes(program, build, PLANNING, until=after, keep=keep)[0]


def foresee_prepare(
    checked: Checked, programs: Iterable[Program], options: Options, layout: StateLayout
) -> list[Program]:
    """The program that ``compile_prepare`` would plan for the options' first target, or none; not verified."""
    program = prepare_program(_default_sizes(checked), programs)
    if program is None:
        return []
    build = build_options(checked, options, layout, program.target)
    with no_collection():
        for step in PLANNING:
            program = step(program, build)
    return [program]


def _default_sizes(checked: Checked) -> dict[str, int]:
    return {dim.name: dim.default for dim in checked.dims}


def _title(entry: str, sizes: Sizes) -> str:
    return f"{entry} {' '.join(f'{n}={v}' for n, v in sizes.items())}".strip()


def _need_at(checked: Checked, options: Options, layout: StateLayout, batch: int) -> int:
    """``bytes_needed`` for another size of the batch dim, with as much recomputation as possible."""
    assert checked.batch is not None
    family = "predict" if checked.train is None else "train"
    batch = rounded_up(checked, {checked.batch.name: batch})[checked.batch.name]
    sizes = {**options.sizes, family: {**options.sizes.get(family, {}), checked.batch.name: (batch,)}}
    smaller = replace(options, sizes=sizes)
    largest = ("predict",) if checked.train is None else ("accumulate_step", "train_step", "update_step")
    wanted = [(e, s) for e, s in entry_sizes(checked, smaller) if untitled(e)[0] in largest]
    mirror = "never" if options.mirror == "never" else 1  # byte
    return bytes_needed(layout, [p for e, s in wanted for p in foresee(checked, e, s, smaller, (mirror,))])
