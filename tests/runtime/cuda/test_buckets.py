"""Which parts of what a shard gives are complete when, and who adds them."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from ranks.nets import BATCHNORM, TRANSFORMER, built

from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.instructions import accesses
from dslc.runtime.cuda.buckets import buckets_of, merged, parts_of
from dslc.runtime.cuda.shard_sums import Layout
from dslc.runtime.cuda.sizes import SUM_ALIGNMENT, SumSizes


@pytest.mark.parametrize("source", [BATCHNORM, TRANSFORMER])
def test_a_bucket_is_complete_when_it_is_said_to_be(tmp_path: Path, source: str) -> None:
    artifact = read_artifact(built(tmp_path, source, shards=2, provider="reference"))
    plan, update = (artifact.plan(artifact.programs(entry)[0]) for entry in ("train_step", "update_step"))
    found = buckets_of(plan, 256)
    layout = Layout.of(plan, update)
    assert len(found) > 2 and [b.after for b in found] == sorted({b.after for b in found})
    for bucket in found:
        for instruction in plan.instructions[bucket.after + 1 :]:
            for buffer in (plan.buffers[index] for index in accesses(instruction)[1]):
                for offset, size in bucket.ranges if buffer.region == "io" else ():
                    assert buffer.end <= layout.given + offset or layout.given + offset + size <= buffer.offset
    everything = merged([each for bucket in found for each in bucket.ranges])
    given = {
        (p.offset - layout.given, p.bytes) for p in (plan.buffers[o.buffer] for o in plan.outputs if o.kind == "shard")
    }
    assert all(any(a <= at and at + size <= a + n for a, n in everything) for at, size in given)
    assert all(at >= 0 and at + size <= layout.bytes and at % SUM_ALIGNMENT == 0 for at, size in everything)
    assert sum(size for _, size in everything) == sum(size for b in found for _, size in b.ranges)  # none twice
    assert [b.ranges for b in buckets_of(plan)] == [everything]  # too small to be divided
    assert buckets_of(update) == []


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_each_part_belongs_to_one_process(processes: int) -> None:
    rng = Random(processes)
    ranges, at = [], 0
    for _ in range(9):
        at += SUM_ALIGNMENT * rng.randint(1, 4)
        ranges.append((at, SUM_ALIGNMENT * rng.randint(1, 9)))
        at += ranges[-1][1]
    parts = parts_of(ranges, processes)
    total = sum(size for _, size in ranges)
    assert merged([piece for part in parts for piece in part]) == ranges
    largest = math.ceil(total / SUM_ALIGNMENT / processes) * SUM_ALIGNMENT
    assert all(sum(size for _, size in part) <= largest for part in parts)
    whole = SumSizes(total, 0, 8, processes)
    assert parts_of([(0, total)], processes) == [[whole.span(rank)] for rank in range(processes)]
