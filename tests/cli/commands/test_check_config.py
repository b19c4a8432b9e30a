"""`dslc check` tells what `dslc train` would say of the names in dslc.yaml, before there is any data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

MODEL = """nn 1
dim B in 1..64 = 4
model Net(x: [B, 3]) -> [B, 2] { return x |> linear(4) as body |> linear(2) as head }
train Net(y: i32[B], weight: float = 1.0) {
  loss = weight * cross_entropy(output, y)
  metrics { right = accuracy(output, y) }
  optimizer = sgd(lr=0.1)
}
"""
CONFIG = "model: net.nn\ndata:\n  train: {x: none.npz:x, y: none.npz:y}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(MODEL)
    return tmp_path


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("train: {freeze: [hed]}", "E0605", "`hed` selects no parameter of the model"),
        ("train: {lr_scale: {bdy: 0.1}}", "E0605", "did you mean `body`?"),
        ("train: {schedules: {wieght: {cosine: {}}}}", "R104", "did you mean `weight`?"),
        ("train: {stop: {metric: accuracy, patience: 3}}", "R104", "there is no metric `accuracy`"),
        ("save: {best: highest rigth}", "R104", "did you mean `right`?"),
        ("  augment: {z: [{flip: 0.5}]}", "R102", "the model has no input `z`"),
        ("  eval: {x: none.npz:x, label: none.npz:y}", "R102", "the model has no input `label`"),
        ("  split: 0.5\n  eval: {x: none.npz:x, y: none.npz:y}", "R104", "exclude each other"),
        ("build: {sizes: {train: {C: 3}}}", "E0603", "the file declares no dim `C`"),
        ("build: {target: sm_1}", "E0601", "the target `sm_1` is not known"),
    ],
)
def test_a_name_that_does_not_fit(dslc: Callable, project: Path, more: str, code: str, said: str) -> None:
    (project / "dslc.yaml").write_text(CONFIG + more)
    checked, trained = dslc("check"), dslc("train")
    assert checked.code != 0 and f"error[{code}]" in checked.err and said in checked.err
    if "none.npz" not in trained.err:  # a missing file is told first there
        assert trained.code == checked.code and said in trained.err
    assert json.loads(dslc("check", "--json").out)["errors"][0]["code"] == code


def test_names_that_fit(dslc: Callable, project: Path) -> None:
    """Also without the files of data, and for a model without a train section."""
    (project / "dslc.yaml").write_text(
        CONFIG + "train: {freeze: [body], schedules: {weight: {cosine: {}}}}\nsave: {best: highest right}"
    )
    ran = dslc("check")
    assert ran.code == 0 and "Net(x: [B, 3])" in ran.out
    (project / "net.nn").write_text(MODEL[: MODEL.index("train Net")])
    (project / "dslc.yaml").write_text("model: net.nn\n")
    ran = dslc("check")
    assert ran.code == 0 and "no train section" in ran.out
