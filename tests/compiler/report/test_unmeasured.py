"""Libraries' unmeasured calls that take most of a program: which count."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.compiler.report.unmeasured import SHARE, unmeasured

SOURCE = """nn 1
dim B in 1..4096 = 2048
model Net(x: [B, 2048]) -> [B, 1024] {
  h = x |> linear(2048)
  return h |> relu |> linear(1024)
}
"""


def planned(folder: Path, rows: int = 2048, **given: str) -> Program:
    (folder / "net.nn").write_text(SOURCE)
    options = Options(**{"target": "sm_90", "provider": "vendor", "precision": "f32", **given})  # type: ignore[arg-type]
    return compile_entry(check_file(str(folder / "net.nn")), "predict", {"B": rows}, options)[0]


def size(node: Node) -> int:
    return node.inputs[1].type.bytes


def test_large_calls_count_until_they_are_measured(tmp_path: Path) -> None:
    program = planned(tmp_path)
    calls = [node for node, [launch] in program.kernels.items() if isinstance(launch.spec, LibraryCall)]
    assert len(calls) == 2
    found = unmeasured([program], {})["sm_90"]
    assert (found.entry, found.calls) == ("predict", 2) and SHARE < found.share <= 1
    way = Measured(Choice("cublaslt", "66 20 1 0 0 0 35 0 2", 0), 1e-3)
    one, both = (Choices({key_of(node): (way,) for node in some}) for some in ([max(calls, key=size)], calls))
    for choices in (one, both):  # what is left takes less than half
        assert unmeasured([program], {"sm_90": choices}) == {}


@pytest.mark.parametrize("other", [{"provider": "own"}, {"target": "cpu", "provider": "own"}, {"rows": 1}], ids=str)
def test_own_kernels_and_short_calls_do_not_count(tmp_path: Path, other: dict) -> None:
    assert unmeasured([planned(tmp_path, **other)], {}) == {}


def test_the_program_with_the_largest_share_is_told(tmp_path: Path) -> None:
    large, small = planned(tmp_path), planned(tmp_path, rows=512)
    both = unmeasured([small, large], {})["sm_90"]
    assert both == unmeasured([large, small], {})["sm_90"]
    assert both.share == max(found["sm_90"].share for each in (small, large) if (found := unmeasured([each], {})))
