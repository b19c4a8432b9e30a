"""Several GPUs have the bits of one: sums in their memory, exchanged by NCCL. The driver and NCCL are fakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.nets import (
    ACCUMULATED,
    ADAMW,
    BATCHNORM,
    IN_TURN,
    SEVERAL,
    TRANSFORMER,
    TWINS,
    batch,
    built,
    in_small_stages,
    rows_of,
    scaled,
)
from ranks.on_gpus import STEPS, Machine, on_gpus, opened, trained
from ranks.together import places, together

import dslc
from dslc.base.errors import DslcError, EnvironmentFault, OutOfMemory, RanksError
from dslc.cli.app import run
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.share import share_of
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.libraries import nccl
from dslc.runtime.cuda.sizes import CONTEXT
from dslc.runtime.cuda.sums.sum_sizes import NCCL_OF_TWO
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.open import USES


@pytest.mark.parametrize("divided", [False, True], ids=["all update all", "each its slices"])
@pytest.mark.parametrize(("source", "shards", "sizes"), [
    (BATCHNORM, 2, (1, 2)), (BATCHNORM, 8, (1, 2, 4, 8)), (TRANSFORMER, 4, (1, 4)),
    (ACCUMULATED, 8, (1, 2, 4, 8)), (TWINS, 4, (1, 2)), (ADAMW, 4, (1, 2, 4)), (SEVERAL, 2, (1, 2)),
    (IN_TURN, 4, (1, 2)),
])  # fmt: skip
def test_any_number_of_gpus(
    tmp_path: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    shards: int,
    sizes: tuple[int, ...],
    divided: bool,
) -> None:
    path = built(tmp_path, source, shards=shards, provider="reference")
    fake = on_gpus(path, machine, max(sizes), monkeypatch)
    expected = trained(dslc.load(path, device="cpu", weights="init", seed=3), source)

    def work(group: Group) -> Any:
        part = (group.rank, group.size) if divided else (0, 1)
        session = opened(path, f"gpu:{group.rank}", part=part)
        session.join(group)
        found = trained(session, source, group)
        counted = session.counters
        session.close()
        return found, counted

    for size in sizes:
        if size == 1:
            session = opened(path, "gpu:0")
            assert trained(session, source) == expected
            session.close()
            continue
        fake.aborted = fake.groups = 0
        for each in together(places(size), work):
            found, counted = each.result()
            assert found == expected
            assert counted["synchronisations"] == 0
            assert counted["bytes_out"] < 2000 * STEPS  # gradients stay on the device
        assert fake.aborted == size
        each_step = 4 if source is IN_TURN else 3 if divided and source not in (TRANSFORMER, ADAMW) else 2
        assert fake.groups == each_step * size * STEPS
    for number in range(max(sizes)):
        assert devices.device(number).info().memory.used == 0


@pytest.mark.parametrize("peers", [False, True], ids=["nccl", "peers"])
@pytest.mark.parametrize(("compute", "shards", "sizes"), [("f32", 4, (2, 4)), ("f16", 4, (2, 4)), ("f16", 2, (2,))])
def test_stages(
    tmp_path: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    compute: str,
    shards: int,
    sizes: tuple[int, ...],
    peers: bool,
) -> None:
    """What arrives in a stage is added and updated, and leaves, while that of others moves."""
    in_small_stages(monkeypatch)
    if compute == "f32":
        path = built(tmp_path, ADAMW, shards=shards, provider="reference")
    else:
        path = scaled(tmp_path, ADAMW, shards, scale=None)
    fake = on_gpus(path, machine, max(sizes), monkeypatch, peers=peers)
    alone = opened(path, "cpu")
    expected = trained(alone, ADAMW)

    def work(group: Group) -> Any:
        session = opened(path, f"gpu:{group.rank}", part=(group.rank, group.size))
        session.join(group)
        found = trained(session, ADAMW, group)
        session.close()
        return found

    for size in sizes:
        share = share_of(read_artifact(path).header, 0, size)
        assert share is not None and share.stages == share.count // size >= 4 * shards // size
        fake.groups = 0
        for each in together(places(size), work):
            assert each.result() == expected
        assert fake.groups == (0 if peers else 2 * share.stages * size * STEPS)
        assert fake.fake.opened == 0


@pytest.mark.parametrize("divided", [False, True], ids=["all update all", "each its slices"])
@pytest.mark.parametrize("source", [BATCHNORM, ADAMW, ACCUMULATED])
def test_a_scaled_loss_and_one_verdict(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, source: str, divided: bool
) -> None:
    """In f16; the third step overflows in one row."""
    path = scaled(tmp_path, source, 4)
    on_gpus(path, machine, 4, monkeypatch)

    def work(group: Group | None, device: str) -> Any:
        rank, size = (0, 1) if group is None else (group.rank, group.size)
        session, found = opened(path, device, part=(rank, size) if divided else (0, 1)), []
        if group is not None:
            session.join(group)
        own = slice(rank * rows_of(source) // size, (rank + 1) * rows_of(source) // size)
        for step in range(STEPS):
            given = batch(source, step)
            if step == 2:
                given["x"][5] = np.inf
            found.append(session.train_step(**{n: a[own] for n, a in given.items()}))
        results = [(repr(each.loss), each.skipped, each.loss_scale, each.skipped_steps) for each in found]
        state = {name: array.tobytes() for name, array in session.state_tensors().items()}
        session.close()
        return results, state

    expected = work(None, "cpu")
    assert [each[1] for each in expected[0]] == [False, False, True, False]
    assert work(None, "gpu:0") == expected
    for size in (2, 4):
        for each in together(places(size), lambda group: work(group, f"gpu:{group.rank}")):
            assert each.result() == expected


def joined(path: Path, device: Callable[[int], str]) -> list[Any]:
    """The error of each of two ranks, when they join on these devices; None for none."""

    def work(group: Group) -> Any:
        session = opened(path, device(group.rank))
        try:
            session.join(group)
            session.train_step(**{n: a[:8] for n, a in batch(BATCHNORM, 0).items()})
        except (EnvironmentFault, RanksError) as error:
            return error
        finally:
            session.close()
        return None

    return [each.result() for each in together(places(2), work)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_gpu_takes_what_is_told_of_it(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    path = built(tmp_path, BATCHNORM, shards=8, provider="reference")
    on_gpus(path, machine, size, monkeypatch)
    assert run(["mem", str(path), "--gpus", str(size), "--json"]) == 0
    [(told,)] = json.loads(capsys.readouterr().out)["gpus"].values()
    assert (told["gpus"], told["shards"], told["nccl"] >= NCCL_OF_TWO) == (size, 8 // size, size > 1)

    def work(group: Group | None, rank: int = 0) -> int:
        session = opened(path, f"gpu:{rank}", calls=USES["train"], part=(rank, size))
        if group is not None:
            session.join(group)
        used = devices.device(rank).info().memory.used
        session.close()
        return used

    used = [each.result() for each in together(places(size), lambda g: work(g, g.rank))] if size > 1 else [work(None)]
    assert {*used} == {told["session"] + told["sums"] + told["exchange"]}
    assert told["total"] == used[0] + told["nccl"] + told["driver"] + CONTEXT


def test_no_room_is_told_before_anything_is_taken(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the exchange and NCCL when a session joins others, on all ranks; of the session when it opens."""
    path = built(tmp_path, BATCHNORM, shards=8, provider="reference")
    fake = on_gpus(path, machine, 2, monkeypatch, total=NCCL_OF_TWO)

    def work(group: Group) -> tuple[str, str, int]:
        session = opened(path, f"gpu:{group.rank}")
        before = devices.device(group.rank).info().memory.used
        with pytest.raises(DslcError) as caught:
            session.join(group)
        taken = devices.device(group.rank).info().memory.used - before
        session.close()
        return str(caught.value.code), caught.value.message, taken

    for each in together(places(2), work):
        code, message, taken = each.result()
        assert (code, taken) == ("R401", 0)
        assert "the exchange with other GPUs needs" in message and "NCCL's own 1016.0 MiB" in message
    assert not fake.sent
    fake.fake.total = 1 << 20
    with pytest.raises(OutOfMemory) as caught:
        opened(path, "gpu:0")
    assert "the driver's code" in str(caught.value)


