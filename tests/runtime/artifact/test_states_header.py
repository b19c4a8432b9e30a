"""What a header says of states that last from call to call holds together, or is refused with the field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from states.recurrent import CARRIED, TRAIN, built

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.header_rules import interface_sha256


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(read_artifact(built(tmp_path_factory.mktemp("net"), CARRIED + TRAIN)).header)


def carrying(h: dict[str, Any], entry: str = "predict") -> dict[str, Any]:
    return next(p for p in h["programs"] if p["entry"] == entry)


def test_what_the_compiler_writes(header: dict[str, Any]) -> None:
    assert "state" in header["required_features"]
    assert [s["name"] for s in header["interface"]["states"]] == ["both.last", "h", "steps"]
    assert [s["start"] for s in header["interface"]["states"]] == [0.5, 0, 3]
    for program in header["programs"]:
        small = program["entry"] in ("predict", "eval_step")
        assert bool(program.get("context")) == small == bool(program["context_bytes"])
    found = {t["name"]: t["shape"] for t in header["state"]["tensors"] if t["kind"] == "state"}
    assert found == {"train.state.both.last": [4, 6], "train.state.h": [2, 4, 6], "train.state.steps": []}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda h: carrying(h)["context"].update(other=0), "context"),
        (lambda h: carrying(h)["context"].update(h=1 << 20), "context"),
        (lambda h: carrying(h)["context"].update(h=8), "context"),
        (lambda h: carrying(h)["context"].update(h=0), "context"),  # overlaps
        (lambda h: carrying(h, "train_step").update(context={"h": 0}), "context"),
        (lambda h: carrying(h).update(context_bytes=64), "context"),
        (lambda h: h["interface"].pop("states"), "state.tensors"),
        (lambda h: h["interface"]["states"].append(h["interface"]["states"][0]), "interface.states"),
        (lambda h: h["interface"]["states"][1].update(dtype="f64"), "state.tensors"),
        (lambda h: h["interface"]["states"][1].update(shape=["B + Z"]), "interface"),
        (lambda h: h["interface"]["states"][1].update(shape=["B - 9"]), "context"),
        (lambda h: h["state"]["tensors"].pop(), "state.tensors"),
    ],
)
def test_a_header_that_does_not_hold_together(
    header: dict[str, Any], change: Callable[[dict[str, Any]], None], place: str
) -> None:
    check_header(copy.deepcopy(header))
    changed = copy.deepcopy(header)
    change(changed)
    changed["interface_sha256"] = interface_sha256(changed["interface"])
    with pytest.raises(ArtifactError) as caught:
        check_header(changed)
    assert caught.value.code == "R301" and place in str(caught.value.place)


def test_a_plan_that_writes_past_its_context_is_refused(tmp_path: Path) -> None:
    from dslc.runtime.artifact.plan_check import check

    artifact = read_artifact(built(tmp_path, CARRIED))
    for program in artifact.programs("predict"):
        amounts = program.io_bytes, program.work_bytes
        check(artifact.plan(program), artifact.header["state"]["bytes"], program.context_bytes, *amounts,
              blobs=artifact._infos, writes_state=False)  # fmt: skip
        with pytest.raises(ArtifactError, match="ends at"):
            check(artifact.plan(program), artifact.header["state"]["bytes"], program.context_bytes - 64, *amounts,
                  blobs=artifact._infos, writes_state=False)  # fmt: skip
