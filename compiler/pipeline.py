"""From a checked model to an artifact: the passes in their order, the entries, the sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dslc.base.cache import Cache, Counts
from dslc.base.errors import BuildError
from dslc.compiler import entries
from dslc.compiler.budget import check_budget
from dslc.compiler.check.model import Checked, check_all, check_file, check_program
from dslc.compiler.codegen.select import select
from dslc.compiler.codegen.target import ARCHITECTURES, TARGETS
from dslc.compiler.emit import emit_artifact
from dslc.compiler.interface import interface
from dslc.compiler.ir.build import Build, LossScale, Pass, Precision
from dslc.compiler.ir.op import OPS
from dslc.compiler.ir.program import Mirrored, Program
from dslc.compiler.ir.types import DType
from dslc.compiler.layout import StateLayout, layout_state
from dslc.compiler.naming import artifact_name
from dslc.compiler.passes.absorb import absorb
from dslc.compiler.passes.again import again
from dslc.compiler.passes.autodiff import autodiff
from dslc.compiler.passes.beside import beside
from dslc.compiler.passes.decompose import decompose
from dslc.compiler.passes.dropped import dropped
from dslc.compiler.passes.fuse import fuse
from dslc.compiler.passes.gather import gather
from dslc.compiler.passes.join import join
from dslc.compiler.passes.keep import keep
from dslc.compiler.passes.layout import layout
from dslc.compiler.passes.memory import memory
from dslc.compiler.passes.mirror import mirror_against
from dslc.compiler.passes.precision import precision
from dslc.compiler.passes.runner import Keep, PassReport, pass_name, run_passes
from dslc.compiler.passes.schedule import schedule
from dslc.compiler.passes.simplify import simplify
from dslc.compiler.passes.streams import streams
from dslc.compiler.toolchain.kernels import KernelCompiler
from dslc.compiler.toolchain.versions import toolchain

_FUSING: Final[tuple[Pass, ...]] = (fuse, gather, join, absorb, again, keep, dropped, beside)
_PLANNING: Final[tuple[Pass, ...]] = (select, schedule, streams, memory)


def mirror(program: Program, build: Build) -> Program:
    """Computes values again in the backward pass where the passes behind then need fewer bytes."""
    return mirror_against(program, build, _FUSING, _PLANNING)


PIPELINE: Final[tuple[Pass, ...]] = (
    autodiff, precision, layout, decompose, simplify, mirror, *_FUSING, *_PLANNING
)  # fmt: skip
#: What each kind of target computes in and keeps its parameters in.
_CPU_DTYPES: Final = ("f32", "f64")
_GPU_DTYPES: Final = ("f32", "f64", "bf16")
_GPU_COMPUTES: Final = (*_GPU_DTYPES, "f16")
PROVIDERS: Final = ("reference", "auto", "own", "vendor")

Sizes = Mapping[str, int]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """Build options. ``sizes``: entry family (train, eval, predict) -> dim -> the values to build.

    ``bulk``: the most kernels that a GPU is given at once, 0 for one launch and one wait each; None for all of a step.
    ``streams``: on how many streams of a GPU kernels may run, 1 or 2. ``gather``: on a GPU one launch for many small
    tensors, dropout within its neighbours' kernels, and cheap values computed again by who reads them.
    ``steps_per_launch``: how many training steps a GPU is given at once, where they come together.
    ``target``: names joined by commas; an artifact holds the programs of each. ``precision`` overrides the file's
    compute and parameter types at once. ``mirror``: ``auto`` (values may be computed again in the backward pass where
    that costs next to nothing, or where the budget asks for it), ``never``, or bytes: a budget in place of the file's.
    """

    target: str = "cpu"
    provider: str = "auto"
    precision: str | None = None
    sizes: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    name: str | None = None
    fuse: bool = True
    bulk: int | None = None
    streams: int = 1
    gather: bool = False
    steps_per_launch: int = 1
    mirror: str | int = "auto"

    @property
    def targets(self) -> tuple[str, ...]:
        """Each target once, in the order of ``TARGETS``; ``auto`` is the CPU."""
        asked = {"cpu" if name == "auto" else name for name in self.target.split(",")}
        return tuple(t for t in TARGETS if t in asked)

    def check(self) -> None:
        """BuildError E0601 or E0602 for an option that is not known."""
        for name in self.target.split(","):
            if name not in ("auto", *TARGETS):
                known = ", ".join(("auto", *TARGETS))
                raise BuildError("E0601", f"the target `{name}` is not known", place="--target", help=f"use {known}")
        if self.provider not in PROVIDERS:
            raise BuildError("E0603", f"the provider `{self.provider}` is not known", place="--providers",
                             help=f"use {', '.join(PROVIDERS)}")  # fmt: skip
        if self.provider == "vendor" and self.targets == ("cpu",):
            raise BuildError("E0603", "the provider `vendor` is of libraries for GPUs", place="--providers",
                             help="add a GPU, as --target sm_90, or use auto")  # fmt: skip


@dataclass(frozen=True)
class EntryReport:
    """What one Program came to."""

    entry: str
    target: str
    sizes: Sizes
    nodes: int
    io_bytes: int
    work_bytes: int
    lower_bound: int
    mirrored: Mirrored | None
    passes: tuple[PassReport, ...]


@dataclass(frozen=True)
class BuildResult:
    """An artifact in memory, not yet published. ``kernels``: how many it has; ``cache``: where their code came from."""

    name: str
    artifact: bytes
    header: Mapping[str, Any]
    programs: tuple[Program, ...]
    reports: tuple[EntryReport, ...]
    seconds: float
    kernels: int
    cache: Counts


def precision_of(checked: Checked, options: Options) -> Precision:
    """The storage dtypes of a build; E0602 for one that a target lacks. ``--precision bf16`` (or f16) keeps the
    parameters in f32. In f16 the loss is scaled."""
    compute = options.precision or checked.precision.compute
    params = options.precision or checked.precision.params
    if options.precision in ("bf16", "f16"):
        params = "f32"
    for target in options.targets:
        computes, keeps = (_CPU_DTYPES, _CPU_DTYPES) if target == "cpu" else (_GPU_COMPUTES, _GPU_DTYPES)
        for does, name, dtypes in (("compute", compute, computes), ("keep parameters", params, keeps)):
            if name not in dtypes:
                raise BuildError(
                    "E0602",
                    f"the target {target} does not {does} in {name}",
                    place="--precision" if options.precision else "precision",
                    help="build with --precision f32",
                )
    if options.precision is None:
        for where, name in (*checked.precision.ops.items(), *(("@precision", n) for n in checked.precision.blocks)):
            if name != compute and not _keeps_statistics(where, name, compute):
                raise BuildError(
                    "E0602",
                    f"everything is computed in {compute}, not `{where}` in {name}",
                    place="precision",
                    help=f"build with --precision {compute}, which decides for all",
                )
    return Precision(DType(compute), DType(params), LossScale() if compute == "f16" else None)


def _keeps_statistics(function: str, asked: str, compute: str) -> bool:
    """Whether ``batchnorm = f32`` and the like say what is so anyway beside 16-bit floats: statistics and weights of
    normalisations are f32, their tensors are not."""
    op = OPS.get(function)
    return asked == "f32" and compute in ("bf16", "f16") and op is not None and bool(op.statistics)


def entry_sizes(checked: Checked, options: Options) -> list[tuple[str, Sizes]]:
    """Every Program to build: (entry, value of each dim). BuildError E0603, E0304 for sizes that do not fit."""
    dims = {d.name: d for d in checked.dims}
    for family, wanted in options.sizes.items():
        if family not in ("train", "eval", "predict"):
            raise BuildError("E0603", f"`{family}` has no sizes", place="sizes", help="use train, eval, predict")
        for name, values in wanted.items():
            if name not in dims:
                known = ", ".join(dims) or "none"
                raise BuildError("E0603", f"the file declares no dim `{name}`", place="--size", help=f"it has {known}")
            for value in values:
                if not dims[name].low <= value <= dims[name].high:
                    low, high = dims[name].low, dims[name].high
                    raise BuildError("E0304", f"{name}={value} is not in {low}..{high}", place="--size",
                                     help=f"choose a size in the bounds of `dim {name}`")  # fmt: skip
    defaults = {d.name: d.default for d in checked.dims}
    found: list[tuple[str, Sizes]] = [("init", defaults)]
    if checked.train is not None:
        if checked.train.accumulate > 1:
            found += [("accumulate_step", s) for s in _family(checked, options, "train")]
        found += [("train_step", s) for s in _family(checked, options, "train")]
        found += [("eval_step", s) for s in _family(checked, options, "eval")]
        found += [("eval_finish", defaults)]
    found += [("predict", s) for s in _family(checked, options, "predict")]
    return found


def _family(checked: Checked, options: Options, family: str) -> list[Sizes]:
    wanted = options.sizes.get(family, {})
    trained = options.sizes.get("train", {})
    result: list[dict[str, int]] = [{}]
    for dim in checked.dims:
        values = wanted.get(dim.name)
        if values is None:
            values = trained.get(dim.name) or (dim.default,)
            if family != "train" and dim == checked.batch:
                values = (dim.low, *values)
        elif family == "train" and len(values) != 1:
            raise BuildError("E0603", f"training takes one size of `{dim.name}`", place="--size")
        result = [{**sizes, dim.name: v} for sizes in result for v in sorted(set(values))]
    return list(result)


def cut(checked: Checked, entry: str, sizes: Sizes, scale: LossScale | None = None) -> Program:
    """The Program of an entry before any pass. ``scale``: that of the build's precision."""
    trained = {
        "init": entries.init,
        "accumulate_step": entries.accumulate_step,
        "train_step": entries.train_step,
    }
    if entry in trained:
        return trained[entry](checked, sizes, scale)
    return {
        "eval_step": entries.eval_step,
        "eval_finish": entries.eval_finish,
        "predict": entries.predict,
    }[entry](checked, sizes)


