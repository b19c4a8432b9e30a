"""``dslc mem``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.app import Command
from dslc.cli.artifacts import (
    PROGRAM_HEAD,
    PROGRAM_RIGHT,
    artifact_to_read,
    largest_buffers,
    program_data,
    program_row,
    session_lines,
    state_bytes,
)
from dslc.cli.options import gpu_option, names_source, pairs, sizes, source_options
from dslc.cli.output import emit, size_text, table
from dslc.cli.views.forecast import budget_bytes

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes


@click.command(cls=Command)
@click.argument("artifact", metavar="[ARTIFACT|FILE[:MODEL]]", required=False)
@click.option(
    "--top", type=click.IntRange(0, 1000), default=5, metavar="N", help="Show the N largest buffers; default: 5."
)
@click.option(
    "--budget", metavar="SIZE|GPU", help="FILE: find the largest batch that fits, for example into 20GiB or an H100."
)
@click.option(
    "--gpus", type=click.IntRange(1, 1024), metavar="N", help="Show the memory of each of N GPUs: docs/scale.md."
)
@source_options("plan for this target", "FILE: sizes of a dim, such as B=64,128.")
@gpu_option
def command(
    artifact: str | None,
    top: int,
    budget: str | None,
    gpus: int | None,
    target: str | None,
    precision: str | None,
    providers: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    gpu: str | None,
) -> None:
    """Show planned memory; for a model, predict it by size.

    ARTIFACT is a .dslc file or its folder; without it, the artifact of ./dslc.yaml as it is on disk. Shows the memory
    of each entry, and of a session that trains, evaluates, predicts, or does all three. For a FILE, a plan is made for
    each size of --size, e.g. B=64,128,256, once as it is and once with values recomputed in the backward pass. Shows
    the memory of a step and of the session of `dslc train`, and the step's modelled time. Nothing else is compiled, and
    no GPU is needed. If the model has shards (`mesh`), the last table has a row for each number of processes or GPUs
    that can share them, or for the number of --gpus alone; --budget is then the memory of each GPU.
    """
    building = {"target": target, "precision": precision, "providers": providers, "gpu": gpu}
    if names_source(artifact):
        given = {key: value for key, value in building.items() if value is not None}
        _foreseen(artifact, given, budget, gpus, defines, size)
    elif budget is not None or defines or size or any(building.values()):
        raise click.UsageError("an artifact is already built: --budget, --size and similar options need a FILE.nn")
    else:
        _planned(artifact, top, gpus)


def _foreseen(
    model: str,
    building: dict[str, Any],
    budget: str | None,
    gpus: int | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
) -> None:
    from dslc.cli.build_options import options_of
    from dslc.cli.locks.find import with_lock
    from dslc.cli.views import forecast
    from dslc.compiler.check.model import check_file, split_model

    wanted = sizes(size)
    if any(wanted):  # a size for one named entry
        raise click.BadParameter("a size of the step, such as B=64,128", param_hint="--size")
    checked, options, limit = check_file(model, args=pairs(defines, "-D")), options_of(building), budget_bytes(budget)
    options = with_lock(options, Path(split_model(model)[0]).parent)
    found, most = [], None
    for each in forecast.all_sizes(checked, wanted.get("", {})):
        found += forecast.both(checked, options, each, limit)
    lines = [forecast.forecast_table(found)]
    shards = 1 if checked.train is None else checked.train.shards
    runs = 1 if checked.train is None else checked.train.accumulate
    first = found[0]
    sums = first.sums
    header = forecast.described(checked, options, first.sizes) if shards > 1 else {}
    _require_gpus(gpus, shards, there=bool(sums))
    more = 0
    if gpus is not None and sums:
        [row] = per_gpu(sums, first.total, first.driver, gpus, header)
        more = row["total"] - first.total - first.driver
    if limit is not None and checked.batch is not None:
        most = forecast.largest(checked, options, dict(found[0].sizes), limit, more)
        plain, mirrored = (("none" if n is None else f"{n:,}") for n in most.values())
        name = checked.batch.name
        lines += ["", f"largest {name} within {size_text(limit)}: {plain}; with recomputation:  {mirrored}"]
        if most["mirrored"] is None:
            low = forecast.smallest_batch(checked)
            *_, least = forecast.both(checked, options, {**found[0].sizes, name: low}, limit)
            lines.append(f"{name}={low} takes {size_text(least.total)}, of which {size_text(least.state)} is state")
    data: dict[str, Any] = {
        "model": checked.name,
        "sizes": [f.as_json() for f in found],
        "budget": limit,
        "largest": most,
    }
    at = " ".join(f"{name}={value}" for name, value in found[0].sizes.items())
    if sums:
        data["gpus"] = per_gpu(sums, first.total, first.driver, gpus, header)
        lines += ["", f"each GPU that trains ({at}):", gpu_table(data["gpus"])]
    elif shards > 1:
        data["processes"] = per_process(forecast.shard_bytes(checked, options), shards, runs, first.total, header)
        lines += ["", f"each process that trains ({at}):", process_table(data["processes"])]
    emit(data, "\n".join(lines))


def _planned(artifact: str | None, top: int, gpus: int | None) -> None:
    from dslc.runtime.artifact.interface import shards_of
    from dslc.runtime.session.open import driver_needs, session_needs, sum_needs

    found = artifact_to_read(artifact)
    programs = found.all_programs()
    state = found.header["state"]["bytes"]
    context = max(p.io_bytes + p.work_bytes for p in programs)
    kinds, needs, driver = state_bytes(found), session_needs(found), driver_needs(found)
    largest = max(programs, key=lambda p: p.io_bytes + p.work_bytes)
    buffers = largest_buffers(found.plan(largest), top)
    prepared = {p.target: p.prepared_bytes for p in programs if p.prepared_bytes}
    lines = [
        table(PROGRAM_HEAD, [program_row(p) for p in programs], PROGRAM_RIGHT),
        "",
        f"state    {size_text(state)}  ({', '.join(f'{kind} {size_text(n)}' for kind, n in kinds.items())})",
        f"largest  {size_text(context)}  (io and work of {largest})",
        *(f"prepared {size_text(size)}  (computed from the weights for predict, {t})" for t, size in prepared.items()),
        *(f"states   {size_text(p.context_bytes)}  (carried by {p})" for p in programs if p.context_bytes),
        *session_lines(needs, driver),
    ]
    if buffers:
        rows = [(size_text(size), type, where) for size, type, where in buffers]
        lines += ["", f"largest buffers of {largest}:", table(("bytes", "type", "written by"), rows, (0,))]
    shared = _shared(found, needs)
    if shared:
        lines += ["", "each process that trains:", process_table(shared)]
    sums = {target: listed for target, listed in sum_needs(found).items() if listed and "train" in needs[target]}
    _require_gpus(gpus, shards_of(found.header["interface"]), there=bool(sums))
    on_gpus = {
        t: per_gpu(listed, needs[t]["train"], driver[t]["train"], gpus, found.header) for t, listed in sums.items()
    }
    for target, each in on_gpus.items():
        lines += ["", f"each GPU ({target}) that trains:", gpu_table(each)]
    data = {
        **({"processes": shared} if shared else {}),
        **({"gpus": on_gpus} if on_gpus else {}),
        "path": str(found.path),
        "state_bytes": state,
        "context_bytes": context,
        "prepared_bytes": prepared,
        "sessions": needs,
        "driver": driver,
        "programs": [program_data(p) for p in programs],
        "largest": [{"bytes": size, "type": type, "where": where} for size, type, where in buffers],
    }
    emit(data, "\n".join(lines))


def _shared(found: Artifact, needs: Mapping[str, Mapping[str, int]]) -> list[dict[str, int]]:
    """``per_process`` of an artifact that trains on a CPU in several shards; else empty."""
    from dslc.runtime.artifact.interface import micro_batches_of, shards_of
    from dslc.runtime.session.calls.terms import sum_bytes_of

    interface = found.header["interface"]
    shards, each = shards_of(interface), micro_batches_of(interface)
    if shards == 1 or "train" not in needs.get("cpu", {}):
        return []
    vectors = [sum_bytes_of(found.plan(p)) for p in found.programs("update_step", "cpu")]
    return per_process(vectors, shards, each, needs["cpu"]["train"], found.header)


def per_process(
    vectors: Sequence[int], shards: int, each: int, session: int, header: Mapping[str, Any]
) -> list[dict[str, int]]:
    """For each number of processes that can share the shards: the shards and the bytes of each process. ``vectors``:
    the bytes of what one shard gives, for each program of a step; ``each``: its micro-batches; ``session``: the bytes
    of a session that trains alone; ``header``: what it says of interface and state."""
    from dslc.runtime.artifact.share import share_of
    from dslc.runtime.session.calls.shard_sum import sum_bytes

    state, rows = header["state"]["bytes"], []
    for n in [1 << power for power in range(shards.bit_length())]:
        share = share_of(header, 0, n)
        own = session if share is None else session - state + share.bytes
        reads_own = share is not None and not share.reads_all
        sums = sum(sum_bytes(vector, shards, n, each, reads_own) for vector in vectors)
        rows.append({"processes": n, "shards": shards // n, "session": own, "sums": sums, "total": own + sums})
    return rows


def _require_gpus(gpus: int | None, shards: int, *, there: bool) -> None:
    """A usage error for a number of GPUs that cannot share the shards; ``there``: the model has shards on a GPU."""
    if gpus is None:
        return
    if not there:
        raise click.UsageError("--gpus needs a model with `mesh { shards = N }`, built for a GPU (--target)")
    if shards % gpus:
        raise click.BadParameter(f"{gpus} GPUs cannot share {shards} shards equally", param_hint="--gpus")


def per_gpu(
    sums: Sequence[SumSizes], session: int, driver: int, gpus: int | None, header: Mapping[str, Any]
) -> list[dict[str, int]]:
    """For each number of GPUs that can share the shards, or for ``gpus`` alone: the shards and the bytes of each GPU.
    ``sums``: for each training step those of one GPU, which ``session`` contains; ``header``: what it says of interface
    and state."""
    from dslc.runtime.artifact.share import share_of
    from dslc.runtime.cuda.memory_pool import size_class
    from dslc.runtime.cuda.sizes import CONTEXT

    rows, state = [], header["state"]["bytes"]
    shards, plain = sums[0].shards, session - sum(each.pooled for each in sums)
    for n in [1 << power for power in range(shards.bit_length())] if gpus is None else [gpus]:
        share = share_of(header, 0, n)
        held = [replace(each, processes=n, share=share) for each in sums]
        own = plain if share is None else plain - size_class(state) + size_class(share.bytes)
        exchange = sum(each.exchanged for each in held)
        row = {"session": own, "sums": sum(each.pooled for each in held) - exchange, "exchange": exchange}
        row |= {"driver": driver, "context": CONTEXT}
        direct, nccl = sum(row.values()), held[0].nccl
        rows.append({"gpus": n, "shards": shards // n, **row, "direct": direct, "nccl": nccl, "total": direct + nccl})
    return rows


def gpu_table(rows: list[dict[str, int]]) -> str:
    """A row for each number of GPUs. ``direct``: without NCCL, which processes that write into each other's GPUs do not
    need."""
    amounts = ("session", "sums", "exchange", "driver", "context", "direct", "nccl", "total")
    cells = [(str(row["gpus"]), str(row["shards"]), *(size_text(row[name]) for name in amounts)) for row in rows]
    return table(("GPUs", "shards", *amounts), cells, range(2 + len(amounts)))


def process_table(rows: list[dict[str, int]]) -> str:
    """A row for each number of processes."""
    cells = [
        (str(r["processes"]), str(r["shards"]), *(size_text(r[n]) for n in ("session", "sums", "total"))) for r in rows
    ]
    return table(("processes", "shards", "session", "sums", "total"), cells, (0, 1, 2, 3, 4))
