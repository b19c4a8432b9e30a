"""A build advises to measure libraries' calls that take most of a program (``compiler/report/unmeasured.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = """nn 1
dim B in 1..4096 = 2048
model Net(x: [B, 2048]) -> [B, 1024] {
  h = x |> linear(2048)
  return h |> relu |> linear(1024)
}
"""


def test_a_build_advises_to_measure(dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.nn").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLC_CACHE_DIR", str(tmp_path / "cache"))
    options = ("build", "net.nn", "--target", "sm_90", "--precision", "f32", "--providers")
    found = dslc(*options, "vendor", "--json").json["unmeasured"]["sm_90"]
    said = f"2 unmeasured calls of libraries take {found['share']:.0%} of predict's modelled time on sm_90: "
    assert (
        said + "`dslc tune --budget 50s` measures the longest first" in dslc(*options, "vendor").out
    )  # from the cache
    own = dslc(*options, "own", "--json")
    assert own.json["unmeasured"] == {} and "unmeasured calls" not in dslc(*options, "own").out
