"""Each rank updates its slices, and has the state of the optimizer for these alone: the bits are those of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
from ranks.nets import ACCUMULATED, ADAMW, BATCHNORM, MESH, TRANSFORMER, batch, built, in_small_stages, rows_of, scaled
from ranks.together import places, together

from dslc.base.errors import ArtifactError, InputError, RanksError
from dslc.compiler import pipeline
from dslc.compiler.artifact.emit import state_table
from dslc.compiler.artifact.interface import interface
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.artifact.state_layout import layout_state
from dslc.compiler.check.model import check_file
from dslc.compiler.ops import registry
from dslc.compiler.options import Options, entry_sizes, precision_of
from dslc.runtime.artifact import slices
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.instructions import (
    BulkBegin,
    Copy,
    EventRecord,
    EventWait,
    Fill,
    Instruction,
    Kernel,
    accesses,
)
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.artifact.share import share_of, shared_plan
from dslc.runtime.artifact.slices import (
    aligned,
    exchange_time,
    pieces_of,
    slice_bytes,
    slice_count,
    stage_count,
)
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.load import load
from dslc.runtime.session.update_stages import conflicts, in_stages

STEPS = 4
_TRAIN = "optimizer = sgd(lr=0.05, momentum=0.9, clip_norm=1.0)"
SGD = BATCHNORM.replace(_TRAIN, "optimizer = sgd(lr=0.05)")
LAMB = BATCHNORM.replace(_TRAIN, "optimizer = lamb(lr=0.01, weight_decay=0.1)")
NO_AVERAGE = TRANSFORMER.replace("  ema       = 0.9\n", "")


def opened(path: Path, **given: Any) -> Any:
    return load(path, device="cpu", weights="init", seed=3, meanings=registry.meanings, **given)


def steps(session: Any, source: str, rank: int = 0, size: int = 1, spoiled: bool = False) -> list[Any]:
    rows = rows_of(source) // size
    found = []
    for step in range(STEPS):
        given = batch(TRANSFORMER if source is NO_AVERAGE else source, step)
        if spoiled and step == 2:
            given["x"][5] = float("inf")
        result = session.train_step(**{n: a[rank * rows : (rank + 1) * rows] for n, a in given.items()})
        found.append((repr(result.loss), result.nonfinite, result.skipped, result.loss_scale))
    return found


def state_of(session: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in session.state_tensors().items()}


@pytest.mark.parametrize("spoiled", [False, True], ids=["finite", "not finite"])
@pytest.mark.parametrize("source", [ADAMW, SGD, BATCHNORM, ACCUMULATED, LAMB],
                         ids=["adamw", "sgd", "clip_norm", "micro-batches", "lamb"])  # fmt: skip
def test_any_number_of_ranks(tmp_path: Path, source: str, spoiled: bool) -> None:
    check(built(tmp_path, source, provider="reference"), source, spoiled)


@pytest.mark.parametrize("source", [ADAMW, BATCHNORM, NO_AVERAGE], ids=["adamw", "clip_norm", "transformer"])
def test_stages_of_any_number_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    in_small_stages(monkeypatch)
    check(built(tmp_path, source, provider="reference"), source, False)


@pytest.mark.parametrize("source", [TRANSFORMER, NO_AVERAGE], ids=["averages", "transformer"])
def test_averaged_weights(tmp_path: Path, source: str) -> None:
    check(built(tmp_path, source, provider="reference"), source, False)


@pytest.mark.parametrize("source", [ADAMW, ACCUMULATED], ids=["adamw", "micro-batches"])
def test_a_scaled_loss(tmp_path: Path, source: str) -> None:
    check(scaled(tmp_path, source), source, True)


def check(path: Path, source: str, spoiled: bool) -> None:
    alone = opened(path)
    expected, state = steps(alone, source, spoiled=spoiled), state_of(alone)
    assert not spoiled or any(nonfinite or skipped for _, nonfinite, skipped, _ in expected)

    def work(group: Group) -> Any:
        session = opened(path, part=(group.rank, group.size))
        session.join(group)
        return steps(session, source, group.rank, group.size, spoiled), state_of(session)

    for size in (2, 4, 8):
        for each in together(places(size), work):
            found = each.result()
            assert found == (expected, state)


@pytest.mark.parametrize("small", [False, True], ids=["one stage", "stages"])
def test_the_slots_of_a_rank_are_their_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    """Exactly 1/G of the optimizer's bytes, up to the alignment of a slice; each element on one rank."""
    if small:
        in_small_stages(monkeypatch)
    header = read_artifact(built(tmp_path, ADAMW, provider="reference")).header
    table = header["state"]["tensors"]
    params = [t for t in table if t["trained"]]
    slots = [t for t in table if t["kind"] == "optimizer"]
    whole = sum(aligned(4 * prod(t["shape"])) for t in slots)
    for size in (2, 4, 8):
        shares = [share_of(header, rank, size) for rank in range(size)]
        assert all(share is not None for share in shares)
        for share in filter(None, shares):
            own = share.bytes - share.whole_bytes
            assert whole / size <= own <= whole / size + 2 * 64 * share.count // size
            assert share.whole_bytes == header["state"]["bytes"] - whole
        for slot in slots:
            held = sorted((p.start, p.stop) for share in filter(None, shares) for p, _ in share.pieces(slot["name"]))
            ends = [0, *(stop for _, stop in held)]
            assert [start for start, _ in held] == ends[:-1] and ends[-1] == prod(slot["shape"])
            places = [at for share in filter(None, shares) for _, at in share.pieces(slot["name"], share.rank)]
            assert all(shares[0].whole_bytes <= at < shares[0].bytes and at % 64 == 0 for at in places)
        first = next(iter(filter(None, shares)))
        assert (first.stages > 1) == small
        spans = sorted(first.span(rank, stage) for rank in range(size) for stage in range(first.stages))
        assert [at for at, _ in spans] == [n * spans[0][1] for n in range(size * first.stages)]
        updated = sorted(
            each for rank in range(size) for stage in range(first.stages) for each in first.updated(rank, stage)
        )
        assert sum(count for _, count in updated) >= sum(4 * prod(t["shape"]) for t in params)
        assert all(a + count <= b for (a, count), (b, _) in pairwise(updated))


