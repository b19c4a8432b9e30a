"""The options of a build and what follows from them: dtypes, sizes, budget, the options in the header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from dslc.base.errors import BuildError
from dslc.base.schema import Bool, Either, Float, Int, Json, ListOf, MapOf, Record, Text, checker
from dslc.compiler.check.entries import train_spec
from dslc.compiler.check.model import Checked
from dslc.compiler.codegen.cpu.levels import ALL, LEVELS
from dslc.compiler.codegen.targets import DEFAULT, TARGETS, traits_of
from dslc.compiler.ir.build import LossScale, Precision
from dslc.compiler.ir.graph import Origin
from dslc.compiler.ir.program import titled
from dslc.compiler.ir.types import DType
from dslc.compiler.lock.choices import Tuned
from dslc.dsl.dtype_names import FLOAT_TYPES, float_for
from dslc.dsl.other_names import target_hint

_HALF: Final = ("bf16", "f16")
PROVIDERS: Final = ("reference", "auto", "own", "vendor")

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Options:
    """Build options. ``sizes``: entry family (train, eval, predict) -> dim -> the values to build.

    ``bulk``: the largest number of kernels that a GPU gets at once, 0 for one launch and one wait per kernel; None
    for a whole step. ``streams``: the number of GPU streams for kernels; ``auto``: the best number by the model of
    its time. ``steps_per_launch``: how many training steps a GPU gets at once, if they arrive together. ``target``:
    names joined by commas; an artifact holds programs for each. ``precision`` overrides both the file's compute and
    parameter dtypes. ``tuned``: what was measured, by target. ``locked``: each problem of a GPU must be in the lock.
    ``gpu``: a part of the name of the GPU whose measurements count. ``mirror``: ``auto`` (values may be recomputed
    in the backward pass if that costs almost nothing, or if the budget requires it), ``never``, or bytes: a budget
    that replaces the file's. ``prepare``: ``auto`` (``predict`` reads copies of weights that are computed once after
    the weights change, where that saves time) or ``never``. ``level`` (`build.cpu`): the only level of the CPU's code,
    or ``ALL``."""

    target: str = DEFAULT
    provider: str = "auto"
    precision: str | None = None
    sizes: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    name: str | None = None
    fuse: bool = True
    bulk: int | None = None
    streams: int | Literal["auto"] = "auto"
    steps_per_launch: int = 1
    mirror: str | int = "auto"
    prepare: Literal["auto", "never"] = "auto"
    locked: bool = False
    gpu: str | None = None
    tuned: Mapping[str, Tuned] = field(default_factory=lambda: MappingProxyType({}))
    level: str = ALL

    @property
    def targets(self) -> tuple[str, ...]:
        """Each target once, in the order of ``TARGETS``; ``auto`` means the default one, the CPU."""
        asked = {DEFAULT if name == "auto" else name for name in self.target.split(",")}
        return tuple(t for t in TARGETS if t in asked)

    def check(self) -> None:
        """Raises BuildError E0601 or E0602 for an unknown option."""
        for name in self.target.split(","):
            if name not in ("auto", *TARGETS):
                known = ", ".join(("auto", *TARGETS))
                help = target_hint(name) or f"use {known}"
                raise BuildError("E0601", f"the target `{name}` is not known", place="--target", help=help)
        if self.level not in (ALL, *LEVELS):
            known = ", ".join((ALL, *LEVELS))
            raise BuildError("E0603", f"the CPU level `{self.level}` is not known", place="--cpu", help=f"use {known}")
        if self.provider not in PROVIDERS:
            raise BuildError("E0603", f"the provider `{self.provider}` is not known", place="--providers",
                             help=f"use {', '.join(PROVIDERS)}")  # fmt: skip
        with_libraries = [name for name, row in TARGETS.items() if row.traits.has_libraries]
        if self.provider == "vendor" and not {*self.targets} & {*with_libraries}:
            help = f"add one of --target {', '.join(with_libraries)}, or use --providers auto"
            raise BuildError("E0603", "the provider `vendor` needs a GPU target", place="--providers", help=help)


def precision_of(checked: Checked, options: Options) -> Precision:
    """The storage dtypes of a build; E0602 for one that a target lacks. ``--precision bf16`` (or f16) keeps the
    parameters in f32. In f16 the loss is scaled. tf32 is f32, except that the factors of products are rounded."""
    compute = options.precision or checked.precision.compute
    params = options.precision or checked.precision.params
    if options.precision in ("bf16", "f16", "tf32"):
        params = "f32"
    if options.precision is not None and options.precision not in FLOAT_TYPES:
        meant = float_for(options.precision)
        help = f"did you mean {meant}?" if meant in FLOAT_TYPES else f"use {', '.join(FLOAT_TYPES)}"
        raise BuildError("E0602", f"the precision `{options.precision}` is not known", place="--precision", help=help)
    for target in options.targets:
        traits = traits_of(target)
        for does, name, dtypes in (
            ("compute", compute, traits.compute_dtypes),
            ("keep parameters", params, traits.param_dtypes),
        ):
            if name not in dtypes:
                raise BuildError(
                    "E0602",
                    f"the target {target} does not {does} in {name}",
                    place="--precision" if options.precision else "precision",
                    help="build with --precision f32",
                )
    if options.precision is None:
        for where, name in (*checked.precision.ops.items(), *(("@precision", n) for n in checked.precision.blocks)):
            if name != compute and not _follows(name, compute, options.targets):
                raise BuildError(
                    "E0602",
                    f"everything is computed in {compute}, not `{where}` in {name}",
                    place="precision",
                    help=f"build with --precision {compute}, which applies to the whole model",
                )
    spec = train_spec(checked) if compute == "f16" else None
    if spec is not None and spec.turns:
        raise BuildError("E0602", "the steps of a divided batch cannot be computed in f16: f16 keeps all updates or "
                         f"none, but `{spec.turns[0]}` is made before the gradients of `{spec.turns[1]}` are known",
                         place="--precision" if options.precision else "precision",
                         help="use bf16, or remove `accumulate` and `mesh`")  # fmt: skip
    tf32 = compute == "tf32"
    dtype = DType.F32 if tf32 else DType(compute)
    return Precision(dtype, DType(params), LossScale() if compute == "f16" else None, tf32, _nodes(checked, options))


def _follows(asked: str, compute: str, targets: tuple[str, ...]) -> bool:
    """Whether single nodes can follow this setting: f32 in a 16-bit model, bf16 in an f32 model. f16 in an f32 model
    would need a loss scale. The statistics of a normalisation are f32 in any case."""
    known = all(asked in traits_of(target).compute_dtypes for target in targets)
    pair = (asked == "f32" and compute in _HALF) or (asked, compute) == ("bf16", "f32")
    return known and pair


def _nodes(checked: Checked, options: Options) -> Mapping[Origin, DType]:
    """The nodes whose dtype the source names; an attribute goes before the file's section. None with ``--precision``,
    which applies to the whole model."""
    asked = checked.precision
    if options.precision is not None:
        return MappingProxyType({})
    ops, named = asked.by_function(), {}
    for node in checked.graph.nodes if ops else ():
        origin = (node.name, node.span)
        dtype = ops.get(node.op.name) or ops.get(asked.functions.get(origin, ""))
        if dtype is not None and not (dtype == "f32" and node.op.statistics):
            named[origin] = dtype
    wanted = {origin: d for origin, d in (named | dict(asked.nodes)).items() if d != asked.compute or d in _HALF}
    return MappingProxyType({origin: DType(d) for origin, d in wanted.items()})


def entry_sizes(checked: Checked, options: Options) -> list[tuple[str, Sizes]]:
    """Every Program to build: (entry, value of each dim), for the turn of a later update (``train_step.NAME``, value of
    each dim). BuildError E0603, E0304 for sizes that do not fit."""
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
        trained = [divided(checked, sizes) for sizes in _family(checked, options, "train")]
        spec = train_spec(checked)
        for turn in ("", *(spec.turns[1:] if spec else ())):
            if checked.train.accumulate > 1 and checked.train.shards == 1:
                found += [(titled("accumulate_step", turn), s) for s in trained]
            found += [(titled("train_step", turn), s) for s in trained]
            if checked.train.shards > 1:
                found += [(titled("update_step", turn), s) for s in trained]
        found += [("eval_step", s) for s in _family(checked, options, "eval")]
        found += [("eval_finish", defaults)]
    found += [("predict", s) for s in _family(checked, options, "predict")]
    return found


def divided(checked: Checked, sizes: Sizes) -> Sizes:
    """The sizes of a shard, from those of a step. BuildError E0303 for a batch that does not divide, E0304 for a shard
    with fewer rows than the bounds of its dim allow."""
    shards, dim = 1 if checked.train is None else checked.train.shards, checked.batch
    if shards == 1:
        return sizes
    assert dim is not None, "the check refuses shards without a batch dim"
    rows, rest = divmod(sizes[dim.name], shards)
    if rest:
        raise BuildError("E0303", f"{dim.name}={sizes[dim.name]} does not divide into {shards} shards", place="mesh",
                         help=f"--size {dim.name}={(rows + 1) * shards}, or another number of shards")  # fmt: skip
    if rows < dim.low:
        raise BuildError("E0304", f"a shard has {dim.name}={rows}, which is not in {dim.low}..{dim.high}", place="mesh",
                         help="use fewer shards, or a lower bound of this dim")  # fmt: skip
    return {**sizes, dim.name: rows}


def rounded_up(checked: Checked, sizes: Sizes) -> Sizes:
    """The sizes of a step, with the batch rounded up to a multiple of the shards."""
    shards, dim = 1 if checked.train is None else checked.train.shards, checked.batch
    return sizes if shards == 1 or dim is None else {**sizes, dim.name: -(-sizes[dim.name] // shards) * shards}


def train_sizes(checked: Checked, options: Options) -> Sizes:
    """The size of each dim in training; the dims' defaults without a train section."""
    return (
        _family(checked, options, "train")[0]
        if checked.train is not None
        else {d.name: d.default for d in checked.dims}
    )


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


