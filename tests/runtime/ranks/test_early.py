"""Gradients leave while a shard computes others, and slices are updated while it does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from ranks.nets import ACCUMULATED, ADAMW, BATCHNORM, TRANSFORMER, built, in_small_stages, scaled
from ranks.on_gpus import STEPS, Machine, on_gpus, opened, trained
from ranks.together import places, together

from dslc.base.errors import DslcError
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.instructions import accesses
from dslc.runtime.artifact.share import share_of, shared_plan
from dslc.runtime.cuda.sums import peers
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.calls.early import early_by_sizes, early_of
from dslc.runtime.session.calls.terms import Terms


@pytest.fixture(autouse=True)
def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_stages(monkeypatch)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stage_begins_when_its_gradients_are_there(tmp_path: Path, rank: int) -> None:
    """After it begins, the shard writes none of its gradients, and reads nothing that it updates; before, it does."""
    artifact = read_artifact(scaled(tmp_path, ADAMW, 2, scale=None))
    share = share_of(artifact.header, rank, 2)
    [shard], [update] = ([artifact.plan(p) for p in artifact.programs(e)] for e in ("train_step", "update_step"))
    assert share is not None and share.stages > 2
    shard = shared_plan(shard, "train_step", share)
    early = early_of(shard, update, share)
    assert early is not None and len(early.after) == share.stages - 1
    assert list(early.after) == sorted(early.after) and early.after[0] < len(shard.instructions)
    assert any(list(each) != sorted(each) for each in early.share.order)
    assert all(sorted(each) == [*range(share.stages)] for each in early.share.order)
    terms = Terms.of(shard, update)
    for stage, after in enumerate(early.after):
        wanted = set[tuple[str, int]]()
        for r in range(2):
            start, size = early.share.span(r, stage)
            for term in (t for t in terms.rows if t.at < start + size and start < t.at + t.elements * terms.item):
                first = terms.first + term.given
                wanted |= {("io", at) for at in range(first, first + term.elements * ITEMSIZE[term.dtype])}
            wanted |= {("state", at) for low, count in early.share.updated(r, stage) for at in range(low, low + count)}

        def touches(number: int, wanted: set[tuple[str, int]] = wanted) -> bool:
            buffers = [shard.buffers[b] for side in accesses(shard.instructions[number]) for b in side]
            return any((b.region, at) in wanted for b in buffers for at in range(b.offset, b.end))

        assert not any(map(touches, range(after, len(shard.instructions))))
        assert stage > 0 or not wanted or any(map(touches, range(after)))


def test_sums_are_there_later(tmp_path: Path) -> None:
    """Several shards or micro-batches of a process give sums, and some updates read all sums."""
    for number, (source, shards, size) in enumerate(((ADAMW, 4, 2), (ACCUMULATED, 2, 2), (BATCHNORM, 2, 2))):
        artifact = read_artifact(built(tmp_path / str(number), source, shards=shards, provider="reference"))
        listed = [(program, artifact.plan(program)) for program in artifact.all_programs()]
        assert early_by_sizes(listed, share_of(artifact.header, 0, size)) == {}


@pytest.mark.parametrize("source", [ADAMW, TRANSFORMER], ids=["adamw", "averages"])
def test_the_bits_of_one_gpu(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """The graphs of a shard tell when a stage may begin: an event for each but the last, in both frames."""
    path = built(tmp_path, source, shards=4, provider="reference")
    fake = on_gpus(path, machine, 4, monkeypatch, peers=True).fake
    alone = opened(path, "gpu:0")
    expected = trained(alone, source)
    alone.close()
    share = share_of(read_artifact(path).header, 0, 4)
    assert share is not None and fake.calls["cuGraphAddEventRecordNode"] == 0

    def work(group: Group) -> Any:
        session = opened(path, f"gpu:{group.rank}", part=(group.rank, group.size))
        session.join(group)
        found = trained(session, source, group)
        session.close()
        return found

    for each in together(places(4), work):
        assert each.result() == expected
    assert fake.calls["cuGraphAddEventRecordNode"] == 4 * 2 * (share.stages - 1)
    assert fake.opened == 0


def test_who_cannot_write_to_another_takes_nccl(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes do, if one cannot, or if they are of several hosts."""
    path = built(tmp_path, ADAMW, shards=2, provider="reference")
    fake = on_gpus(path, machine, 2, monkeypatch, peers=True)

    def work(group: Group) -> Any:
        session = opened(path, f"gpu:{group.rank}", part=(group.rank, group.size))
        session.join(group)
        found = trained(session, ADAMW, group)
        session.close()
        return found

    def groups() -> tuple[int, Any]:
        fake.groups = 0
        one, other = (each.result() for each in together(places(2), work))
        assert one == other and fake.fake.opened == 0
        return fake.groups, one

    directly, expected = groups()
    assert directly == 0
    shared = peers.Peers._described
    monkeypatch.setattr(peers.Peers, "_described", lambda self, pieces: _unless(self, pieces, shared))
    found, state = groups()
    assert found >= 2 * 2 * STEPS and state == expected
    monkeypatch.setattr(peers.Peers, "_described", shared)
    monkeypatch.setattr(peers.platform, "node", lambda: f"the host of thread {threading.get_ident()}")
    found, state = groups()
    assert found >= 2 * 2 * STEPS and state == expected


def _unless(self: Any, pieces: Any, shared: Any) -> Any:
    if self._group.rank == 1:
        raise DslcError("R201", "the driver does not share memory")
    return shared(self, pieces)