def test_large_models_have_more_slices_than_shards() -> None:
    assert [slice_count(2, size << 20) for size in (0, 31, 32, 475, 1 << 20)] == [2, 2, 4, 32, 64]
    assert slice_count(8) == 8 and slice_count(1024, 1 << 40) == 64


def test_stages_are_few_for_a_small_model_and_small_for_a_large_one() -> None:
    """GPT-2 124M has 237 MiB on each of two GPUs, ResNet-50 49. If all stages follow the shard, each takes time."""
    early, late = ([stage_count(size << 20, each) for size in (0, 15, 16, 49, 237, 2972)] for each in (True, False))
    assert early == [1, 1, 2, 4, 16, 64]
    assert late == [1, 1, 1, 2, 4, 16]
    for size in (1 << 20, 100 << 20, 237 << 20):
        allowed = [1, *(count for count in (2, 4, 8, 16, 32) if size // count >= 8 << 20)]
        for each in (True, False):
            times = {count: exchange_time(size, count, each) for count in allowed}
            assert times[stage_count(size, each)] == min(times.values())


def test_a_slow_link_has_fewer_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transfer takes two flags, and each start more than the bytes of a stage."""
    before = stage_count(237 << 20, True), stage_count(237 << 20, False)
    monkeypatch.setattr(slices, "LINK", replace(slices.LINK, flag=200.0))
    assert (stage_count(237 << 20, True), stage_count(237 << 20, False)) == (2, 2) and before == (16, 4)


def test_a_transfer_takes_what_was_measured() -> None:
    """Between two sizes, and above the largest, on the line through the nearest ones; with two flags of 5.5 us."""
    sizes = (8, 19.5, 31, 62, 249, 373)
    assert [slices.LINK.move(int(size * (1 << 20))) for size in sizes] == [51, 75.5, 100, 182, 682, 1013]


def test_the_time_of_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers have one stream, updates another: each event of two stages by hand, for a move of 3 and an update of 2
    or 5 us of a part of 1 MiB. The second gradients move while the first part is updated."""
    mib = 1 << 20
    for update, late, early in ((2.0, 3 + 3 + 3 + 3, 3 + 3 + 3), (5.0, 3 + 5 + 5 + 3, 3 + 5 + 3)):
        monkeypatch.setattr(slices, "LINK", slices.Link(((mib, 3), (2 * mib, 6)), 0, update))
        assert exchange_time(2 * mib, 2, early=False) == late
        assert exchange_time(2 * mib, 2, early=True) == early
        assert exchange_time(mib, 1, early=True) == exchange_time(mib, 1, early=False) == 3 + update + 3


def test_what_cannot_be_divided_is_updated_by_all(tmp_path: Path) -> None:
    header = read_artifact(built(tmp_path, LAMB, provider="reference")).header
    assert "update" not in header["interface"]["train"]
    assert share_of(header, 0, 2) is None
    header = read_artifact(built(tmp_path, ADAMW, shards=2, provider="reference")).header
    assert share_of(header, 0, 1) is None and share_of(header, 0, 4) is None and share_of(header, 0, 2) is not None


@pytest.mark.parametrize(
    ("count", "itemsize", "slices"), [(1, 4, 8), (16, 4, 2), (100_003, 4, 8), (33, 8, 4), (0, 4, 2)]
)
def test_pieces_are_the_whole_tensor(count: int, itemsize: int, slices: int) -> None:
    params = [("a", 5, itemsize), ("b", count, itemsize), ("c", 70, itemsize)]
    size = slice_bytes(params, slices)
    for name, elements, _ in params:
        pieces = pieces_of(params, slices)[name]
        ends = [0, *(p.stop for p in pieces)]
        assert [p.start for p in pieces] == ends[:-1] and ends[-1] == elements
        assert all((p.slice < slices and p.start * itemsize % 64 == 0) or p.start == 0 for p in pieces)
    assert size % 64 == 0 and (slices - 1) * size < sum(aligned(n * itemsize) for _, n, _ in params) + 64 * slices


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("source", [ADAMW, BATCHNORM, TRANSFORMER], ids=["adamw", "clip_norm", "averages"])
def test_plans_for_a_gpu_are_divided(tmp_path: Path, source: str, precision: str) -> None:
    """No launch changes slots of two slices, whatever was fused; each rank has fewer launches."""
    (tmp_path / "net.nn").write_text(source + MESH.format(shards=8))
    checked, options = check_file(tmp_path / "net.nn"), Options(target="sm_90", precision=precision, provider="own")
    asked = precision_of(checked, options)
    layout = layout_state(checked, asked.params, asked.loss_scale)
    header = {"interface": interface(checked, "net", asked), "state": state_table(layout)}
    for entry in ("init", "update_step"):
        sizes = next(sizes for name, sizes in entry_sizes(checked, options) if name == entry)
        plan = plan_of(pipeline.compile_entry(checked, entry, sizes, options)[0])
        for size in (2, 8):
            for rank in range(size):
                share = share_of(header, rank, size)
                assert share is not None
                found = shared_plan(plan, entry, share)
                assert _launches(found) < _launches(plan)
                assert max(b.end for b in found.buffers if b.region == "state") <= share.bytes
                assert not list(_replaced(found))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("source", [ADAMW, NO_AVERAGE], ids=["adamw", "transformer"])
def test_plans_for_a_gpu_are_cut_into_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, precision: str
) -> None:
    """Each stage updates its slices, all instructions are in one, and what follows another one still does."""
    in_small_stages(monkeypatch)
    (tmp_path / "net.nn").write_text(source + MESH.format(shards=4))
    checked, options = check_file(tmp_path / "net.nn"), Options(target="sm_90", precision=precision, provider="own")
    asked = precision_of(checked, options)
    header = {"interface": interface(checked, "net", asked), "state": state_table(layout_state(checked, asked.params))}
    assert header["state"]["slices"] > 4
    sizes = next(sizes for name, sizes in entry_sizes(checked, options) if name == "update_step")
    whole = plan_of(pipeline.compile_entry(checked, "update_step", sizes, options)[0])
    for rank, size in ((0, 2), (1, 2), (3, 4)):
        share = share_of(header, rank, size)
        assert share is not None and share.stages >= 4
        own = shared_plan(whole, "update_step", share)
        found = in_stages(own, whole, share)
        work = [i for i in own.instructions if not isinstance(i, EventRecord | EventWait)]
        kept = [replace(i, stream=int(isinstance(i, Fill))) for i in work if hasattr(i, "stream")]
        cut = [i for i in found.instructions if hasattr(i, "where")]
        assert sorted(map(repr, cut)) == sorted(map(repr, kept))
        stage, updated = -1, dict[int, set[int]]()
        for instruction in found.instructions:
            stage += isinstance(instruction, BulkBegin)
            for number in accesses(instruction)[1]:
                if whole.buffers[number].region == "state":
                    updated.setdefault(stage, set()).update(share.stages_of(whole.buffers[number]))
        assert all(of <= {n} for n, of in updated.items()) and stage == share.stages - 1
        assert rank > 0 or len(updated) > 1  # the last ranks may have padding alone
        orders = [{repr(i): n for n, i in enumerate(each)} for each in (kept, cut)]
        for before, after, _ in conflicts(own, kept):
            first, second = repr(kept[before]), repr(kept[after])
            assert (orders[0][first] < orders[0][second]) == (orders[1][first] < orders[1][second])


def test_what_cannot_be_cut_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instruction that changes two stages, or one that an earlier stage follows and that follows a later one."""
    in_small_stages(monkeypatch, 128)
    artifact = read_artifact(built(tmp_path, ADAMW, shards=2, provider="reference"))
    whole, share = artifact.plan(artifact.programs("update_step")[0]), share_of(artifact.header, 0, 2)
    assert share is not None and share.stages > 1
    own = shared_plan(whole, "update_step", share)
    assert any(isinstance(i, BulkBegin) for i in in_stages(own, whole, share).instructions)
    slot = next(t for t in share.tensors if t.slot == 0 and len(t.pieces) > 2)
    both = Buffer("state", slot.offset, "f32", (slot.bytes // 4,))
    number = len(own.buffers)
    more = replace(own, buffers=(*own.buffers, both), instructions=(*own.instructions, Fill(number, bytes(4), 0, 0)))
    assert in_stages(more, replace(whole, buffers=(*whole.buffers, both)), share) is more
    last = next(
        b for i in own.instructions for b in accesses(i)[1]
        if whole.buffers[b].region == "state" and share.stages_of(whole.buffers[b]) == {share.stages - 1}
    )  # fmt: skip
    first = next(
        b for i in own.instructions for b in accesses(i)[1]
        if whole.buffers[b].region == "state" and share.stages_of(whole.buffers[b]) == {0}
    )  # fmt: skip
    back = replace(own, instructions=(*own.instructions, Copy(last, first, 0, 0)))
    assert in_stages(back, whole, share) is back


def _replaced(plan: Plan) -> Iterator[Instruction]:
    """Instructions that write nothing but what a later fill replaces."""
    filled = set[tuple[str, int]]()  # the bytes
    for instruction in reversed(plan.instructions):
        written = [(plan.buffers[b].region, at) for b in accesses(instruction)[1] for at in _bytes(plan.buffers[b])]
        if written and filled.issuperset(written):
            yield instruction
        if isinstance(instruction, Fill):
            filled.update(written)
        filled -= {(plan.buffers[b].region, at) for b in accesses(instruction)[0] for at in _bytes(plan.buffers[b])}


def _bytes(buffer: Buffer) -> range:
    return range(buffer.offset, buffer.end)


def _launches(plan: Plan) -> int:
    return sum(isinstance(i, Kernel) for i in plan.instructions)


def test_a_plan_that_changes_several_slices_is_refused(tmp_path: Path) -> None:
    artifact = read_artifact(built(tmp_path, ADAMW, provider="reference"))
    [program] = artifact.programs("update_step")
    plan, share = artifact.plan(program), share_of(artifact.header, 0, 2)
    assert share is not None
    slot = next(t for t in share.tensors if t.slot == 0 and any(p.slice * share.each >= share.owned for p in t.pieces)
                and t.flat < share.owned)  # fmt: skip
    number = len(plan.buffers)
    buffers = (*plan.buffers, Buffer("state", slot.offset, "f32", (slot.bytes // 4,)))
    plan = replace(plan, buffers=buffers, instructions=(*plan.instructions, Fill(number, bytes(4), 0, 0)))
    with pytest.raises(ArtifactError) as caught:
        shared_plan(plan, "update_step", share)
    assert caught.value.code == "R301" and "several slices" in caught.value.message


def test_a_part_must_join_its_group(tmp_path: Path) -> None:
    session = opened(built(tmp_path, ADAMW, provider="reference"), part=(0, 2))
    for call in (session.state_tensors, lambda: session.train_step(**batch(ADAMW, 0))):
        with pytest.raises(InputError) as caught:
            call()
        assert "has not joined the others" in caught.value.message

    def work(group: Group) -> None:
        session.join(group)

    errors = [each.exception() for each in together(places(4), work)]
    own = [error for error in errors if isinstance(error, InputError)]
    assert own and all(f"part=({each_rank(error)}, 4)" in str(error.help) for error in own)
    for error in errors:  # a rank may hear first that another one has ended
        assert error in own or (isinstance(error, RanksError) and "R105" in error.message)


def each_rank(error: InputError) -> str:
    return error.message.rpartition("rank ")[2].split(" ")[0]


@pytest.mark.parametrize("sizes", [(4, 2), (2, 8), (8, 1)])
def test_a_state_goes_on_with_another_number_of_ranks(tmp_path: Path, sizes: tuple[int, int]) -> None:
    path = built(tmp_path, ADAMW, provider="reference")
    alone = opened(path)
    _ = steps(alone, ADAMW), steps(alone, ADAMW)
    states: list[Any] = []

    def work(group: Group | None, rank: int, size: int) -> Any:
        session = opened(path, part=(rank, size))
        if group is not None:
            session.join(group)
        if states:
            session.restore(states[0], STEPS)
        steps(session, ADAMW, rank, size)
        return session.state_tensors()

    for size in sizes:
        if size == 1:
            found = [work(None, 0, 1)]
        else:
            found = [each.result() for each in together(places(size), lambda g, n=size: work(g, g.rank, n))]
        states[:] = found[:1]
    assert {n: a.tobytes() for n, a in states[0].items()} == state_of(alone)
