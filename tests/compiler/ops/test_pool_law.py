"""The law of max pools for what the ops mean; ``codegen/cpu/test_pool_kernels.py`` and
``codegen/cuda/test_pool_texts.py`` have it for kernels."""

from __future__ import annotations

import numpy as np
from op_laws.evaluation import apply
from op_laws.pool_law import broken, nodes

from dslc.compiler.ir.graph import Node


def meaning(node: Node, xs: list[np.ndarray]) -> list[np.ndarray]:
    return apply(node.op, xs, node.attrs)


def test_a_window_takes_the_first_of_its_greatest_elements_and_never_padding() -> None:
    found = [f"{name}: {why}" for name, node, x in nodes() if (why := broken(node, x, meaning))]
    assert not found, f"{len(found)} pools:\n" + "\n".join(found[:6])
