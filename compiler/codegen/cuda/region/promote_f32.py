"""Keeps values inside an op in f32 if its tensors are bf16 or f16.

An op computes in f32 and rounds once, at its result. The launches of a node give every value the dtype of the tensors.
That is right for pointwise ops and their sums, in which every value is an op's result. In the launches of any other op,
only stored values are results::

    e = exp(x - top) as bf16; sum(e) -> total        e = exp(x - top) as f32; sum(e) -> total
    y = e / total as bf16; store y                   y = e / total as bf16; store y
"""

from __future__ import annotations

from dataclasses import replace

from dslc.compiler.codegen.region.ir import Let, Region
from dslc.compiler.ir.types import DType

_HALVES = (DType.BF16, DType.F16)


def promote_f32(region: Region) -> Region:
    """The region with f32 instead of bf16 and f16 for all values that are not stored."""
    stored = {store.value for stage in region.stages for store in stage.stores}
    number = region.first
    stages = []
    for stage in region.stages:
        lets = []
        for let in stage.lets:
            if isinstance(let, Let) and let.dtype in _HALVES and number not in stored:
                let = replace(let, dtype=DType.F32)
            lets.append(let)
            number += 1
        number += len(stage.reduces)
        stages.append(replace(stage, lets=tuple(lets)))
    return replace(region, stages=tuple(stages))
