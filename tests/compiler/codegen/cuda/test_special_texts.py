"""The law of special values on GPUs, whose texts a simulator runs. A run takes a part of the samples, chosen by
DSLC_PART; all with DSLC_SOAK=1."""

from __future__ import annotations

import pytest
from gpu_kernels.sample_nodes import OPS, SAMPLES
from gpu_kernels.simulation import simulated
from op_laws.kernel_law import differences, fed_cases, fed_node
from thinning import taken


@pytest.mark.parametrize(("name", "number"), taken(fed_cases(OPS, SAMPLES), 24))
def test_a_text_gives_the_reference_of_special_values(name: str, number: int) -> None:
    node, given = fed_node(OPS[name], SAMPLES[name][number])
    found = differences(node, given, lambda xs: simulated(node, xs))
    assert not found, f"{len(found)} of the feeds:\n" + "\n".join(found[:6])
