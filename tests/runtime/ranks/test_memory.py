"""`dslc mem` tells the memory of each process that trains, for every number of processes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks.nets import BATCHNORM, IN_TURN, built
from ranks.together import places, together, total

import dslc
from dslc.base.errors import OutOfMemory
from dslc.cli.app import run
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cuda.memory_pool import size_class
from dslc.runtime.ranks.group import Group
from dslc.runtime.session.calls import host_sums
from dslc.runtime.session.calls.shard_sum import Parts, Tree, added, sum_bytes
from dslc.runtime.session.calls.terms import Terms
from dslc.runtime.session.host_memory import out_of_memory

COUNT = 1_000_000  # elements


@pytest.mark.parametrize("source", [BATCHNORM, IN_TURN], ids=["one update", "two"])
def test_a_model_and_its_artifact_take_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    built(tmp_path, source, provider="reference")
    told = []
    for named in (["net.dslc"], ["net.nn", "--providers", "reference"]):
        assert run(["mem", str(tmp_path / named[0]), *named[1:], "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["processes"])
    assert [(row["processes"], row["shards"]) for row in told[0]] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert [row["sums"] for row in told[0]] == [row["sums"] for row in told[1]]
    assert all(row["total"] == row["session"] + row["sums"] for rows in told for row in rows)
    assert run(["mem", str(tmp_path / "net.dslc")]) == 0
    assert "each process that trains:" in capsys.readouterr().out


def test_each_gpu_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is foreseen of a model for a GPU: shared parts, and what NCCL takes; a budget holds for each GPU."""
    (tmp_path / "net.nn").write_text(
        "nn 1\ndim B in 8..1024 = 64\nmodel Net(x: [B, 4096]) -> [B, 10] {\n  return x |> linear(10) as a\n}\n"
        "train Net(label: i32[B]) {\n  loss = cross_entropy(output, label)\n  optimizer = sgd(lr=0.1)\n}\n"
        "mesh { shards = 8 }\n"
    )
    asked = ["mem", str(tmp_path / "net.nn"), "--target", "sm_90"]

    def told(*more: str) -> dict[str, Any]:
        assert run([*asked, *more, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    rows = told()["gpus"]
    block = size_class(4 * (4096 * 10 + 10))
    assert [(row["gpus"], row["shards"]) for row in rows] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert [row["sums"] // block for row in rows] == [2, 1, 0, 0]
    assert [row["nccl"] > 0 for row in rows] == [False, True, True, True]
    assert rows[0]["exchange"] == 0 and rows[1]["exchange"] == block // 2
    parts = ("session", "sums", "exchange", "nccl", "driver", "context")
    assert all(row["total"] == sum(row[part] for part in parts) for row in rows)
    assert told("--gpus", "4")["gpus"] == [rows[2]]
    assert told("--budget", "1GiB")["largest"]["never"] > 0
    assert told("--budget", "1GiB", "--gpus", "2")["largest"]["never"] is None  # NCCL alone takes nearly all
    assert run(asked) == 0
    assert "each GPU that trains (B=64):" in capsys.readouterr().out
    assert run([*asked, "--gpus", "3"]) == 2 and "cannot share 8 shards" in capsys.readouterr().err
    assert run(["mem", str(tmp_path / "net.nn"), "--gpus", "2"]) == 2 and "--target" in capsys.readouterr().err


def test_the_levels_of_the_tree_are_counted(tmp_path: Path) -> None:
    artifact = read_artifact(built(tmp_path, BATCHNORM, provider="reference"))
    shard, update = (artifact.plan(artifact.programs(entry)[0]) for entry in ("train_step", "update_step"))
    for owned in (1, 2, 8):
        terms = Terms.of(shard, update)
        assert Tree(Parts(terms), owned).bytes == sum_bytes(terms.bytes, owned, 1)


def test_the_sums_are_taken_when_a_session_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tmp_path, BATCHNORM, provider="reference")
    monkeypatch.setattr(host_sums, "ensure_free", _refuse)
    with pytest.raises(OutOfMemory) as caught:
        dslc.load(path, weights="init", device="cpu")
    assert caught.value.code == "R401" and "the sums over shards" in str(caught.value)
    dslc.load(path, weights="init", device="cpu", calls=("predict",)).close()  # which needs none


def _refuse(need: int, buffers: list[tuple[str, int]]) -> None:
    raise out_of_memory(need, 0, buffers)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_upper_part_of_the_tree_takes_its_first_level(count: int) -> None:
    vectors = [np.full(COUNT, 0.1 * n, np.float32) for n in range(count)]
    tracemalloc.start()
    try:
        total = added(vectors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count // 2 * vectors[0].nbytes <= peak < count // 2 * vectors[0].nbytes * 1.01
    assert vectors[-1][0] == np.float32(0.1 * (count - 1)) and total[0] == pytest.approx(0.05 * count * (count - 1))


@pytest.mark.parametrize("size", [2, 4])
def test_an_exchange_takes_no_more_than_is_told(size: int) -> None:
    """All ranks are threads of this process, so that its peak is theirs together."""
    vectors = [np.ones(COUNT, np.float32) for _ in range(size)]
    bytes_of_one = vectors[0].nbytes

    def work(group: Group) -> None:
        group.agree({})
        total(group, vectors[group.rank], np.zeros((1, 1)))

    tracemalloc.start()
    try:
        for each in together(places(size), work):
            each.result()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    told = sum_bytes(bytes_of_one, size, size) - bytes_of_one  # without the level that is the vector itself
    assert size * bytes_of_one < peak < size * told * 1.05
