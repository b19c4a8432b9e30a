"""``--mirror`` and ``build: {mirror: ...}``: what is recorded, said and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _built(dslc: Callable[..., Any], *args: object) -> dict[str, Any]:
    ran = dslc("build", "net.nn", "--providers", "reference", "--json", *args)
    assert ran.code == 0, ran.err
    return next(p for p in ran.json["programs"] if p["entry"] == "train_step")


def test_a_budget_is_met_by_computing_again(deep_net: Path, dslc: Callable[..., Any]) -> None:
    plain = _built(dslc, "--mirror", "never")
    assert plain["mirrored"] is None and _built(dslc)["mirrored"] is None, "a small net is left alone"
    step = _built(dslc, "--mirror", "2.5MiB")
    said = step["mirrored"]
    assert said["nodes"] > 0 and said["bytes_after"] < said["bytes_before"]
    assert 1 < said["seconds_after"] / said["seconds_before"] < 1.5
    assert step["work_bytes"] + step["io_bytes"] < 2.5 * 2**20 < plain["work_bytes"] + plain["io_bytes"]
    ran = dslc("verify", "build/net", "--rebuild", "net.nn")
    assert ran.code == 0 and "the same bytes" in ran.out
    assert "recomputing nodes save" in dslc("build", "net.nn", "--providers", "reference", "--mirror", "2.5MiB").out


def test_a_budget_that_is_not_met_says_so(deep_net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("build", "net.nn", "--providers", "reference", "--mirror", "1 MiB")
    assert ran.code == 6 and "E0402" in ran.err and "(after mirroring)" in ran.err
    largest = ran.err.rpartition("B=")[2].strip()
    assert _built(dslc, "--mirror", "1 MiB", "--size", f"B={largest}")["mirrored"] is not None
    deep_net.write_text(deep_net.read_text() + "budget { memory = 2 MiB }\n")
    assert _built(dslc)["mirrored"] is not None
    ran = dslc("build", "net.nn", "--providers", "reference", "--mirror", "never")
    assert ran.code == 6 and "(after mirroring)" not in ran.err


@pytest.mark.parametrize("word", ["lots", "0", "-1 GiB", "20 GG", "true"])
def test_other_words_are_refused(word: str, deep_net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("build", "net.nn", "--mirror", word)
    assert ran.code == 2 and "E0603" in ran.err and "auto, never, or a budget" in ran.err
    Path("dslc.yaml").write_text(f"model: net.nn\nbuild: {{mirror: {word}}}\n")
    ran = dslc("build")
    assert ran.code == 2 and "E0603" in ran.err
