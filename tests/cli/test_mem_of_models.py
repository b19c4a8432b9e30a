"""``dslc mem FILE.nn``: what a step would take, by size, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.base.words import size_text

pytestmark = pytest.mark.slow


def test_sizes_side_by_side(deep_net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("mem", "net.nn", "--size", "B=64,512", "--budget", "2MiB", "--json")
    assert ran.code == 0, ran.err
    rows = ran.json["sizes"]
    assert [(r["sizes"]["B"], r["mirror"]) for r in rows] == [
        (64, "never"), (64, "2 MiB"), (512, "never"), (512, "2 MiB")
    ]  # fmt: skip
    small, same, plain, mirrored = rows
    assert small["work"] == same["work"] and same["again"] == 0, "what fits stays as it is"
    assert mirrored["again"] > 0 and mirrored["total"] <= 2 * 2**20 < plain["total"]
    assert plain["seconds"] < mirrored["seconds"] < 1.5 * plain["seconds"] and small["seconds"] < plain["seconds"]
    for row in rows:
        assert row["total"] >= row["state"] + row["io"] + row["work"] and row["bound"] <= row["work"]


def test_it_is_what_a_build_plans(deep_net: Path, dslc: Callable[..., Any]) -> None:
    built = dslc("build", "net.nn", "--providers", "reference", "--json").json
    step = next(p for p in built["programs"] if p["entry"] == "train_step")
    [never, auto] = dslc("mem", "net.nn", "--providers", "reference", "--json").json["sizes"]
    assert (never["io"], never["work"], never["state"]) == (step["io_bytes"], step["work_bytes"], built["state_bytes"])
    assert auto["mirror"] == "auto" and auto["work"] == never["work"]


@pytest.mark.parametrize(("target", "mesh"), [("cpu", ""), ("sm_90", ""), ("sm_90", "mesh { shards = 8 }\n")])
def test_a_forecast_is_what_a_session_takes(
    target: str, mesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dslc: Callable[..., Any]
) -> None:
    """What is foreseen, told of the artifact, and shown in its report is one number."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nn").write_text(
        "nn 1\ndim B in 1..64 = 16\nmodel Net(x: [B, 40]) -> [B, 5000] {\n"
        "  return x |> linear(30) as a |> relu |> linear(5000) as b\n}\n"
        "train Net(label: i32[B]) {\n  loss = cross_entropy(output, label)\n  optimizer = adam(lr=0.01)\n}\n" + mesh
    )
    built = dslc("build", "net.nn", "--target", target, "--json")
    assert built.code == 0, built.err
    [foreseen, _] = dslc("mem", "net.nn", "--target", target, "--json").json["sizes"]
    said, shown = (dslc(command, "build/net", "--json").json["sessions"][target] for command in ("mem", "info"))
    assert foreseen["total"] == said["train"] and said == shown
    assert said["predict"] < said["load"] and said["eval"] <= said["train"] <= said["load"]
    report = (tmp_path / "build/net/report.html").read_text()
    for use, words in (
        ("train", "memory to train"),
        ("predict", "memory to predict"),
        ("load", "memory for all calls"),
    ):
        assert words in report and f"{size_text(said[use])} ({target})" in report
    assert f"{size_text(said['train'])} of" in dslc("info", "build/net").out


def test_the_largest_batch_fits_and_the_next_does_not(deep_net: Path, dslc: Callable[..., Any]) -> None:
    most = dslc("mem", "net.nn", "--budget", "1 MiB", "--json").json["largest"]
    assert most["never"] < most["mirrored"] < 4096
    for name, column in (("never", 0), ("mirrored", 1)):
        ran = dslc("mem", "net.nn", "--size", f"B={most[name]},{most[name] + 1}", "--budget", "1MiB", "--json")
        totals = [row["total"] for row in ran.json["sizes"]][column::2]
        assert totals[0] <= 2**20 < totals[1], name
    assert dslc("mem", "net.nn", "--budget", "1 KiB", "--json").json["largest"] == {"never": None, "mirrored": None}
    least = dslc("mem", "net.nn", "--size", "B=1", "--json").json["sizes"][0]
    said = f"none\nB=1 takes {size_text(least['total'])}, of which {size_text(least['state'])} is state"
    assert said in dslc("mem", "net.nn", "--budget", "1 KiB").out
    assert "largest B within 74.5 GiB: 4,096" in dslc("mem", "net.nn", "--budget", "h100").out


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("net.nn", "--budget", "much"), 6, "E0401"),
        (("net.nn", "--size", "C=4"), 2, "E0603"),
        (("net.nn", "--size", "B=5000"), 2, "E0304"),
        (("net.nn", "--size", "train:B=4"), 2, "a size of the step"),
        (("--budget", "1GiB"), 2, "need a FILE.nn"),
    ],
)
def test_what_is_refused(args: tuple[str, ...], code: int, says: str, deep_net: Path, dslc: Callable[..., Any]) -> None:
    ran = dslc("mem", *args)
    assert ran.code == code and says in ran.err
