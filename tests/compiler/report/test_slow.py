"""Lines far below the machine's speed: which count, what is said of them, and where it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dslc.compiler import cost
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.device_model import Reached
from dslc.compiler.cost import Machine, machine_of, roof
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.compiler.report.history import history, wanted
from dslc.compiler.report.slow import ROOF, Slow, slow_lines, slow_table

SOURCE = """nn 1
dim B in 1..4096 = 2048
model Net(x: [B, 2048]) -> [B, 1024] {
  h = x |> linear(2048)
  return h |> relu |> linear(1024)
}
"""

GROUPED = """nn 1
dim B in 1..4096 = 2048
model Net(x: [B, 256, 16, 16]) -> [B, 256, 16, 16] {
  return x |> conv(256, 3, pad=1, groups=2)
}
"""

ATTENTION = """nn 1
dim B in 1..4096 = 2048
model Net(q: [B, 8, 128, 32]) -> [B, 8, 128, 32] {
  return sdpa(q, q, qMASK)
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "net.nn"
    path.write_text(SOURCE)
    return path


def planned(path: Path, provider: str = "own", target: str = "sm_90") -> Program:
    options = Options(target=target, provider=provider, precision="bf16" if target != "cpu" else None)
    return compile_entry(check_file(str(path)), "predict", {"B": 2048}, options)[0]


def products(program: Program) -> list[Node]:
    return [node for node in program.computing if cost.kind(node) == "product"]


def measured(program: Program, part: float) -> dict[str, Choices]:
    """The first product takes what it would at ``part`` of its roof."""
    [node, _] = products(program)
    way = Measured(Choice("own"), max(roof(node, machine_of("sm_90"))) / part)
    return {"sm_90": Choices({key_of(node): (way,)})}


def test_a_measured_product_counts_below_a_fifth_of_its_roof_alone(path: Path) -> None:
    program = planned(path)
    assert slow_lines([program], {}) == []
    [found] = slow_lines([program], measured(program, ROOF / 2))
    assert (found.target, found.entry, found.place) == ("sm_90", "predict", "net.nn:4")
    assert found.of_roof == pytest.approx(ROOF / 2, rel=0.05) and found.share > 0.4
    assert found.bound == "arithmetic" and "no measured way is faster" in found.text()
    assert slow_lines([program], measured(program, ROOF * 2)) == []


def slowed(kind: str) -> Callable[..., Machine]:
    """``machine_of`` whose own kernels of a kind reach a hundredth."""

    def made(target: str, provider: str = "vendor") -> Machine:
        machine = machine_of(target, provider)
        slow = {kind: Reached(0.01, 0.01)}
        if machine.own is not None:
            return replace(machine, own={**machine.own, **slow})
        return replace(machine, reached={**machine.reached, **slow})

    return made


def test_own_products_name_the_libraries_or_why_none_computes_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "machine_of", slowed("product"))
    first, second = slow_lines([planned(path)], {})
    assert {first.line, second.line} == {4, 5} and first.share == pytest.approx(2 / 3, rel=0.1)
    assert "--providers vendor" in first.help and "dslc tune" in first.help
    assert slow_lines([planned(path, "vendor")], {}) == []  # the library computes them
    path.write_text(GROUPED)
    [found] = slow_lines([planned(path, "vendor")], {})
    assert found.line == 4 and "unless a library was measured faster (groups)" in found.why
    assert "dslc tune" in found.help


@pytest.mark.parametrize(
    ("mask", "why"),
    [("", "unless a library was measured faster (own kernels are as fast at these sizes)"),
     (", mask=tri(128, diagonal=1)", "no library does (a mask)")],
)  # fmt: skip
def test_own_attention_names_the_library_or_why_it_does_not_compute_it(
    mask: str, why: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "machine_of", slowed("attention"))
    path.write_text(ATTENTION.replace("MASK", mask))
    [found] = slow_lines([planned(path, "vendor")], {})
    assert found.line == 4 and why in found.why


def test_small_kernels_and_cpus_do_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "machine_of", slowed("product"))
    assert slow_lines([planned(path, "reference", "cpu")], {}) == []
    path.write_text(SOURCE.replace("2048", "32").replace("1024", "32"))
    small = compile_entry(check_file(str(path)), "predict", {"B": 32}, Options(target="sm_90", provider="own"))[0]
    assert slow_lines([small], {}) == []


def test_small_lines_of_one_op_count_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 slow layers on lines of their own, each takes 3 % of the step and all take nearly the whole of it."""
    monkeypatch.setattr(cost, "machine_of", slowed("product"))
    lines = "".join(f"  x = x |> linear(2048) as fc{i}\n" for i in range(30))
    path.write_text(f"nn 1\ndim B in 1..4096 = 2048\nmodel Net(x: [B, 2048]) -> [B, 2048] {{\n{lines}  return x\n}}\n")
    [found] = slow_lines([planned(path)], {})
    assert (found.nodes, found.lines) == (30, 30) and found.share > 0.9 and 4 <= found.line < 34
    assert "(30 times on 30 lines)" in found.text() and "30 times on 30 lines" in slow_table([found])


def test_a_line_of_several_programs_counts_once_and_the_table_escapes(path: Path) -> None:
    program = planned(path)
    choices = measured(program, ROOF / 2)
    assert slow_lines([program, program], choices) == slow_lines([program], choices)
    [found] = slow_lines([program], choices)
    assert Slow(**found.as_json()) == found
    text = slow_table([replace(found, file="<b>")])
    assert "&lt;b&gt;:4" in text and "<b>" not in text and slow_table([]) == ""


def test_the_history_of_a_part_names_its_slow_lines(path: Path) -> None:
    kept: dict[str, Program] = {}
    options = Options(target="sm_90", provider="own", precision="bf16")
    compile_entry(check_file(str(path)), "predict", {"B": 2048}, options, keep=kept.__setitem__)
    slow = slow_lines([list(kept.values())[-1]], measured(list(kept.values())[-1], ROOF / 2))
    for line, count in ((4, 1), (5, 0)):
        found = history(kept, wanted(f"net.nn:{line}", kept.values()), slow=slow)
        assert sum(reason.startswith("slow: ") for reason in found.reasons) == count
