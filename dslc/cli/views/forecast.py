"""Predicts memory and modelled time of a step for ``dslc mem FILE.nn``: by size, with and without recomputation, and
the largest batch that fits. Only the plan is compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import BuildError
from dslc.cli.options import byte_count
from dslc.cli.output import size_text, table

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.compiler.ir.program import Program
    from dslc.compiler.options import Options
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes

#: Nominal memory of GPUs in bytes, by the names that a budget accepts; the driver takes a part of it.
GPUS: Final = {
    "A100-40GB": 40 * 10**9, "A100": 80 * 10**9, "H100": 80 * 10**9, "H200": 141 * 10**9, "B200": 180 * 10**9,
    "L40S": 48 * 10**9, "L4": 24 * 10**9, "RTX4090": 24 * 10**9,
}  # fmt: skip
_HEAD: Final = ("size", "mirror", "state", "io", "work", "bound", "session", "driver", "step", "again")


@dataclass(frozen=True)
class Forecast:
    """One step's plan: ``bound`` is the peak of live work bytes, ``seconds`` the modelled time, ``again`` the number of
    nodes that recompute something. ``total``: memory of a session that trains and evaluates, as in ``dslc train``; or
    that predicts, if nothing is trained. ``driver``: about what a GPU's driver takes next to that, for code and
    graphs. ``sums``: on a GPU, for each update with programs of its own, what one process takes for sums over shards;
    empty without shards."""

    sizes: Mapping[str, int]
    mirror: str
    state: int
    io: int
    work: int
    bound: int
    seconds: float
    again: int
    total: int
    driver: int
    sums: tuple[SumSizes, ...] = ()

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        size = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        amounts = (size_text(n) for n in (self.state, self.io, self.work, self.bound, self.total, self.driver))
        return (size, self.mirror, *amounts, f"{self.seconds * 1e3:.3g} ms", f"{self.again:,}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def budget_bytes(text: str | None) -> int | None:
    """The bytes of ``20GiB`` or of a GPU's name. Raises BuildError E0401."""
    if text is None:
        return None
    found = {name.lower(): size for name, size in GPUS.items()}.get(text.lower()) or byte_count(text)
    if not found:
        raise BuildError("E0401", f"the budget `{text}` is not an amount of memory", place="--budget",
                         help=f"write 20GiB, or a GPU: {', '.join(GPUS)}")  # fmt: skip
    return found


def all_sizes(checked: Checked, wanted: Mapping[str, list[int]]) -> list[dict[str, int]]:
    """Every combination of the requested sizes; other dims have their default. Raises BuildError E0603, E0304."""
    from dslc.compiler.options import Options, entry_sizes

    for name, values in wanted.items():
        for value in values:
            entry_sizes(checked, Options(sizes={"train": {name: (value,)}}))
    names = [dim.name for dim in checked.dims]
    choices = [sorted({*wanted.get(dim.name, [dim.default])}) for dim in checked.dims]
    return [dict(zip(names, values)) for values in product(*choices)]


def forecasts(
    checked: Checked, options: Options, sizes: Mapping[str, int], mirrors: Sequence[str | int]
) -> list[Forecast]:
    """For each mirror option, the plan at these sizes: of a training step, or of a prediction if there is no
    training."""
    from dslc.compiler.artifact.state_layout import layout_state
    from dslc.compiler.cost import machine_of
    from dslc.compiler.options import divided, precision_of, rounded_up
    from dslc.compiler.passes.plan.stream_timeline import finish
    from dslc.compiler.pipeline import foresee, foresee_prepare

    entry = "predict" if checked.train is None else "train_step"
    precision = precision_of(checked, options)
    layout = layout_state(checked, precision.params, precision.loss_scale, sizes)
    state = layout.bytes
    found = []
    others = _others(checked, options, sizes, mirrors)
    part = sizes if checked.train is None else divided(checked, rounded_up(checked, sizes))
    planned = foresee(checked, entry, part, options, mirrors)
    for mirror, program, other in zip(mirrors, planned, others):
        plan = program.memory
        assert plan is not None and program.schedule is not None
        seconds = finish(program, machine_of(program.target, options.provider))
        again = 0 if program.mirrored is None else program.mirrored.nodes
        said = mirror if isinstance(mirror, str) else size_text(mirror)
        held = [program, *other]
        held += foresee_prepare(checked, held, options, layout)
        total, driver, sums = _session(state, held, options.steps_per_launch, _divided_into(checked))
        amounts = plan.io_bytes, plan.work_bytes, plan.lower_bound
        found.append(Forecast(dict(sizes), said, state, *amounts, seconds, again, total, driver, sums))
    return found


def _others(
    checked: Checked, options: Options, sizes: Mapping[str, int], mirrors: Sequence[str | int]
) -> Iterator[tuple[Program, ...]]:
    """For each mirror option, the programs that a session holds in addition to that of the step."""
    from dslc.compiler.ir.program import untitled
    from dslc.compiler.options import divided, entry_sizes, rounded_up
    from dslc.compiler.pipeline import foresee
    from dslc.runtime.session.open import CALLS, USES

    step, use = ("predict", "predict") if checked.train is None else ("train_step", "train")
    held = {"init", *(entry for call in USES[use] for entry in CALLS[call])} - {step}
    family = "predict" if checked.train is None else "train"
    sizes = sizes if checked.train is None else rounded_up(checked, sizes)
    part = dict(sizes if checked.train is None else divided(checked, sizes))
    at = replace(options, sizes={family: {name: (value,) for name, value in sizes.items()}})
    listed = [(entry, each) for entry, each in entry_sizes(checked, at) if untitled(entry)[0] in {*held, step}]
    listed = [(entry, each) for entry, each in listed if (entry, dict(each)) != (step, part)]
    return iter([*zip(*(foresee(checked, entry, each, at, mirrors) for entry, each in listed))])


