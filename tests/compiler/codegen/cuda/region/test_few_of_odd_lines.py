"""Sums of a few elements along odd lines: a thread adds those of a result alone, as compiled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gpu_kernels.multi_tensor_nodes import value
from gpu_kernels.on_ptx_machine import on_machine
from gpu_kernels.sample_nodes import OPS

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region import schedule as module
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Columns
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few rows are many here."""
    monkeypatch.setattr(module, "_MANY_BLOCKS", 0)
    schedule.cache_clear()
    yield
    schedule.cache_clear()


def summed(*shape: int, dtype: DType = DType.F32) -> Node:
    return Builder(name="here").node(OPS["sum"], value(dtype, shape), over=(1,), keep=False)


def mapping(node: Node) -> Columns:
    [launch] = lower(node) or []
    found = schedule(launch.spec)
    assert isinstance(found, Columns)
    return found


@pytest.mark.parametrize("shape", [(3, 2, 37), (2, 5, 261), (1, 16, 3)])
def test_a_thread_adds_alone(shape: tuple[int, int, int]) -> None:
    node = summed(*shape)
    found = mapping(node)
    assert (found.parts, found.held, found.vector) == (1, shape[1], 1)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    np.testing.assert_array_equal(on_machine(node, [x])[0], x.sum(1))


@pytest.mark.parametrize("shape", [(3, 17, 37), (3, 2, 38)])
def test_many_elements_and_even_lines_have_several_threads(shape: tuple[int, int, int]) -> None:
    assert mapping(summed(*shape)).parts > 1


def test_few_results_have_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    schedule.cache_clear()
    assert mapping(summed(3, 2, 37)).parts > 1
