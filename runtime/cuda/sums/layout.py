"""Where the programs of a training step hold what is added over shards, and the memory that the sums take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.interface import micro_batches_of, shards_of
from dslc.runtime.cuda.sums.sum_sizes import SUM_ALIGNMENT, SumSizes, aligned_sum
from dslc.runtime.cuda.transfers import to_host
from dslc.runtime.session.calls.terms import Terms

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Buffer, Plan
    from dslc.runtime.session.context import Loaded


@dataclass(frozen=True)
class Layout:
    """``terms``: what a shard gives, and its sums; where a shard's io has loss and metrics (from ``numbers`` on,
    ``row`` bytes).

    ArtifactError R301 for plans that do not fit each other."""

    terms: Terms
    numbers: int
    row: int
    ports: tuple[tuple[str, str, Buffer], ...]

    @staticmethod
    def of(shard: Plan, update: Plan) -> Layout:
        terms = Terms.of(shard, update)  # checks dtypes and shapes
        first, end_of_given = terms.first, terms.first + terms.given_bytes
        ports = tuple((port.name, port.kind, shard.buffers[port.buffer]) for port in to_host(shard))
        start = min((b.offset for _, _, b in ports), default=0)
        end = max((b.end for _, _, b in ports), default=0)
        inside = any(first < b.end and b.offset < end_of_given for _, _, b in ports)
        given = (shard.buffers[p.buffer] for p in shard.outputs if p.kind == "shard")
        wanted = (update.buffers[p.buffer] for p in update.inputs)
        places = {b.region for b in (*given, *wanted, *(b for _, _, b in ports))}
        apart = terms.half is None and not terms.as_summed
        odd = any(at % SUM_ALIGNMENT for t in terms.rows for at in (first + t.given, terms.read + t.at))
        if apart or inside or places != {"io"} or odd:
            raise ArtifactError("R301", "`update_step` reads the sums at other places than `train_step` gives them",
                                place="programs", help="build the artifact again")  # fmt: skip
        return Layout(terms, start, aligned_sum(end - start), ports)


def sums_of(programs: Sequence[Loaded], interface: Mapping[str, Any]) -> list[SumSizes]:
    """The memory that one process takes for the sums of each training step among a session's programs; none without
    shards. ``interface``: that of a header. ArtifactError R301 as ``Layout.of``."""
    shards, each = shards_of(interface), micro_batches_of(interface)
    steps = [p for p in programs if p.entry == "train_step"] if shards > 1 else []
    found = []
    for step in steps:
        [update] = [p for p in programs if (p.entry, p.turn, p.sizes) == ("update_step", step.turn, step.sizes)]
        layout, flags = Layout.of(step.plan, update.plan), flags_of(update.plan).bytes
        found.append(SumSizes(layout.terms, layout.row, shards, each=each, flags=flags, work=update.work_bytes))
    return found


def flags_of(update: Plan) -> Buffer:
    """Where an update tells which gradients were not finite."""
    return next(update.buffers[port.buffer] for port in update.outputs if port.kind == "flags")
