"""Starting from weights: heads replaced, too little refused, checkpoints and runs, the table of what matched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.fake_session import FakeSession

from dslc.base.errors import ArtifactError, DataError
from dslc.base.publish import publish_bytes
from dslc.runtime.config.load import load_config
from dslc.runtime.train.run_weights import weights_file
from dslc.runtime.train.start import start_from
from dslc.runtime.weights import safetensors_file as tensorfile

W, B = np.full((4, 3), 0.5, "f4"), np.ones(3, "f4")


def start(folder: Path, tensors: dict[str, np.ndarray], **flags: Any) -> tuple[FakeSession, list[str], dict[str, Any]]:
    path = folder / "w.safetensors"
    publish_bytes(path, tensorfile.encode(tensors))
    config = load_config(folder / "dslc.yaml", {f"start.{n}": v for n, v in {"weights": str(path), **flags}.items()})
    session, said = FakeSession(3), []
    found = start_from(config.start, session, said.append)
    return session, said, found


def test_a_replaced_head_keeps_its_values_whatever_the_file_has(project: Path) -> None:
    fresh = FakeSession(3).state
    for theirs in ({}, {"b": B}, {"b": np.ones(7, "f4")}):
        session, said, found = start(project, {"w": W, **theirs}, replace="b")
        assert np.array_equal(session.state["w"], W) and np.array_equal(session.state["b"], fresh["b"])
        assert any("replaced: keeps its initial values" in line for line in said)
        assert [row["action"] for row in found["tensors"]] == ["taken", "replaced"]
        assert found["tensors"][0] == {
            "files": ["w"], "name": "w", "have": "f32[4, 3]", "want": "f32[4, 3]", "action": "taken", "rule": "",
            "change": "",
        }  # fmt: skip
    with pytest.raises(ArtifactError, match=r"`start\.replace`: no tensor of the model is named `bb`") as caught:
        start(project, {"w": W, "b": B}, replace=["bb"])
    assert caught.value.help == "did you mean `b`?"
    with pytest.raises(ArtifactError, match="0 of 2 tensors, 0% of the bytes"):
        start(project, {"w": W, "b": B}, replace=["*"])


@pytest.mark.parametrize("flags", [{"replace": 3}, {"replace": ["a", 3]}, {"replace": "a{"}, {"replace": ["a"] * 101}])
def test_malformed_patterns_are_refused(project: Path, flags: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        start(project, {"w": W}, **flags)
    assert caught.value.code == "R104" and caught.value.help


def test_weights_that_mostly_do_not_match_are_refused(project: Path) -> None:
    """`partial` alone must not train from noise: b is 12 of 60 bytes."""
    theirs = {"b": B, "other": W}
    with pytest.raises(ArtifactError, match="1 of 2 tensors, 20% of the bytes") as caught:
        start(project, theirs, partial=True)
    assert caught.value.code == "R305" and "start.least" in (caught.value.help or "")
    session, said, _ = start(project, theirs, partial=True, least=0.2)
    assert np.array_equal(session.state["b"], B)
    assert any("not in the file: keeps its initial values" in line for line in said)
    assert any(line.endswith("not used") and "other" in line for line in said)
    with pytest.raises(ArtifactError, match="0 of 2 tensors"):  # nothing at all is never right
        start(project, {"other": W}, partial=True, least=0)
    start(project, {"w": W}, partial=True)  # 80 %
    start(project, {"b": B, "w": np.ones(3, "f4")}, replace=["w"])  # the replaced one does not count


def test_patterns_joins_and_rearranged_axes_reach_the_session(project: Path) -> None:
    theirs = {"net.1.q": W.T[:1] * 2, "net.1.k": W.T[1:2], "net.1.v": W.T[2:], "net.2.b": B, "net.1.mask": B}
    rules = {"net.{i}.{p:q|k|v}": {"to": "w"}, "net.{i}.b": "b", "*.mask": None}
    with pytest.raises(ArtifactError, match=r"new name lacks"):
        try:
            start(project, theirs, map=rules)
        except DataError as error:
            raise ArtifactError("R305", error.message, place="", help=error.help or "") from error
    rules = {"net.1.{p:q|k|v}": {"to": "w", "rearrange": "o i -> i o", "axis": 1}, "net.2.b": "b", "*.mask": None}
    session, said, found = start(project, theirs, map=rules)
    expected = W.copy()
    expected[:, 0] *= 2
    assert np.array_equal(session.state["w"], expected)
    assert any("o i -> i o, join 3" in line for line in said) and any(line.endswith("ignored") for line in said)
    assert {row["action"] for row in found["tensors"]} == {"taken", "ignored"}


def test_columns_are_aligned(project: Path) -> None:
    _, said, _ = start(project, {"w": W, "b" * 300: B}, partial=True)
    table = [line for line in said if line.startswith("  ")]
    place = table[0].index("in the model")
    assert len({line[: place - 2].rstrip() for line in table}) == len(table) > 2
    assert all(line[place - 2 : place] == "  " and len(line) <= 140 for line in table)


def test_a_checkpoint_and_a_run_are_weights(project: Path) -> None:
    from dslc.runtime.train.loop import train

    config = load_config(project / "dslc.yaml", {"save.best": "highest accuracy", "save.keep": 10})
    trained = FakeSession(config.train.seed)
    result = train(config, trained, project / "build")
    store = result.run_dir
    said: list[str] = []
    best = weights_file(store, said.append)
    assert len(said) == 1 and "checkpoint, step-" in said[0] and best.parent == store / "checkpoints"
    newest = sorted((store / "checkpoints").glob("step-*"))[-1]
    for weights in (store, store / "checkpoints", newest):
        chosen = load_config(project / "dslc.yaml", {"start.weights": str(weights)})
        session = FakeSession(3)
        start_from(chosen.start, session, said.append)
        expected = tensorfile.read(newest if weights == newest else best).tensors
        assert np.array_equal(session.state["w"], expected["w"].array())
        assert not session.state["w.momentum"].any()  # the optimizer starts again
    # A damaged checkpoint is passed over; a run without one is named.
    newest.write_bytes(newest.read_bytes()[:-1])
    said.clear()
    assert weights_file(store, said.append) != newest and said
    for path in (store / "checkpoints").glob("step-*"):
        path.write_bytes(b"")
    with pytest.raises(ArtifactError) as caught:
        weights_file(store, said.append)
    assert caught.value.code == "R307"


def test_batch_counters_of_pytorch_are_ignored(project: Path) -> None:
    theirs = {"w": W, "b": B, "bn.num_batches_tracked": np.array(3), "num_batches_tracked": np.array(3)}
    _, said, found = start(project, theirs)
    assert [row["action"] for row in found["tensors"]] == ["taken", "taken", "ignored", "ignored"]
    assert any(line.endswith("ignored") for line in said)


def test_a_conversion_is_told_and_a_lossy_one_refused(project: Path) -> None:
    session, said, found = start(project, {"w": W.astype("f2"), "b": B})
    assert np.array_equal(session.state["w"], W)
    assert [row["change"] for row in found["tensors"]] == ["f16 to f32", ""]
    assert any(line.endswith("f16 to f32") for line in said)
    with pytest.raises(ArtifactError, match=r"w is f64\[4, 3\], not f32\[4, 3\]"):
        start(project, {"w": W.astype("f8"), "b": B})