def budget_of(checked: Checked, options: Options) -> int | None:
    """The largest allowed bytes of state plus io and work of the largest entry, from options or file; None:
    unlimited."""
    return options.mirror if isinstance(options.mirror, int) else checked.budget


_NAME: Final = Text(400)
#: What ``recorded_options`` gives: an artifact of unknown origin may hold anything.
RECORDED: Final = Record(
    {
        "args": Json(table=True),
        "target": _NAME,
        "providers": _NAME,
        "precision": Record({"compute": _NAME, "params": _NAME}),
        "fuse": Bool(),
        "bulk": Either(Int(), _NAME),
        "steps_per_launch": Int(1),
        "streams": Either(Int(), _NAME),
        "mirror": Either(Int(), _NAME),
        "sizes": MapOf(_NAME, MapOf(_NAME, ListOf(Int(), 1024), 256), 64),
    },
    {"cpu": _NAME, "prepare": _NAME, "freeze": ListOf(_NAME, 65536), "lr_scale": MapOf(_NAME, Float(), 65536)},
)
check_recorded: Final = checker(RECORDED)


def recorded_options(checked: Checked, options: Options) -> dict[str, Any]:
    """The options in the header: everything that determines the bytes. A build is stale if they differ."""
    dtypes = precision_of(checked, options)
    return {
        "args": {n: v for n, v in checked.args.items() if isinstance(v, (bool, int, float, str))},
        "target": ",".join(options.targets),
        **({} if options.level == ALL else {"cpu": options.level}),
        "providers": options.provider,
        "precision": {"compute": "tf32" if dtypes.tf32 else dtypes.compute.value, "params": dtypes.params.value},
        "fuse": options.fuse,
        "bulk": "all" if options.bulk is None else options.bulk,
        "steps_per_launch": options.steps_per_launch,
        "streams": options.streams,
        "mirror": options.mirror,
        **({} if options.prepare == "auto" else {"prepare": options.prepare}),
        "sizes": {
            family: {dim: list(values) for dim, values in dims.items()} for family, dims in options.sizes.items()
        },
        **checked.selection.recorded(),
    }