def build_options(checked: Checked, options: Options, layout: StateLayout, target: str = "cpu") -> Build:
    """The frozen Build that the passes read."""
    asked = precision_of(checked, options)
    return Build(
        target=target,
        provider=options.provider,
        precision=asked,
        fuse=options.fuse,
        mirror="never" if options.mirror == "never" else "auto",
        mirror_words=checked.mirror,
        streams=options.streams,
        gather=options.gather,
        budget=None if (budget := budget_of(checked, options)) is None else budget - layout.bytes,
        train=entries.train_spec(checked, asked.loss_scale),
        state=layout.offsets,
        state_bytes=layout.bytes,
    )


def budget_of(checked: Checked, options: Options) -> int | None:
    """Bytes of one session, at most: the option's, else the file's; None without one."""
    return options.mirror if isinstance(options.mirror, int) else checked.budget


def compile_entry(
    checked: Checked,
    entry: str,
    sizes: Sizes,
    options: Options,
    *,
    target: str | None = None,
    after: str | None = None,
    keep: Keep | None = None,
) -> tuple[Program, tuple[PassReport, ...]]:
    """Runs the passes over one entry, all of them or up to and with the pass named ``after``.

    ``target``: one of the options' targets, by default the first. ``keep`` is given the program after each pass.
    """
    options.check()
    target = target or options.targets[0]
    asked = precision_of(checked, options)
    layout = layout_state(checked, asked.params, asked.loss_scale)
    build = build_options(checked, options, layout, target)
    if entry == "eval_finish":  # a handful of scalars, combined in f64 whatever was computed
        build = replace(build, precision=Precision(DType.F64, build.precision.params))
    names = [pass_name(p) for p in PIPELINE]
    if after is not None and after not in names:
        raise BuildError("E0603", f"there is no pass `{after}`", place="--after", help=f"passes: {', '.join(names)}")
    program = replace(cut(checked, entry, sizes, asked.loss_scale), target=target)
    return run_passes(program, build, PIPELINE, until=after, keep=keep)


