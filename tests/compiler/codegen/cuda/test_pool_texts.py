"""The law of max pools for the kernels of GPUs, thread by thread. A run takes a part of the images, chosen by
DSLC_PART, and all of minus infinity; all with DSLC_SOAK=1."""

from __future__ import annotations

import pytest
from gpu_kernels.on_ptx_machine import on_machine
from op_laws.pool_law import broken, nodes
from thinning import taken

from dslc.compiler.codegen.cuda.lower import lower

NODES = [pytest.param(node, x, id=name) for name, node, x in nodes() if lower(node) is not None]
ASKED = taken(NODES, 24)
LOW = [case for case in NODES if "of minus infinity," in str(case.id) and case not in ASKED]


@pytest.mark.parametrize(("node", "x"), [*ASKED, *LOW])
def test_a_window_takes_the_first_of_its_greatest_elements_and_never_padding(node, x) -> None:  # type: ignore[no-untyped-def]
    assert broken(node, x, on_machine) is None