def test_what_is_refused(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tmp_path, BATCHNORM, shards=2, provider="reference")
    real = nccl.load_nccl
    fake = on_gpus(path, machine, 2, monkeypatch)
    for error in joined(path, lambda rank: "gpu:0"):
        assert error.code == "R601" and error.message == "ranks 0 and 1 use the same GPU"
    fake.refuse = True
    for error in joined(path, lambda rank: f"gpu:{rank}"):
        assert error.code == "R603" and "NCCL failed: UnhandledCudaError" in error.message
    monkeypatch.setattr(nccl, "load_nccl", real)
    monkeypatch.setitem(sys.modules, "nccl", None)
    for error in joined(path, lambda rank: f"gpu:{rank}"):
        assert error.code == "R205" and "NCCL cannot be loaded" in error.message and "[nccl]" in str(error.help)


def test_numbers_are_read_late(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """When later steps are under way, and after the session is closed."""
    path = built(tmp_path, BATCHNORM, shards=4, provider="reference")
    on_gpus(path, machine, 1, monkeypatch)
    one, other = opened(path, "gpu"), dslc.load(path, device="cpu", weights="init", seed=3)
    late = [one.train_step(**batch(BATCHNORM, step)) for step in range(5)]
    one.close()
    assert late == [other.train_step(**batch(BATCHNORM, step)) for step in range(5)]


def test_a_step_is_submitted_while_its_runs_are_under_way(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update has slots of its own: the host is a whole step ahead of the device, and waits for no run of it."""
    path = built(tmp_path, BATCHNORM, shards=2, provider="reference")
    fake = on_gpus(path, machine, 1, monkeypatch).fake
    fake.patience = 0.5
    one, other = opened(path, "gpu"), dslc.load(path, device="cpu", weights="init", seed=3)
    results = []
    for step in range(6):
        fake.hung = step == 3  # nothing ends that is submitted from now on
        results.append(one.train_step(**batch(BATCHNORM, step)))
        if step != 3:
            assert results[-1].loss == results[-1].loss  # reads it
    fake.hung = False
    assert results == [other.train_step(**batch(BATCHNORM, step)) for step in range(6)]
    one.close()
