"""The law of special values on the CPU. A run takes a tenth of the samples, chosen by DSLC_PART; all with
DSLC_SOAK=1."""

from __future__ import annotations

import pytest
from cpu_kernels.native import Native
from op_laws.kernel_law import differences, fed_cases, fed_node
from op_laws.sample_cases import OPS, SAMPLES
from thinning import taken

from dslc.compiler.codegen.cpu.lower import lower

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "number"), taken(fed_cases(OPS, SAMPLES), 10))
def test_a_kernel_gives_the_reference_of_special_values(name: str, number: int) -> None:
    node, given = fed_node(OPS[name], SAMPLES[name][number])
    if lower(node) is None:
        return
    found = differences(node, given, Native(node).run)
    assert not found, f"{len(found)} of the feeds:\n" + "\n".join(found[:6])
