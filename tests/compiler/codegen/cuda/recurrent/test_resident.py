"""A loop as one resident kernel: its PTX gives what the loop means, without races between blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_kernels.resident_loops import CELLS, compare, divide, inputs_of, loops_of, meant, on_machine

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import lower, scalar_division
from dslc.compiler.codegen.cuda.recurrent.lower import resident, resident_seconds, why_not_resident
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import scan
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry


def check(node: Node, seed: int, backwards: bool = False) -> None:
    xs = inputs_of(node, seed)
    compare(on_machine(node, xs, backwards), meant(node, xs))


def test_a_loop_and_its_gradient(tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    divide(monkeypatch, 1, 2)
    forward, backward = loops_of("lstm", 4, 2, 2, tmp_path)
    assert resident(forward)[1].spec.geometry.grid == (2, 1, 1)
    check(forward, fuzz_seed)
    check(backward, fuzz_seed + 1)


@pytest.mark.parametrize(("rows", "width"), [(2, 8), (6, 16)])
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm"])
def test_gradients_are_resident_too(cell: str, rows: int, width: int, tmp_path: Path) -> None:
    """However the passes compute the gradient of the gates' split."""
    assert [why_not_resident(node) for node in loops_of(cell, width, rows, 2, tmp_path)] == [None, None]


SIZES = [(8, 2, 3, (2, 3)), (16, 6, 2, (1, 9)), (40, 17, 2, None)]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "rows", "steps", "division"), SIZES)
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_cells_and_sizes(
    cell: str, width: int, rows: int, steps: int, division: tuple[int, int] | None,
    tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Widths that no tile divides, columns of a block that fill no word or two, rows beyond one tile, a width beyond
    one chunk of terms, warps without elements."""
    if division is not None:
        divide(monkeypatch, *division)
    nodes = loops_of(cell, width, rows, steps, tmp_path)
    for number, node in enumerate(nodes):
        if why_not_resident(node) is None:
            check(node, fuzz_seed + number, backwards=number == 0)
        else:
            assert number == 1 and (cell.startswith(("two", "reset")) or rows == 17), why_not_resident(node)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("if (row && threadIdx.x % 8 == 0)", "if (false)"),  # others wait for ever
        ("while (waits)", "while (false)"),  # words that are not there yet
        ("(unsigned)(step + 1) << 16", "(unsigned)(step % 2 + 1) << 16"),  # words of two steps ago
        ("float *sums = memory + (step & 1) *", "float *sums = memory + 0 *"),  # sums that others still read
    ],
)
def test_a_broken_exchange_is_noticed(
    whole: str, part: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above say something: in four steps each place of the exchange is used again."""
    divide(monkeypatch, 2, 2)
    node, _ = loops_of("lstm", 4, 6, 4, tmp_path)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count(whole) == 1
    broken = replace(kernel, spec=replace(kernel.spec, text=kernel.spec.text.replace(whole, part)))
    xs = inputs_of(node, fuzz_seed)
    with pytest.raises(AssertionError):
        compare(on_machine(node, xs, launches=[zeros, broken]), meant(node, xs))


@pytest.mark.parametrize("first", [0x7F81, 0xFFFE])
def test_numbers_of_late_steps(first: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As factors, the bits of step 32,640 and some later ones would be NaN; those of step 65,535 are 0."""
    divide(monkeypatch, 1, 2)
    node, _ = loops_of("lstm", 4, 2, 4, tmp_path)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count("(unsigned)(step + 1) << 16") == 1
    text = kernel.spec.text.replace("(unsigned)(step + 1) << 16", f"(unsigned)(step + {first}) << 16")
    xs = inputs_of(node, fuzz_seed)
    late = replace(kernel, spec=replace(kernel.spec, text=text))
    compare(on_machine(node, xs, launches=[zeros, late]), meant(node, xs))


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("scan xt in x along T carry h into y { h = cumsum(xt * h); yield h }", "fused_rows|cumsum"),
        ("scan xt in x along T carry h into y { h = softmax(xt + h @ r); yield h }", "softmax|fused|max"),
        ("scan xt in x along T into y { k = tanh(sin(xt) @ r); yield k }", "carries nothing"),
    ],
)
def test_other_loops_are_told_why(loop: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(
        "nn 1\nconst T = 3\nmodel Net(x: [4, T, 16]) -> [4, T, 16] {\n  param r: [16, 16] = uniform(0.5)\n"
        f"  h = zeros([4, 16])\n  {loop}\n  return y\n}}\n"
    )
    options = Options(target="sm_90", precision="bf16", provider="vendor")
    program, _ = compile_entry(check_file(tmp_path / "net.nn"), "predict", {}, options)
    for node in program.graph.nodes:
        if node.op is scan:
            assert re.search(why, why_not_resident(node) or "")


def check_f32(node: Node, seed: int, backwards: bool = False) -> None:
    xs = inputs_of(node, seed)
    compare(on_machine(node, xs, backwards), meant(node, xs), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_products_in_f32(precision: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rounded to TF32: a loop whose factors are not rounded differs by more."""
    divide(monkeypatch, 1, 2)
    forward, _ = loops_of("lstm", 4, 2, 2, tmp_path, precision)
    check_f32(forward, fuzz_seed)
    assert ("TF32 = 1" in resident(forward)[1].spec.text) == (precision == "tf32")


F32_SIZES = [("lstm", 8, 2, 3, (1, 4)), ("gru", 8, 6, 2, (2, 5)), ("rnn", 24, 2, 2, (2, 4)),
             ("two products, one after the other", 4, 3, 3, (1, 2)), ("lstm", 12, 2, 2, None)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "width", "rows", "steps", "division"), F32_SIZES)
def test_cells_and_sizes_in_f32(
    cell: str, width: int, rows: int, steps: int, division: tuple[int, int] | None,
    tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Columns of a block that fill no words, rows that fill no batch, several warps and chunks of terms."""
    if division is not None:
        divide(monkeypatch, *division)
    for number, node in enumerate(loops_of(cell, width, rows, steps, tmp_path, "f32")):
        if why_not_resident(node) is None:
            check_f32(node, fuzz_seed + number, backwards=number == 0)
        else:
            assert number == 1 and cell.startswith("two"), why_not_resident(node)


@pytest.mark.slow
@pytest.mark.parametrize("column_lanes", [1, 4, 32])
def test_shapes_of_a_warp(column_lanes: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the lanes of a warp share a product."""
    divide(monkeypatch, 1, 4)
    monkeypatch.setattr(scalar_division, "_SHAPES", [scalar_division.Shape(column_lanes, 2)])
    node, _ = loops_of("rnn", 8, 3, 2, tmp_path, "f32")
    check_f32(node, fuzz_seed)


def test_an_f32_kernel_of_many_rows_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = loops_of("lstm", 16, 4, 2, tmp_path, "f32")
    assert 0 < (resident_seconds(node) or 0) < 1e-4
    monkeypatch.setattr(lower, "_MOST_ROWS_F32", 3)
    assert why_not_resident(node) is None and resident_seconds(node) is None


@pytest.mark.parametrize(("rows", "width"), [(16, 256), (64, 512), (1, 1024), (20, 650), (128, 256)])
def test_divisions_in_f32_fit_an_h200(rows: int, width: int, tmp_path: Path) -> None:
    node = loops_of("lstm", width, rows, 2, tmp_path, "f32")[0]
    division = resident(node)[1].spec.division
    assert division.blocks <= 114 and division.shared_bytes <= 227 << 10 and division.each <= 4
    assert division.matrix_elements[-1] * division.blocks >= 4 * width * width
