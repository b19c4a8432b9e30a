"""Several loops as one resident kernel: each has blocks and scratch memory of its own, and its bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels.resident_loops import MOST, compare, divide, inputs_of, loops_of, meant, on_machine

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import division, lower
from dslc.compiler.codegen.cuda.recurrent.cell import cell_of
from dslc.compiler.codegen.cuda.recurrent.choose_division import best_division
from dslc.compiler.codegen.cuda.recurrent.lower import loops_at_once, resident, why_not_resident
from dslc.compiler.codegen.cuda.recurrent.tensor_core_division import TensorCoreDivision
from dslc.compiler.ir.bodies import scans
from dslc.compiler.ir.graph import Input, Kind, Node
from dslc.compiler.ir.scan import scan
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry


def joined(node: Node, *reverse: bool) -> Node:
    """Loops like one, each with other tensors and a direction of its own."""
    ways = []
    for each in reverse:
        inputs = tuple(Input(f"x{n}", Kind.DATA, v.type).value for n, v in enumerate(node.inputs))
        ways.append(node.replaced(inputs=inputs, attrs={**node.attrs, "reverse": each}))
    return scans.joined(ways)


def each_alone(node: Node, xs: list[np.ndarray]) -> list[tuple[Node, list[np.ndarray]]]:
    """The loops of a joined node, with their operands."""
    loops = scans.loops_of(node)
    count = len(loops[0].inputs)
    return [(loop, xs[n * count : (n + 1) * count]) for n, loop in enumerate(loops)]


def bidirectional(folder: Path, layer: str, precision: str, rows: int, width: int) -> list[Node]:
    """The nodes of loops in a training step of a layer."""
    states = "y, h, c" if layer == "lstm" else "y, h"
    (folder / "m.nn").write_text(
        f"nn 1\nmodel M(x: [{rows}, 3, 4]) -> [{rows}] {{\n"
        f"  {states} = x |> {layer}({width}, bidirectional=true) as a\n"
        f"  return mean(y, over=[1, 2])\n}}\n"
        f"train M(t: [{rows}]) {{\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.1)\n}}\n"
    )
    options = Options(target="sm_90", precision=precision, provider="vendor")
    program, _ = compile_entry(check_file(folder / "m.nn"), "train_step", {}, options)
    return [node for node in program.graph.nodes if node.op in (scan, scans.scans)]


@pytest.mark.parametrize("reverse", [(False, True), (True, False, True), (True, True)])
@pytest.mark.parametrize("precision", ["bf16", "f32", "tf32"])
def test_it_gives_the_bits_of_single_kernels(
    reverse: tuple[bool, ...], precision: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divided among blocks as alone; the last block of the last loop runs first."""
    divide(monkeypatch, 1, 2)
    node = joined(loops_of("lstm", 4, 2, 3, tmp_path, precision)[0], *reverse)
    assert resident(node)[1].spec.geometry.grid == (2, len(reverse), 1)
    xs = inputs_of(node, fuzz_seed)
    alone = [y for loop, own in each_alone(node, xs) for y in on_machine(loop, own)]
    for one, other in zip(on_machine(node, xs, backwards=True), alone, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layer", ["gru", "lstm"])
@pytest.mark.parametrize("precision", ["bf16", "f32", "tf32"])
def test_a_layer_in_both_directions_and_its_gradient(
    layer: str, precision: str, tmp_path: Path, fuzz_seed: int
) -> None:
    forward, backward = bidirectional(tmp_path, layer, precision, rows=2, width=8)
    for node in (forward, backward):
        assert node.op is scans.scans
        xs = inputs_of(node, fuzz_seed)
        wanted = [y for loop, own in each_alone(node, xs) for y in meant(loop, own)]
        compare(on_machine(node, xs), wanted, MOST[precision])


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("scratch + blockIdx.y * ", "scratch + 0 * "),  # words of another loop
        ("#define REVERSE (blockIdx.y == 0 ? 0 : 1)", "#define REVERSE 0"),
        ("(blockIdx.y == 0 ? p0_0 : p0_1)", "p0_0"),
    ],
)
def test_loops_that_share_something_are_noticed(
    whole: str, part: str, tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above say something."""
    divide(monkeypatch, 1, 2)
    node = joined(loops_of("lstm", 4, 2, 3, tmp_path)[0], False, True)
    zeros, kernel = resident(node)
    assert kernel.spec.text.count(whole) == 1
    broken = replace(kernel, spec=replace(kernel.spec, text=kernel.spec.text.replace(whole, part)))
    xs = inputs_of(node, fuzz_seed)
    wanted = [y for loop, own in each_alone(node, xs) for y in meant(loop, own)]
    with pytest.raises(AssertionError):
        compare(on_machine(node, xs, launches=[zeros, broken]), wanted)


def test_the_least_time_of_each_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = loops_of("lstm", 256, 16, 100, tmp_path)
    assert [loops_at_once(node, count) for count in (1, 2)] == [1, 2]
    assert 2 < loops_at_once(node, 100) <= 8
    monkeypatch.setattr(lower, "_seconds", lambda node, cell, loops: 1.1 * loops if loops > 1 else 1.0)
    assert loops_at_once(node, 8) == 1


def test_a_loop_that_fits_all_multiprocessors_alone(tmp_path: Path) -> None:
    wide, _ = loops_of("gru", 992, 16, 2, tmp_path)
    assert why_not_resident(wide) is None and loops_at_once(wide, 2) == 1


@pytest.mark.parametrize(("precision", "width"), [("bf16", 800), ("tf32", 800), ("tf32", 768)])
def test_matrices_take_the_registers_that_words_leave(precision: str, width: int, tmp_path: Path) -> None:
    """Each with as many words on their way as its registers hold."""
    for node in loops_of("gru", width, 32, 2, tmp_path, precision):
        cell = cell_of(node)
        two, one = best_division(cell, 2), best_division(cell)
        assert isinstance(two, TensorCoreDivision) and isinstance(one, TensorCoreDivision)
        assert two.blocks <= division.MOST_BLOCKS // 2 and two.loads <= one.loads
        assert not any(replace(two, loads=loads).fits for loads in range(two.loads + 1, 9))


@pytest.mark.parametrize(("width", "columns"), [(798, 14), (800, 16)])
def test_in_16_bits_matrices_are_light_if_such_fit(width: int, columns: int, tmp_path: Path) -> None:
    for node in loops_of("gru", width, 32, 2, tmp_path):
        cell = cell_of(node)
        two, one = best_division(cell, 2), best_division(cell)
        assert isinstance(two, TensorCoreDivision) and isinstance(one, TensorCoreDivision)
        assert one.is_light and two.is_light == (width == 798) and two.columns == columns
        assert two.loads == 8 and two.registers <= 236


@pytest.mark.parametrize("precision", ["bf16", "f32", "tf32"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_blocks_are_on_the_device_at_once(count: int, precision: str, tmp_path: Path) -> None:
    node = joined(loops_of("gru", 256, 8, 2, tmp_path, precision)[0], *[False] * count)
    _, kernel = resident(node)
    assert np.prod(kernel.spec.geometry.grid) <= division.MOST_BLOCKS
    assert kernel.scratch[0].bytes == count * kernel.spec.division.scratch_bytes
