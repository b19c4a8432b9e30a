"""Pointwise epilogue of a contraction: a CUDA C++ function that kernels call for a sum before they store it.

It gives the same bits as separate kernels: for f32 and f64, the C++ emitted here is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers
from dslc.compiler.codegen.cuda.recurrent.formulas import formula
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.region.ir import Access, Let, Region
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.index_limits import I32_PADDED_ELEMENTS
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType

_INLINE: Final = "__device__ __forceinline__"
_OPERATORS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&&", "or": "||",
}  # fmt: skip
_UP_TO_32_BITS: Final = frozenset((DType.F32, DType.BF16, DType.F16, DType.B1))
_COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")


@dataclass(frozen=True)
class Epilogue:
    """``region``, without inner axes: input 0 is the contraction's result; the only output is the epilogue's; both
    dense."""

    region: Region

    @classmethod
    def of(cls, fused: Node) -> Epilogue | None:
        """The epilogue of a pointwise node whose first input is the contraction; None if C++ cannot compute it
        exactly."""
        [launch] = pointwise.pointwise(fused)
        region = launch.spec
        [stage] = region.stages
        of_type = fused.types[0].dtype
        dtypes = {a.dtype for a in region.inputs} | {let.dtype for let in stage.lets if isinstance(let, Let)}
        exact = of_type in (DType.F32, DType.F64) and dtypes <= {of_type, DType.B1}
        known = exact and all(isinstance(let, Let) and can_emit(let.expr) for let in stage.lets)
        return cls(region) if known and math.prod(region.outer) <= I32_PADDED_ELEMENTS else None

    @cached_property
    def lets(self) -> list[Let]:
        [stage] = self.region.stages
        return [let for let in stage.lets if isinstance(let, Let)]

    @property
    def others(self) -> tuple[Access, ...]:
        """The inputs other than the contraction."""
        return self.region.inputs[1:]

    def text(self, numbers: Numbers, kept: DType) -> str:
        """The function ``finished(s, at, x, e1, ...)`` for element ``at`` with the sum x; macros that declare the e and
        that call it."""
        given = [f"e{n}" for n in range(1, len(self.region.inputs))]
        declared = "".join(f"const {C_TYPES[a.dtype]} *__restrict__ {e}, " for a, e in zip(self.others, given))
        parameters = "".join(f", const {C_TYPES[a.dtype]} *{e}" for a, e in zip(self.others, given))
        names = {0: "x"}
        lines = self._coordinates(numbers)
        for n, (access, e) in enumerate(zip(self.others, given), 1):
            names[n] = f"v{n}"
            lines.append(f"const {C_TYPES[access.dtype]} v{n} = {e}[{self._place(access, n, numbers)}];")
        types = [a.dtype for a in self.region.inputs] + [DType.I64] * (self.region.first - len(self.region.inputs))
        for number, let in enumerate(self.lets, self.region.first):
            names[number] = f"v{number}"
            lines.append(f"const {C_TYPES[let.dtype]} v{number} = {_emitted(let.expr, names, types, let.dtype)};")
            types.append(let.dtype)
        [store] = self.region.stages[0].stores
        body = "".join(f"  {line}\n" for line in [*lines, f"return {names[store.value]};"])
        head = f"{_INLINE} {C_TYPES[kept]} finished(const Numbers &s, int at, {C_TYPES[kept]} x{parameters}) {{\n"
        called = "".join(f", {e}" for e in given)
        return f"{head}{body}}}\n#define OTHERS {declared}\n#define FINISHED(at, x) finished(s, at, x{called})\n"

    def _coordinates(self, numbers: Numbers) -> list[str]:
        """``i0``, ``i1``, ...: the index along each axis; nothing if no input needs them."""
        sizes, own = self.region.outer, self.region.inputs[0].strides
        if all(a.strides in (own, (0,) * len(sizes)) for a in self.others):
            return []
        lines, left = [], "at"
        for axis in range(len(sizes) - 1, 0, -1):
            size, magic, shift = numbers.divisor(f"e_size{axis}", sizes[axis])
            lines.append(
                f"const int q{axis} = quotient({left}, {magic}, {shift}), i{axis} = {left} - q{axis} * {size};"
            )
            left = f"q{axis}"
        return [*lines, f"const int i0 = {left};"]

    def _place(self, access: Access, number: int, numbers: Numbers) -> str:
        """The index expression of an input's element."""
        if access.strides == self.region.inputs[0].strides:
            return "at"
        moved = [(axis, stride) for axis, stride in enumerate(access.strides) if stride]
        terms = [
            f"i{a} * {numbers.add(f'e{number}_stride{a}', stride)}" if stride > 1 else f"i{a}" for a, stride in moved
        ]
        return " + ".join(terms) or "0"


