"""What a header says of averages and micro-batches holds together, or is refused with the field."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dslc.base.errors import ArtifactError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.header_rules import interface_sha256

SOURCE = """nn 1
dim B in 1..8 = 2
model M(x: [B, 3]) -> [B, 4] { return x |> linear(4) as a }
train M() {
  loss = mean(output^2)
  optimizer = sgd(lr=0.1)
  ema = 0.9
  accumulate = 2
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return built(tmp_path_factory, SOURCE)


@pytest.fixture(scope="module")
def header_in_turn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return built(tmp_path_factory, IN_TURN)


def built(tmp_path_factory: pytest.TempPathFactory, source: str) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("m") / "m.nn"
    path.write_text(source)
    made = pipeline.build(check_file(path), Options(provider="reference"))
    return dict(Artifact.of_bytes(made.artifact).header)


def _raw_of_another(h: dict[str, Any]) -> None:
    raw = next(t for t in h["state"]["tensors"] if t["name"] == "a.bias.raw")
    raw["of"] = "a.weight"


def _without_the_parts(h: dict[str, Any]) -> None:
    [part] = [p for p in h["programs"] if p["entry"] == "accumulate_step"]
    h["programs"].remove(part)
    h["blobs"] = [b for b in h["blobs"] if b["name"] != part["plan"]]


def _parts_that_nobody_asked_for(h: dict[str, Any]) -> None:
    del h["interface"]["train"]["accumulate"]


def _no_batch(h: dict[str, Any]) -> None:
    for dim in h["interface"]["dims"]:
        dim.pop("batch", None)


def _one_part(h: dict[str, Any]) -> None:
    h["interface"]["train"]["accumulate"] = 1


IN_TURN = """nn 1
dim B in 1..8 = 2
model M(x: [B, 3]) -> (p: [B, 4], q: [B, 4]) { return x |> linear(4) as a, x |> linear(4) as b }
train M() {
  step one { params = "a"; loss = mean(p^2); optimizer = sgd(lr=0.1) }
  step two { params = "b"; loss = mean(q^2); optimizer = sgd(lr=0.1) }
  accumulate = 2
}
"""


def _program(h: dict[str, Any], entry: str) -> dict[str, Any]:
    return next(p for p in h["programs"] if p["entry"] == entry and p.get("turn") == "two")


def _without_a_turn(h: dict[str, Any]) -> None:
    for entry in ("accumulate_step", "train_step"):
        program = _program(h, entry)
        h["programs"].remove(program)
        h["blobs"] = [b for b in h["blobs"] if b["name"] != program["plan"]]


def _a_turn_for_half(h: dict[str, Any]) -> None:
    _program(h, "accumulate_step")["turn"] = "three"


def _a_turn_of_nobody(h: dict[str, Any]) -> None:
    for entry in ("accumulate_step", "train_step"):
        _program(h, entry)["turn"] = "three"


def _twice_in_turn(h: dict[str, Any]) -> None:
    h["interface"]["train"]["turns"] = ["two", "two"]


def _one_in_turn(h: dict[str, Any]) -> None:
    h["interface"]["train"]["turns"] = ["one"]


def _a_turn_that_is_no_metric(h: dict[str, Any]) -> None:
    h["interface"]["train"]["metrics"] = ["one"]


def _turns_unsaid(h: dict[str, Any]) -> None:
    h["required_features"].remove("turns")


def _a_turn_of_a_prediction(h: dict[str, Any]) -> None:
    next(p for p in h["programs"] if p["entry"] == "predict")["turn"] = "two"


def _other_sizes_in_turn(h: dict[str, Any]) -> None:
    for entry in ("accumulate_step", "train_step"):
        _program(h, entry)["sizes"] = {"B": 3}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_without_a_turn, "programs"),
        (_a_turn_for_half, "programs"),
        (_a_turn_of_nobody, "programs"),
        (_twice_in_turn, "interface.train.turns"),
        (_one_in_turn, "interface.train.turns"),
        (_a_turn_that_is_no_metric, "interface.train.turns"),
        (_turns_unsaid, "required_features"),
        (_a_turn_of_a_prediction, "programs"),
        (_other_sizes_in_turn, "programs"),
    ],
)
def test_turns_that_do_not_hold_together(
    header_in_turn: dict[str, Any], change: Callable[[dict[str, Any]], None], place: str
) -> None:
    test_a_header_that_does_not_hold_together(header_in_turn, change, place)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_raw_of_another, "state.tensors"),
        (_without_the_parts, "programs"),
        (_parts_that_nobody_asked_for, "programs"),
        (_no_batch, "interface.train.accumulate"),
        (_one_part, "interface.train.accumulate"),
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


def test_a_reader_that_does_not_know_them_says_so(header: dict[str, Any]) -> None:
    assert {"accumulate", "average"} <= set(header["required_features"])


@pytest.fixture(scope="module")
def of_epoch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The header of a model with a metric over the epoch."""
    path = tmp_path_factory.mktemp("m") / "m.nn"
    path.write_text(SOURCE.replace("  accumulate = 2\n", "  metrics epoch { size = mean(output) }\n"))
    made = pipeline.build(check_file(path), Options(provider="reference"))
    return dict(Artifact.of_bytes(made.artifact).header)


def _an_unknown_metric(h: dict[str, Any]) -> None:
    h["interface"]["train"]["epoch_metrics"] = ["other"]


def _without_the_steps_of_an_epoch(h: dict[str, Any]) -> None:
    h["interface"]["train"]["scalars"] = []


def _sums_of_a_parameter(h: dict[str, Any]) -> None:
    next(t for t in h["state"]["tensors"] if t["name"] == "train.epoch.0")["of"] = "a.bias"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_an_unknown_metric, "interface.train.epoch_metrics"),
        (_without_the_steps_of_an_epoch, "interface.train.epoch_metrics"),
        (_sums_of_a_parameter, "state.tensors"),
    ],
)
def test_metrics_over_the_epoch_hold_together(
    of_epoch: dict[str, Any], change: Callable[[dict[str, Any]], None], place: str
) -> None:
    assert "epoch_metrics" in of_epoch["required_features"]
    test_a_header_that_does_not_hold_together(of_epoch, change, place)
