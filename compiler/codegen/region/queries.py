"""Queries on regions, their stages and trees for the code generators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dslc.compiler.codegen.region.ir import Bits, Combine, Fetch, Let, Region, Scan, Stage
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType


def used_values(stage: Stage) -> set[int]:
    """The indices of the values that a stage reads, including its own."""
    found = {r.value for r in stage.reduces} | {s.value for s in stage.stores} | {r.value for r in stage.flags}
    for let in stage.lets:
        if isinstance(let, Let):
            found |= read_by(let.expr)
        elif isinstance(let, Scan):
            found.add(let.value)
        elif isinstance(let, Bits):
            found |= {let.seed, let.step, let.row}
        else:
            found |= {let.index} if let.mask is None else {let.index, let.mask}
    return found


def functions_of(region: Region) -> set[str]:
    """The names of all functions in the region's trees."""
    trees = [let.expr for stage in region.stages for let in stage.lets if isinstance(let, Let)]
    return {node.function for tree in trees for node in nodes_of(tree)}


def dtypes_of(
    region: Region, combined: Callable[[Combine, DType], DType] = lambda combine, dtype: dtype
) -> list[DType]:
    """The dtype of every value by its index. ``combined``: the dtype of combined values of a dtype, the same by
    default."""
    found = [a.dtype for a in region.inputs] + [DType.I64] * (region.first - len(region.inputs))
    for stage in region.stages:
        for let in stage.lets:
            match let:
                case Let():
                    found.append(let.dtype)
                case Fetch():
                    found.append(region.inputs[let.input].dtype)
                case Bits():
                    found.append(DType.I32)
                case Scan():
                    found.append(combined(let.combine, found[let.value]))
        found += [combined(r.combine, found[r.value]) for r in stage.reduces]
    return found


def has_scans(region: Region) -> bool:
    return any(isinstance(let, Scan) for stage in region.stages for let in stage.lets)


def nodes_of(tree: Expr) -> list[Expr]:
    """A tree and all its subtrees."""
    found, stack = [], [tree]
    while stack:
        found.append(stack.pop())
        stack.extend(found[-1].args)
    return found


def read_by(expr: Expr) -> set[int]:
    """The indices of the values in a tree."""
    return {node.index for node in nodes_of(expr) if node.function == "arg"}


def substituted(expr: Expr, value: Callable[[int], Expr]) -> Expr:
    """The tree with ``value(n)`` in place of every value n."""
    if expr.function == "arg":
        return value(expr.index)
    return replace(expr, args=tuple(substituted(a, value) for a in expr.args)) if expr.args else expr


def identity(combine: str, dtype: DType) -> float | int:
    """The identity element of the reduction."""
    if combine in ("sum", "prod"):
        return (0.0 if dtype.is_float else 0) if combine == "sum" else (1.0 if dtype.is_float else 1)
    if dtype.is_float:
        return -math.inf if combine == "max" else math.inf
    return dtype.limits[combine == "min"]
