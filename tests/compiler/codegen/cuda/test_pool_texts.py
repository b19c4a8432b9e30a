"""The law of max pools for the kernels of GPUs, thread by thread, and which threads read a window at once. A run takes
a part of the images, chosen by DSLC_PART, and all of minus infinity; all with DSLC_SOAK=1."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.evaluation import values_of
from op_laws.pool_law import OPS, WINDOWS, broken, nodes
from thinning import taken

from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.ops.pooling import Pool
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.types import DType

NODES = [pytest.param(node, x, id=name) for name, node, x in nodes() if lower(node) is not None]
ASKED = taken(NODES, 24)
LOW = [case for case in NODES if "of minus infinity," in str(case.id) and case not in ASKED]


@pytest.mark.parametrize(("node", "x"), [*ASKED, *LOW])
def test_a_window_takes_the_first_of_its_greatest_elements_and_never_padding(node, x) -> None:  # type: ignore[no-untyped-def]
    assert broken(node, x, on_machine) is None


def spec_of(node: Node) -> Pool:
    [launch] = lower(node) or []
    assert isinstance(launch.spec, Pool)
    return launch.spec


@pytest.mark.parametrize(("name", "window"), taken(product(("maxpool", "avgpool"), WINDOWS), 4))
def test_a_window_that_is_read_at_once_gives_the_same_bits(name: str, window: tuple[tuple[int, ...], ...]) -> None:
    shape, k, stride, pad = window
    x = np.random.default_rng(1).normal(size=(*shape[:1], *shape[2:], 8)).astype(np.float32)
    node = Builder(name="here").node(OPS[f"{name}_last"], *values_of([x]), k=k, stride=stride, pad=pad)
    found = []
    for few in (1 << 16, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dslc.compiler.codegen.cuda.ops.pooling._FEW_THREADS", few)
            assert spec_of(node).ahead == (few > 0 and np.prod(k) <= 16)
            found.append(on_machine(node, [x]))
    for once, in_turn in zip(*found, strict=True):
        assert np.array_equal(once, in_turn)


@pytest.mark.parametrize("mode", ["max", "mean"])
def test_few_threads_read_a_window_at_once(mode: str) -> None:
    """Those of one image of Inception-v3 and ResNet-50; of 64 images as before, and gradients and large windows."""

    def ahead(planes: int, channels: int, size: int, k: int, stride: int, mode: str = mode) -> bool:
        count = size // stride
        window = ((1, size, size), (1, count, count), (1, k, k), (1, stride, stride), (0, k // 2, k // 2))
        return Pool(mode, DType.BF16, DType.U8, planes, channels, *window).ahead  # type: ignore[arg-type]

    assert ahead(1, 768, 17, 3, 1) and ahead(1, 64, 112, 3, 2)
    assert not ahead(64, 768, 17, 3, 1) and not ahead(64, 64, 112, 3, 2)
    assert not ahead(1, 64, 112, 7, 2) and not ahead(1, 64, 112, 3, 2, f"{mode}_grad")
