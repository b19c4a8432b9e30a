"""Panels: the elements of the source, zeros after the last lane; layers and batch sizes share the code."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
from cpu_kernels.kernels import Loaded, guarded, runnable_levels

from dslc.compiler.codegen.cpu.contraction.panels import Pack
from dslc.compiler.codegen.cpu.contraction.steps import Step, Steps
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.types import DType

F32 = DType.F32


def wanted(spec: Pack, source: np.ndarray) -> np.ndarray:
    sizes = [n for n, _ in (*spec.batch, *spec.inner)]
    strides = [s for _, s in (*spec.batch, *spec.inner)]
    found = np.zeros((*(n for n, _ in spec.batch), spec.panels, *(n for n, _ in spec.inner), spec.panel), source.dtype)
    count, step = spec.lanes
    for index in product(*map(range, sizes)):
        at = spec.start + sum(i * stride for i, stride in zip(index, strides))
        row = source[at : at + (count - 1) * step + 1 : step]
        batch, inner = index[: len(spec.batch)], index[len(spec.batch) :]
        for panel in range(spec.panels):
            part = row[panel * spec.panel : (panel + 1) * spec.panel]
            found[(*batch, panel, *inner, slice(0, len(part)))] = part
    return found


def check(spec: Pack, level: str, slices: int) -> None:
    axes = (*spec.batch, *spec.inner, spec.lanes)
    source = np.random.default_rng(0).normal(size=spec.start + sum((n - 1) * s for n, s in axes) + 1)
    source = source.astype(np.float32 if spec.dtype is F32 else np.float64)
    expected = wanted(spec, source)
    found, around = guarded(expected.shape, source.dtype)
    Loaded(Steps((Step(spec, ("in0", "out0")),)), level).run([source], [found], slices)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(around[:32]).all() and np.isnan(around[-32:]).all()


CASES = {
    "copy": Pack(F32, (), (64, 1), ((300, 64),), 0, 64),
    "copy, partial": Pack(F32, ((3, 7000),), (70, 1), ((100, 70),), 5, 64),
    "copy, one partial panel": Pack(F32, (), (20, 1), ((3, 20),), 0, 32),
    "squares": Pack(F32, (), (64, 147), ((147, 1),), 0, 64),
    "squares, whole": Pack(F32, (), (128, 64), ((64, 1),), 0, 64),
    "squares, short": Pack(F32, (), (130, 9), ((5, 1170), (9, 1)), 0, 64),
    "squares of a batch": Pack(F32, ((6, 1280),), (40, 32), ((32, 1),), 0, 32),
    "gather": Pack(F32, (), (128, 9), ((256, 1152), (2, 6), (2, 2)), 0, 64),
    "gather, one axis": Pack(F32, ((2, 4000), (3, 1000)), (66, 9), ((50, 20),), 4, 64),
    "gather, a long axis": Pack(F32, (), (9, 300), ((4, 2700), (20, 3)), 1, 64),
    "f64": Pack(DType.F64, (), (40, 49), ((2, 1960), (49, 1)), 0, 32),
}


@pytest.mark.parametrize("case", CASES)
def test_panels_hold_the_elements_of_the_source(case: str) -> None:
    for level, slices in zip(runnable_levels(), (1, 5)):
        check(CASES[case], level, slices)


def test_random_panels(fuzz_count, fuzz_seed) -> None:
    drawn = random.Random(fuzz_seed)
    for _ in range(fuzz_count(12)):
        inner, below = [], drawn.choice([1, 1, 2, 3])
        for size in [drawn.choice([1, 2, 3, 7, 8, 16, 17, 40]) for _ in range(drawn.randint(1, 3))]:
            inner.append((size, below))
            below *= size
        lanes = (drawn.randint(1, 150), drawn.choice([below, below, 1]))
        if lanes[1] == 1:
            inner = [(size, stride * lanes[0]) for size, stride in inner]
        batch = [(drawn.randint(1, 4), below * lanes[0])] * drawn.randint(0, 1)
        spec = Pack(F32, tuple(batch), lanes, tuple(reversed(inner)), drawn.randint(0, 9), drawn.choice([16, 32, 64]))
        check(spec, runnable_levels()[-1], drawn.randint(1, 7))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Pack(F32, (), (64, 576), ((576, 1),), 0, 64), Pack(F32, (), (512, 4608), ((4608, 1),), 0, 64)),
        (Pack(F32, (), (64, 9), ((128, 576), (2, 2)), 3, 64), Pack(F32, (), (64, 9), ((512, 4608), (2, 6)), 1, 64)),
        (Pack(F32, (), (128, 1), ((64, 128),), 0, 64), Pack(F32, (), (256, 1), ((9216, 256),), 0, 64)),
    ],
)
def test_layers_share_the_code(one: Pack, other: Pack) -> None:
    assert Launch(one, (), ()).symbol == Launch(other, (), ()).symbol
    assert one.scalar_args != other.scalar_args and math.prod(one.geometry.grid) > 0