def _session(
    state: int, programs: Sequence[Program], steps: int, interface: Mapping[str, Any]
) -> tuple[int, int, tuple[SumSizes, ...]]:
    """Bytes of a session with these programs, all of one target, about the bytes of a GPU's driver next to it, and on a
    GPU those of the sums for each update."""
    from dslc.compiler.artifact.plan import plan_of
    from dslc.compiler.codegen.targets import traits_of
    from dslc.runtime.cuda.driver_bytes import Code, driver_bytes
    from dslc.runtime.cuda.sizes import Regions, foreseen_bytes, lane_sizes
    from dslc.runtime.cuda.sums.layout import sums_of
    from dslc.runtime.session.context import Loaded

    plans = [(p, p.memory) for p in programs if p.memory is not None]
    regions = [
        Regions(p.entry, m.io_bytes, m.work_bytes, m.context_bytes, m.carried, m.prepared_bytes) for p, m in plans
    ]
    on_gpu = traits_of(programs[0].target).has_device_memory
    if not on_gpu:
        return foreseen_bytes(state, regions, steps, on_gpu=False), 0, ()
    loaded = [
        Loaded(p.entry, p.sizes, m.io_bytes, m.work_bytes, plan_of(p), m.context_bytes, turn=p.turn) for p, m in plans
    ]
    sums = sums_of(loaded, interface)
    total = foreseen_bytes(state, regions, steps, on_gpu=True, sums=sums)
    driver = driver_bytes(loaded, Code.foreseen(loaded), lane_sizes(loaded, steps))
    return total, driver, tuple(sums)


def _divided_into(checked: Checked) -> dict[str, Any]:
    """What the interface of a header says of shards and micro-batches."""
    train = checked.train
    return {"train": None if train is None else {"shards": train.shards, "accumulate": train.accumulate}}


def shard_bytes(checked: Checked, options: Options) -> list[int]:
    """The bytes of what a shard gives for each update with programs of its own, or for all together: gradients of the
    trained parameters, with the first the buffers that training changes, and the loss if it is scaled."""
    from dslc.compiler.check.entries import train_spec
    from dslc.compiler.options import precision_of
    from dslc.runtime.artifact.slices import aligned

    precision, spec = precision_of(checked, options), train_spec(checked)
    assert spec is not None
    loss = 1 if precision.loss_scale else 0
    item = precision.shared.itemsize
    found: list[int] = []
    for turn in spec.turns or ("",):
        given = {name for update in spec.in_turn(turn).updates for name in update.trained}
        if not found:
            given |= {source.name for source, _ in checked.graph.updates}
        sizes = [item * math.prod(checked.params[name].input.value.type.ints) for name in given]
        found.append(sum(map(aligned, [*sizes, *[item] * loss])))
    return found


def described(checked: Checked, options: Options, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the header of an artifact would say of training in several processes: interface and state."""
    from dslc.compiler.artifact.emit import state_table
    from dslc.compiler.artifact.interface import interface
    from dslc.compiler.artifact.state_layout import layout_state
    from dslc.compiler.options import precision_of

    precision = precision_of(checked, options)
    layout = layout_state(checked, precision.params, precision.loss_scale, sizes)
    return {"interface": interface(checked, checked.name, precision), "state": state_table(layout)}


def both(checked: Checked, options: Options, sizes: Mapping[str, int], budget: int | None) -> list[Forecast]:
    """The plan without recomputation, and with it: as chosen by the compiler, or as far as the budget requires."""
    return forecasts(checked, options, sizes, ("never", "auto" if budget is None else budget))


def smallest_batch(checked: Checked) -> int:
    """The fewest rows of a step: each shard has those that the batch dim allows."""
    assert checked.batch is not None
    return checked.batch.low * (1 if checked.train is None else checked.train.shards)


def largest(
    checked: Checked, options: Options, sizes: Mapping[str, int], budget: int, more: int = 0
) -> dict[str, int | None]:
    """The largest batch for which a step fits, without and with recomputation; None if not even the smallest batch
    fits. ``more``: bytes that are taken next to the session."""
    from dslc.compiler.artifact.budget import largest_fitting

    assert checked.batch is not None
    batch = checked.batch
    found: dict[str, int | None] = {}
    for name, mirror in (("never", "never"), ("mirrored", 1)):  # a budget of one byte: recompute as much as possible

        def need(value: int, mirror: str | int = mirror) -> int:
            [plan] = forecasts(checked, options, {**sizes, batch.name: value}, (mirror,))
            return plan.total + plan.driver + more

        found[name] = largest_fitting(found.get("never") or smallest_batch(checked), batch.high, need, budget)
    return found


def forecast_table(found: list[Forecast]) -> str:
    return table(_HEAD, [each.cells() for each in found], (2, 3, 4, 5, 6, 7, 8, 9))
