"""The model of time: kinds of kernels, and steps of ResNet-50 compared with measured times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs.random_graphs import input_of
from places import EXAMPLES
from real_gpu.vendor_cases import convolution

from dslc.compiler.check.model import check_file
from dslc.compiler.cost import kind, machine_of, moved, roof, seconds, total_seconds
from dslc.compiler.ir.graph import Kind, Node
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.types import DType
from dslc.compiler.options import Options
from dslc.compiler.pipeline import foresee

RESNET = EXAMPLES / "resnet" / "resnet.nn"

#: ms of a step (``dslc bench``), one H200, bf16, ``--mirror never``, 2026-11-22: benchmarks/results/history.md.
MEASURED = [
    ("ResNet50", 256, "vendor", 30.36),
    ("ResNet50", 32, "vendor", 5.95),
    pytest.param("ResNet152", 152, "vendor", 42.18, marks=pytest.mark.slow),
    ("ResNet50", 256, "own", 40.72),
    ("ResNet50", 32, "own", 7.21),
]


@pytest.mark.parametrize(("model", "batch", "provider", "measured"), MEASURED)
def test_a_step_takes_what_was_measured(model: str, batch: int, provider: str, measured: float) -> None:
    checked = check_file(f"{RESNET}:{model}")
    options = Options(target="sm_90", provider=provider, precision="bf16")
    [program] = foresee(checked, "train_step", {"B": batch}, options, ("never",))
    assert program.schedule is not None
    assert 1e3 * total_seconds(program.schedule, machine_of("sm_90", provider)) == pytest.approx(measured, rel=0.1)


def _product(rows: int, inner: int, columns: int) -> Node:
    b = Builder()
    x, w = input_of("x", Kind.DATA, rows, inner), input_of("w", Kind.PARAM, inner, columns)
    return b.node(OPS["matmul"], x.value, w.value, transpose_a=False, transpose_b=False)


def test_no_kernel_is_above_its_roof_and_narrow_products_fill_half_of_their_tiles() -> None:
    machine = machine_of("sm_90")
    wide, narrow = _product(8192, 8192, 128), _product(8192, 8192, 64)
    assert kind(wide) == kind(narrow) == "product"
    for node in (wide, narrow):
        assert seconds(node, machine) > max(roof(node, machine)) + machine.device.launch
    arithmetic = replace(machine, device=replace(machine.device, bandwidth=1e30))
    assert seconds(narrow, arithmetic) == pytest.approx(seconds(wide, arithmetic), rel=1e-6)


def test_a_part_of_a_tensor_moves_alone() -> None:
    """A slice reads its elements, a lookup its rows; rows that are read more often than once still move once."""
    table, few, many = (
        input_of("table", Kind.PARAM, 1000, 64),
        input_of("few", Kind.DATA, 8, dtype=DType.I32),
        input_of("many", Kind.DATA, 5000, dtype=DType.I32),
    )
    b, row = Builder(), 64 * 4
    part = b.node(OPS["slice"], table.value, starts=(10, 0), stops=(20, 64), steps=(1, 1))
    assert moved(part) == 2 * 10 * row
    assert moved(b.node(OPS["gather_rows"], table.value, few.value)) == 2 * 8 * row + 8 * 4
    assert moved(b.node(OPS["gather_rows"], table.value, many.value)) == 1000 * row + 5000 * row + 5000 * 4


def test_own_products_are_slower_than_the_librarys_and_a_cpu_has_one_kind() -> None:
    node = _product(4096, 4096, 4096)
    assert seconds(node, machine_of("sm_90", "own")) > seconds(node, machine_of("sm_90", "vendor"))
    assert machine_of("cpu", "own") == machine_of("cpu", "vendor")


@pytest.mark.parametrize("name", ["conv", "conv_wgrad"])
def test_first_layers_in_tf32_have_the_rate_of_tensor_cores(name: str) -> None:
    """In f32, scalar arithmetic bounds them."""
    machine, shapes = machine_of("sm_90", "vendor"), ((64, 1, 256, 256), (48, 1, 5, 5))
    f32, tf32 = (convolution(name, *shapes, "f32", last=True, pad=(2, 2), **more) for more in ({}, {"tf32": True}))
    moving, arithmetic = roof(tf32, machine)
    assert arithmetic < moving < seconds(tf32, machine) < seconds(f32, machine) / 1.5
