"""Numbers of a region that are arguments of its kernel."""

from __future__ import annotations

from dslc.compiler.codegen.cpu.kernel_spec import ARGUMENT
from dslc.compiler.codegen.region.ir import Region


def argument_count(region: Region, *others: int) -> int:
    """How many numbers of a region, and of ``others``, are arguments."""
    accesses = (*region.inputs, *region.outputs)
    numbers = [*others, *region.outer, *(n for a in accesses for n in (a.offset, *a.strides))]
    return max([0, *(n - ARGUMENT + 1 for n in numbers)])
