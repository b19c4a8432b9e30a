"""``--prepare`` and ``build: {prepare: ...}``: what is built, recorded, said and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.views.forecast import forecasts
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options

MODEL = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 6]) -> [B, 6] {
  param w: [6, 6] = normal(1.0)
  return x @ softmax(w)
}
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.nn"
    path.write_text(MODEL)
    return path


def test_what_is_prepared_is_said_and_can_be_left_out(net: Path, dslc: Callable[..., Any]) -> None:
    build = ("build", "net.nn", "--providers", "reference")
    assert dslc(*build).code == 0
    ran = dslc("mem", "build/net", "--json")
    [size] = ran.json["prepared_bytes"].values()
    assert size == 192 and "prepared 192 B" in dslc("mem", "build/net").out
    assert {p["entry"] for p in ran.json["programs"] if p["prepared_bytes"]} == {"prepare", "predict"}
    with_it = ran.json["sessions"]["cpu"]["predict"]
    [foreseen] = forecasts(check_file(net), Options(provider="reference"), {"B": 4}, ("auto",))
    assert foreseen.total == with_it
    assert dslc(*build, "--prepare", "never").code == 0
    ran = dslc("mem", "build/net", "--json")
    assert not ran.json["prepared_bytes"] and ran.json["sessions"]["cpu"]["predict"] <= with_it
    assert dslc("verify", "build/net", "--rebuild", "net.nn").code == 0
    Path("dslc.yaml").write_text("model: net.nn\nbuild: {prepare: never, providers: reference}\n")
    assert dslc("build").code == 0
    assert not dslc("mem", "build/net", "--json").json["prepared_bytes"]


@pytest.mark.parametrize("word", ["always", "true", "0"])
def test_other_words_are_refused(word: str, net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("build", "net.nn", "--prepare", word)
    assert ran.code == 2 and "E0603" in ran.err and "auto, or never" in ran.err
    Path("dslc.yaml").write_text(f"model: net.nn\nbuild: {{prepare: {word}}}\n")
    assert dslc("build").code == 2


def test_the_entry_prepare_is_shown_and_explained(net: Path, dslc: Callable[..., Any]) -> None:
    before = dslc("show", "net.nn", "--entry", "prepare")
    assert before.code == 0 and "softmax" in before.out and "matmul" not in before.out
    after = dslc("show", "net.nn", "--entry", "prepare", "--after", "memory")
    assert after.code == 0 and "prepared+0" in after.out
    assert dslc("show", "net.nn", "--entry", "prepare", "--diff", "streams").code == 0
    why = dslc("why", "net.nn:5", "net.nn", "--entry", "prepare")
    assert why.code == 0 and "softmax" in why.out and "prepared+0" in why.out


def test_what_prepare_lacks_is_said(net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("show", "net.nn", "--entry", "prepare", "--after", "fuse")
    assert ran.code == 2 and "E0603" in ran.err and "select, schedule, streams, memory" in ran.err
    net.write_text(MODEL.replace("softmax(w)", "w"))
    ran = dslc("show", "net.nn", "--entry", "prepare")
    assert ran.code == 2 and "E0508" in ran.err and "from the weights alone" in ran.err
    ran = dslc("show", "net.nn", "--entry", "update_step")
    assert ran.code == 2 and "E0508" in ran.err and "it has init, predict" in ran.err
