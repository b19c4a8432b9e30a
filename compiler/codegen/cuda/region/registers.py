"""Dtypes of values in registers, where bf16 and f16 are f32."""

from __future__ import annotations

from typing import Final

from dslc.compiler.codegen.region import queries
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.types import DType

#: The binary function that a reduction applies repeatedly.
STEP: Final = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def combined_dtype(combine: str, dtype: DType) -> DType:
    """The dtype of combined values."""
    return dtype if combine in ("min", "max") else dtype.computed


def dtypes_of(region: Region) -> list[DType]:
    """The dtype of every value by its index; sums and products of bf16 and f16 are f32."""
    return queries.dtypes_of(region, combined_dtype)
