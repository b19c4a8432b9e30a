"""Facts about a region, found before emission: dtypes, inputs that are read, values that several stages compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dslc.compiler.codegen.cpu.llvm.math import COSTLY
from dslc.compiler.codegen.region.ir import Fetch, Let, Region, Scan
from dslc.compiler.codegen.region.queries import dtypes_of, nodes_of, used_values
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType


@dataclass(frozen=True)
class RegionFacts:
    """Analysis of a region before emission: the dtype of each value, the inputs read by strides, and the values that
    several element stages compute: (stage, let) -> the first such place."""

    region: Region

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(dtypes_of(self.region))

    @cached_property
    def read(self) -> frozenset[int]:
        return frozenset().union(*(used_values(stage) for stage in self.region.stages))

    @cached_property
    def repeated(self) -> dict[tuple[int, int], tuple[int, int]]:
        keys: dict[object, tuple[int, int]] = {}
        found: dict[tuple[int, int], tuple[int, int]] = {}
        number = self.region.first
        for place, stage in enumerate(self.region.stages):
            own: dict[int, object] = {}
            for at, let in enumerate(stage.computed):
                if stage.element:
                    own[number] = key = _key(let, own)
                    first = keys.setdefault(key, (place, at))
                    if first[0] < place and costly(let):
                        found[first] = found[place, at] = first
                number += 1
            number += len(stage.reduces)
        return found


def _key(let: Let | Fetch | Scan, own: dict[int, object]) -> object:
    """Equal for equal computations; ``own``: keys of the stage's earlier values."""
    if not isinstance(let, Let):
        return object()
    return (let.dtype, _key_of(let.expr, own))


def _key_of(expr: Expr, own: dict[int, object]) -> object:
    if expr.function == "arg":
        return own.get(expr.index, expr.index)
    if expr.function == "const":
        return ("const", repr(expr.value))
    return (expr.function, *(_key_of(a, own) for a in expr.args))


def costly(let: Let | Fetch | Scan) -> bool:
    """Whether a value takes more time than to store and load it: it calls one of the functions ``COSTLY``."""
    return isinstance(let, Let) and any(e.function in COSTLY for e in nodes_of(let.expr))