@dataclass(frozen=True)
class F32Epilogue(Epilogue):
    """The same for sums in f32 that all steps keep: their results are rounded once, to the dtype of the output."""

    @classmethod
    def of(cls, fused: Node) -> F32Epilogue | None:
        """The epilogue of a pointwise node whose first input is the contraction; None if it has other values than
        floats of up to 32 bits and booleans, or a function that C++ lacks."""
        [launch] = pointwise.pointwise(fused)
        found = cls(launch.spec)
        dtypes = {a.dtype for a in found.region.inputs} | {let.dtype for let in found.lets}
        if not dtypes <= _UP_TO_32_BITS or math.prod(found.region.outer) > I32_PADDED_ELEMENTS:
            return None
        whole = len(found.lets) == len(found.region.stages[0].lets)
        return found if whole and not any(_has(let.expr, "sign") for let in found.lets) else None

    def text(self, numbers: Numbers, kept: DType) -> str:
        given = [f"e{n}" for n in range(1, len(self.region.inputs))]
        kinds = [C_TYPES[access.dtype] for access in self.others]
        lines = self._coordinates(numbers)
        names = ["x"]
        for n, (access, e) in enumerate(zip(self.others, given), 1):
            read = f"{e}[{self._place(access, n, numbers)}]"
            wide = read if access.dtype is DType.B1 else f"wide({read})"
            lines.append(f"const {_in_f32(access.dtype)} v{n} = {wide};")
            names.append(f"v{n}")
        names += [""] * (self.region.first - len(names))
        for number, let in enumerate(self.lets, self.region.first):
            lines.append(f"const {_in_f32(let.dtype)} v{number} = {formula(let.expr, names)};")
            names.append(f"v{number}")
        [store] = self.region.stages[0].stores
        body = "".join(f"  {line}\n" for line in [*lines, f"return {names[store.value]};"])
        parameters = "".join(f", const {kind} *{e}" for kind, e in zip(kinds, given))
        declared = "".join(f"const {kind} *__restrict__ {e}, " for kind, e in zip(kinds, given))
        called = "".join(f", {e}" for e in given)
        head = f"{_INLINE} float finished(const Numbers &s, int at, float x{parameters}) {{\n"
        return f"{head}{body}}}\n#define OTHERS {declared}\n#define FINISHED(at, x) finished(s, at, x{called})\n"


def _in_f32(dtype: DType) -> str:
    return "bool" if dtype is DType.B1 else "float"


def _has(expr: Expr, function: str) -> bool:
    return expr.function == function or any(_has(each, function) for each in expr.args)


NOTHING: Final = "#define OTHERS\n#define FINISHED(at, x) (x)\n"


def can_emit(expr: Expr) -> bool:
    """Whether C++ computes a tree with the same bits."""
    known = expr.function in (*_OPERATORS, "neg", "abs", "min", "max", "not", "select", "arg", "const")
    return known and all(map(can_emit, expr.args))


def _emitted(expr: Expr, names: dict[int, str], types: Sequence[DType], hint: DType) -> str:
    """The tree's text; a constant takes the dtype of the other operand, or else ``hint``."""
    if expr.function == "arg":
        return names[expr.index]
    if expr.function == "const":
        return _literal(expr.value, hint)
    numbers = expr.args[1:] if expr.function == "select" else expr.args
    near = next((d for d in (_dtype_of(a, types) for a in numbers) if d is not None), hint)
    texts = [_emitted(a, names, types, near) for a in expr.args]
    match expr.function:
        case "neg":
            return f"({_literal(-0.0, near)} - {texts[0]})"
        case "abs":
            return f"{'fabsf' if near is DType.F32 else 'fabs'}({texts[0]})"
        case "not":
            return f"(!{texts[0]})"
        case "select":
            return f"({texts[0]} ? {texts[1]} : {texts[2]})"
        case "min" | "max":
            return f"{'lesser' if expr.function == 'min' else 'greater'}({texts[0]}, {texts[1]})"
    return f"({texts[0]} {_OPERATORS[expr.function]} {texts[1]})"


def _dtype_of(expr: Expr, types: Sequence[DType]) -> DType | None:
    """The dtype of a tree's value; None for a constant."""
    if expr.function == "arg":
        return types[expr.index]
    if expr.function == "const":
        return DType.B1 if isinstance(expr.value, bool) else None
    if expr.function in (*_COMPARISONS, "and", "or", "not"):
        return DType.B1
    numbers = expr.args[1:] if expr.function == "select" else expr.args
    return next((d for d in (_dtype_of(a, types) for a in numbers) if d is not None), None)


def _literal(value: float | int | bool, dtype: DType) -> str:
    if isinstance(value, bool) or dtype is DType.B1:
        return str(bool(value)).lower()
    bits = {DType.F32: ("__uint_as_float(0x", "7f800000", "7fc00000"), DType.F64: (
        "__longlong_as_double(0x", "7ff0000000000000", "7ff8000000000000")}[dtype]  # fmt: skip
    if not math.isfinite(value):
        return f"{'-' if value < 0 else ''}{bits[0]}{bits[2 if math.isnan(value) else 1]})"
    return float(value).hex() + ("f" if dtype is DType.F32 else "")
