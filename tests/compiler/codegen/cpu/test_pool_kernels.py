"""The law of max pools for the kernels of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_kernels.native import Native
from op_laws.pool_law import IMAGES, broken, nodes

from dslc.compiler.codegen.cpu.lower import lower
from dslc.compiler.ir.graph import Node


@pytest.mark.slow
def test_a_window_takes_the_first_of_its_greatest_elements_and_never_padding() -> None:
    kernels: dict[str, Native] = {}

    def run(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
        name = f"{node.op.name} {node.attrs} {node.input_types}"  # one kernel for all images of a shape
        if name not in kernels:
            kernels[name] = Native(node)
        return kernels[name].run(xs)

    asked = [(name, node, x) for name, node, x in nodes() if lower(node) is not None]
    assert len(asked) == 27 * len(IMAGES)
    found = [f"{name}: {why}" for name, node, x in asked if (why := broken(node, x, run))]
    assert not found, f"{len(found)} of {len(asked)} pools:\n" + "\n".join(found[:6])