def build(
    checked: Checked, options: Options, progress: Progress | None = None, cache: Cache | None = None
) -> BuildResult:
    """Compiles every entry and puts the artifact together. Raises BuildError and DslcError.

    ``cache``: of compiled kernels, by default that of this user.
    """
    started = time.monotonic()
    options.check()
    dtypes = precision_of(checked, options)
    layout = layout_state(checked, dtypes.params, dtypes.loss_scale)
    wanted = [(target, *each) for target in options.targets for each in entry_sizes(checked, options)]
    name = artifact_name(checked, options.name)
    programs: list[Program] = []
    reports: list[EntryReport] = []
    for i, (target, entry, sizes) in enumerate(wanted):
        if progress is not None:
            progress(_title(entry, sizes), i, len(wanted))
        program, passes = compile_entry(checked, entry, sizes, options, target=target)
        programs.append(program)
        memory_plan = program.memory
        assert memory_plan is not None
        reports.append(
            EntryReport(
                entry,
                target,
                sizes,
                len(program.graph.nodes),
                memory_plan.io_bytes,
                memory_plan.work_bytes,
                memory_plan.lower_bound,
                program.mirrored,
                passes,
            )
        )
    batch = None if checked.batch is None else max(p.sizes[checked.batch.name] for p in programs)
    need = _need(layout, programs)
    mirrored = any(program.mirrored is not None for program in programs)
    fits_at = partial(_need_at, checked, options, layout)
    check_budget(checked, budget_of(checked, options), batch, need, fits_at, mirrored=mirrored)
    if progress is not None:
        progress("artifact", len(wanted), len(wanted))
    compiler = KernelCompiler(Cache.open() if cache is None else cache, progress)
    artifact, header = emit_artifact(
        programs,
        name=name,
        model=checked.name,
        interface=interface(checked, name, dtypes),
        layout=layout,
        options=recorded_options(checked, options),
        toolchain=toolchain(options.targets),
        source_sha256=checked.digest,
        row_independent=_rows_independent(checked),
        provider=options.provider,
        compiler=compiler,
    )
    counts = compiler.cache.counts
    seconds = time.monotonic() - started
    return BuildResult(name, artifact, header, tuple(programs), tuple(reports), seconds, compiler.asked, counts)


