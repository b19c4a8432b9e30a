"""``--prepare`` and ``build: {prepare: ...}``: what is built, recorded, said and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.forecast import forecasts
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
