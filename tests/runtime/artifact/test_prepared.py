"""The region prepared: `prepare` writes all of it before anything reads it, and nothing else writes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.base.errors import ArtifactError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.instructions import Copy, Fill, Instruction, Loop, LoopEnd
from dslc.runtime.artifact.plan import Buffer, Plan
from dslc.runtime.artifact.plan_check import check

MODEL = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 6]) -> [B, 6] {
  param w: [6, 6] = normal(1.0)
  return x @ softmax(w)
}
"""
Z = b"\0" * 4


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("net") / "net.nn"
    path.write_text(MODEL)
    return Artifact.of_bytes(pipeline.build(check_file(path), Options(provider="reference")).artifact)


def buffer(offset: int, count: int = 16, region: Any = "prepared") -> Buffer:
    return Buffer(region, offset, "f32", (count,))


#: 0 and 1: the halves of a region of 128 bytes; 2: a part of both; 3 and 4: others.
BUFFERS = (buffer(0), buffer(64), buffer(32), buffer(0, 16, "work"), buffer(0, 16, "state"))


def plan(*instructions: Instruction) -> Plan:
    return Plan(BUFFERS, (), (), (), (), instructions, ("here",))


def fill(index: int) -> Fill:
    return Fill(index, Z, 0, 0)


def move(source: int, target: int) -> Copy:
    return Copy(source, target, 0, 0)


def refused(made: Plan, *, prepares: bool) -> str | None:
    try:
        check(made, 64, 0, 256, 64, prepared_bytes=128, writes_state=False, prepares=prepares)
    except ArtifactError as error:
        assert error.code == "R301" and error.help
        return error.message
    return None


@pytest.mark.parametrize(
    ("instructions", "why"),
    [
        ([fill(0), fill(1)], None),
        ([move(4, 1), move(1, 0)], None),
        ([fill(0), fill(1), move(2, 3)], None),
        ([fill(2), fill(0), fill(1)], None),  # in parts, and again
        ([fill(0)], "bytes 64 to 128 of the region prepared are never written"),
        ([fill(1)], "bytes 0 to 64 of the region prepared are never written"),
        ([], "never written"),
        ([fill(0), move(1, 3), fill(1)], "read before it is written"),
        ([fill(0), move(2, 3), fill(1)], "read before it is written"),
        ([fill(0), fill(1), Loop(2, ()), fill(0), LoopEnd()], "a loop of `prepare`"),
        ([fill(0), fill(1), Loop(2, ()), move(0, 3), LoopEnd()], "a loop of `prepare`"),
        ([fill(0), fill(1), fill(4)], "may not change the state"),
    ],
)
def test_a_plan_of_prepare(instructions: list[Instruction], why: str | None) -> None:
    found = refused(plan(*instructions), prepares=True)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize("write", [fill(0), move(3, 1), move(0, 1)])
def test_no_other_plan_writes_it(write: Instruction) -> None:
    assert refused(plan(move(0, 3), move(2, 3)), prepares=False) is None
    found = refused(plan(write), prepares=False)
    assert found is not None and "only `prepare` may write" in found


def test_bytes_between_tensors_need_not_be_written() -> None:
    made = Plan((buffer(0, 3), buffer(64, 1)), (), (), (), (), (fill(0), fill(1)), ("here",))
    assert refused(made, prepares=True) is None


def of(header: dict[str, Any], entry: str) -> dict[str, Any]:
    return next(p for p in header["programs"] if p["entry"] == entry)


def test_what_the_compiler_writes(artifact: Artifact) -> None:
    header = artifact.header
    assert header["format"] == [1, 4] and "prepared" in header["required_features"]
    assert [p["entry"] for p in header["programs"]].count("prepare") == 1
    assert {p["entry"] for p in header["programs"] if "prepared_bytes" in p} == {"prepare", "predict"}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda h: of(h, "predict").update(prepared_bytes=64), "prepared_bytes"),
        (lambda h: of(h, "init").update(prepared_bytes=192), "prepared_bytes"),
        (lambda h: of(h, "prepare").pop("prepared_bytes"), "prepared_bytes"),
        (lambda h: h["programs"].append(of(h, "prepare") | {"sizes": {"B": 7}, "plan": "plan.9"}), "prepared_bytes"),
        (lambda h: of(h, "prepare").update(entry="predict", sizes={"B": 8}), "prepared_bytes"),
        (lambda h: h["required_features"].remove("prepared"), "required_features"),
    ],
)
def test_a_header_that_does_not_hold_together(
    artifact: Artifact, change: Callable[[dict[str, Any]], object], place: str
) -> None:
    header = copy.deepcopy(dict(artifact.header))
    check_header(header)
    header["blobs"].append({**header["blobs"][-1], "name": "plan.9", "kind": "plan"})
    changed = copy.deepcopy(header)
    change(changed)
    if all(p["plan"] != "plan.9" for p in changed["programs"]):
        changed["blobs"].pop()
    with pytest.raises(ArtifactError) as caught:
        check_header(changed)
    assert caught.value.code == "R301" and place in str(caught.value.place)


def test_a_program_of_an_older_format_has_none(artifact: Artifact, tmp_path: Path) -> None:
    """Without such programs the header has the version that it always had."""
    path = tmp_path / "net.nn"
    path.write_text(MODEL)
    built = pipeline.build(check_file(path), Options(provider="reference", prepare="never"))
    assert built.header["format"] != [1, 4] or Artifact.of_bytes(built.artifact).header["format"] == [1, 1]