def _title(entry: str, sizes: Sizes) -> str:
    return f"{entry} {' '.join(f'{n}={v}' for n, v in sizes.items())}".strip()


def _rows_independent(checked: Checked) -> bool:
    if checked.batch is None:
        return False
    program = entries.predict(checked, {d.name: d.default for d in checked.dims})
    batched = {
        i.name for i in checked.model_inputs if i.value.type.shape and str(i.value.type.shape[0]) == checked.batch.name
    }
    return entries.rows_independent(program.graph, batched)


def recorded_options(checked: Checked, options: Options) -> dict[str, Any]:
    """The options as the header holds them: everything that decides the bytes. A build is stale when they differ."""
    dtypes = precision_of(checked, options)
    return {
        "args": {n: v for n, v in checked.args.items() if isinstance(v, (bool, int, float, str))},
        "target": ",".join(options.targets),
        "providers": options.provider,
        "precision": {"compute": dtypes.compute.value, "params": dtypes.params.value},
        "fuse": options.fuse,
        "bulk": "all" if options.bulk is None else options.bulk,
        "steps_per_launch": options.steps_per_launch,
        "streams": options.streams,
        **({"gather": True} if options.gather else {}),
        "mirror": options.mirror,
        "sizes": {
            family: {dim: list(values) for dim, values in dims.items()} for family, dims in options.sizes.items()
        },
    }


def _need(layout: StateLayout, programs: Iterable[Program]) -> int:
    """Bytes of one session: the state, and io and work of the largest entry, which the others overlay."""
    plans = [p.memory for p in programs if p.memory is not None]
    return layout.bytes + max(plan.io_bytes + plan.work_bytes for plan in plans)


def _need_at(checked: Checked, options: Options, layout: StateLayout, batch: int) -> int:
    """As ``_need``, for another size of the batch dim."""
    assert checked.batch is not None
    family = "predict" if checked.train is None else "train"
    sizes = {**options.sizes, family: {**options.sizes.get(family, {}), checked.batch.name: (batch,)}}
    smaller = replace(options, sizes=sizes)
    largest = ("predict",) if checked.train is None else ("accumulate_step", "train_step")
    wanted = [(e, s) for e, s in entry_sizes(checked, smaller) if e in largest]
    return _need(layout, [compile_entry(checked, e, s, smaller)[0] for e, s in wanted])


__all__ = [
    "ARCHITECTURES",
    "PIPELINE",
    "TARGETS",
    "BuildResult",
    "Options",
    "Path",
    "build",
    "check_all",
    "check_file",
    "check_program",
    "compile_entry",
    "cut",
]
