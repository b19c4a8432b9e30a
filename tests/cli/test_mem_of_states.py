"""``dslc mem`` and ``dslc info`` of a model that carries states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from states.recurrent import CARRIED, TRAIN, built


def test_states_are_counted(dslc: Callable, tmp_path: Path) -> None:
    path = built(tmp_path, CARRIED + TRAIN)
    ran = dslc("mem", path)
    assert ran.code == 0, ran.err
    lines = [line for line in ran.out.splitlines() if line.startswith("states ")]
    assert len(lines) == 6 and all("carried by" in line for line in lines)  # eval at B=1, 4; predict at B=2, 4, T=1, 5
    found = dslc("--json", "mem", path).json
    carried = {(p["entry"], p["sizes"]["B"], p["sizes"]["T"]): p["carried_bytes"] for p in found["programs"]
               if p["carried_bytes"]}  # fmt: skip
    # both.last [B, 6], h [2, B, 6] and steps [], each from a multiple of 64 bytes
    assert carried["predict", 2, 5] == carried["predict", 2, 1] == 64 + 128 + 64
    assert carried["eval_step", 4, 5] == carried["predict", 4, 1] == 128 + 192 + 64
    largest = max(p["io_bytes"] for p in found["programs"]) + max(p["work_bytes"] for p in found["programs"])
    every = {1: 64 + 64 + 64, 2: 256, 4: 384}  # a session has one context of states for each shape
    assert found["sessions"]["cpu"]["load"] == found["state_bytes"] + largest + sum(every.values())
    assert dslc("info", path).code == 0 and dslc("verify", path).code == 0
