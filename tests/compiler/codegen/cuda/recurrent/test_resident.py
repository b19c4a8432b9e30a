"""A loop as one resident kernel: its PTX gives what the loop means, without races between blocks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_kernels.resident_loops import CELLS, MOST, compare, divide, inputs_of, loops_of, meant, on_machine

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import lower, scalar_division
from dslc.compiler.codegen.cuda.recurrent.cell import cell_of
from dslc.compiler.codegen.cuda.recurrent.choose_division import best_division
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.lower import resident, resident_seconds, why_not_resident
from dslc.compiler.codegen.cuda.recurrent.scalar_division import ScalarDivision
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import TensorCoreDivision
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import scan
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry


def check(node: Node, seed: int, backwards: bool = False, precision: str = "bf16") -> None:
    xs = inputs_of(node, seed)
    compare(on_machine(node, xs, backwards), meant(node, xs), MOST[precision])


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
    ("precision", "whole", "part"),
    [
        ("bf16", "if (row && threadIdx.x % 8 == 0)", "if (false)"),  # others wait for ever
        ("bf16", "while (waits)", "while (false)"),  # words that are not there yet
        ("bf16", "(unsigned)(step + 1) << 16", "(unsigned)(step % 2 + 1) << 16"),  # words of two steps ago
        ("bf16", "float *sums = memory + (step & 1) *", "float *sums = memory + 0 *"),  # sums that others still read
        ("tf32", "if (row && threadIdx.x % 8 == 0)", "if (false)"),
        ("tf32", "(unsigned)(step + 1) & ~UPPER", "(unsigned)(step % 2 + 1) & ~UPPER"),
        ("tf32", "word.y << 13 & LAST", "0"),  # the last bits of an element
        ("tf32", "word.y << 7 & LAST", "0"),
    ],
)
def test_a_broken_exchange_is_noticed(
    precision: str, whole: str, part: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above say something: in four steps each place of the exchange is used again."""
    width = 4 if precision == "bf16" else 12
    divide(monkeypatch, 2, width // 2)
    node, _ = loops_of("lstm", width, 6, 4, tmp_path, precision)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count(whole) == 1
    broken = replace(kernel, spec=replace(kernel.spec, text=kernel.spec.text.replace(whole, part)))
    xs = inputs_of(node, fuzz_seed)
    with pytest.raises(AssertionError):
        compare(on_machine(node, xs, launches=[zeros, broken]), meant(node, xs), MOST[precision])


@pytest.mark.parametrize(
    ("precision", "first"), [("bf16", 0x7F81), ("bf16", 0xFFFE), ("tf32", 0x7F81), ("tf32", 0x1FFE)]
)
def test_numbers_of_late_steps(
    precision: str, first: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As factors, the bits of step 32,640 and some later ones would be NaN; those of step 65,535, of TF32 8,191, are
    0."""
    divide(monkeypatch, 1, 2)
    node, _ = loops_of("lstm", 4, 2, 4, tmp_path, precision)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count("(unsigned)(step + 1)") == 1
    text = kernel.spec.text.replace("(unsigned)(step + 1)", f"(unsigned)(step + {first})")
    xs = inputs_of(node, fuzz_seed)
    late = replace(kernel, spec=replace(kernel.spec, text=text))
    compare(on_machine(node, xs, launches=[zeros, late]), meant(node, xs), MOST[precision])


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


TF32_SIZES = [("lstm", 4, 2, 2, (1, 2)), ("lstm", 15, 8, 3, (2, 5)), ("gru", 8, 6, 3, (2, 3)),
              ("gru", 15, 40, 2, (4, 8, 2)), ("gru", 28, 1, 2, (1, 7)), ("rnn", 40, 17, 3, (2, 13, 1)),
              ("lstm", 28, 33, 2, None), ("two products, one after the other", 4, 3, 3, (1, 2))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "width", "rows", "steps", "division"), TF32_SIZES)
def test_cells_and_sizes_in_tf32(
    cell: str, width: int, rows: int, steps: int, division: tuple[int, ...] | None,
    tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """On tensor cores: widths that no tile divides, columns of a block that fill no word, one or two, rows beyond one
    tile and two, and few words on their way. A loop whose factors are not rounded differs in most elements."""
    if division is not None:
        divide(monkeypatch, *division)
    for number, node in enumerate(loops_of(cell, width, rows, steps, tmp_path, "tf32")):
        assert isinstance(resident(node)[1].spec.division, TensorCoreDivision)
        check(node, fuzz_seed + number, backwards=number == 0, precision="tf32")


@pytest.mark.slow
def test_products_in_f32(tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    divide(monkeypatch, 1, 2)
    forward, _ = loops_of("lstm", 4, 2, 2, tmp_path, "f32")
    check(forward, fuzz_seed, precision="f32")


@pytest.mark.slow
def test_scalar_sums_of_rounded_factors(tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32, as of few rows and a wide state."""
    monkeypatch.setattr(lower, "best_division", lambda cell, loops=1: ScalarDivision(cell, 1, 2))
    for number, node in enumerate(loops_of("lstm", 4, 2, 2, tmp_path, "tf32")):
        check(node, fuzz_seed + number, precision="tf32")


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
            check(node, fuzz_seed + number, backwards=number == 0, precision="f32")
        else:
            assert number == 1 and cell.startswith("two"), why_not_resident(node)


@pytest.mark.slow
@pytest.mark.parametrize("column_lanes", [1, 4, 32])
def test_shapes_of_a_warp(column_lanes: int, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the lanes of a warp share a product."""
    divide(monkeypatch, 1, 4)
    monkeypatch.setattr(scalar_division, "_SHAPES", [scalar_division.Shape(column_lanes, 2)])
    node, _ = loops_of("rnn", 8, 3, 2, tmp_path, "f32")
    check(node, fuzz_seed, precision="f32")


@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_scalar_sums_of_many_rows_are_no_default(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor cores are."""
    node, _ = loops_of("lstm", 64, 20, 2, tmp_path, precision)
    assert 0 < (resident_seconds(node) or 0) < 1e-4
    monkeypatch.setattr(lower, "_MOST_SCALAR_ROWS", 19)
    assert why_not_resident(node) is None and (resident_seconds(node) is None) == (precision == "f32")


@pytest.mark.parametrize(("precision", "kind"), [("f32", ScalarDivision), ("tf32", TensorCoreDivision)])
def test_tensor_cores_take_tf32(precision: str, kind: type[Division], tmp_path: Path) -> None:
    for node in loops_of("gru", 256, 16, 2, tmp_path, precision):
        assert isinstance(best_division(cell_of(node)), kind)


def test_the_model_prefers_scalar_sums_of_one_wide_row(tmp_path: Path) -> None:
    """A tile of tensor cores has 16 rows."""
    for node in loops_of("gru", 800, 1, 2, tmp_path, "tf32"):
        assert isinstance(best_division(cell_of(node)), ScalarDivision)


@pytest.mark.parametrize(("rows", "width"), [(16, 256), (64, 512), (1, 1024), (20, 650), (128, 256)])
def test_divisions_in_f32_fit_an_h200(rows: int, width: int, tmp_path: Path) -> None:
    node = loops_of("lstm", width, rows, 2, tmp_path, "f32")[0]
    division = resident(node)[1].spec.division
    assert division.blocks <= 114 and division.shared_bytes <= 227 << 10 and division.each <= 4
    assert division.matrix_elements[-1] * division.blocks >= 4 * width * width
