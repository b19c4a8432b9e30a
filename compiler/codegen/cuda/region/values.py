"""Emits scalar trees as calls, with the same results as ``scalar.evaluate`` and the CPU's code.

Values of bf16 and f16 are f32 in registers. The dtype to which a value has been rounded is tracked, so that no rounding
is emitted for exact values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dslc.compiler.codegen.cuda.region.fast_math import relaxed, relaxed_exponentials
from dslc.compiler.codegen.cuda.region.writer import SourceWriter
from dslc.compiler.codegen.region.queries import read_by
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType

_HALVES: Final = (DType.BF16, DType.F16)
_COMPARISONS: Final = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_EXACT: Final = frozenset({"neg", "abs", "sign", "min", "max", "select"})  # the result is an operand, up to sign

_LARGE: Final = 256  # operations of a tree, each as often as it is read
_PAIRED: Final = frozenset({"add", "sub", "mul", "min", "max"})  # for bf16 and f16: two at once


@dataclass(frozen=True, slots=True)
class Reg:
    """The expression of a value and the dtype to which it is rounded."""

    text: str
    dtype: DType

    @property
    def held(self) -> DType:
        return self.dtype.computed


class Values:
    """Emits trees into ``text``."""

    def __init__(self, text: SourceWriter) -> None:
        self.text = text
        self.large = False  # whether there is a large tree among them
        self._shared: dict[int, Reg | None] = {}  # by identity: equality would compare whole trees

    def call(self, function: str, *regs: Reg, dtype: DType | None = None) -> Reg:
        return Reg(self.text.call(function, (), *(r.text for r in regs)), dtype or regs[-1].dtype)

    def constant(self, value: float | int | bool, dtype: DType) -> Reg:
        held = dtype.computed
        exact = dtype if held is dtype or _is_exact(float(value), dtype) else held
        return Reg(self.text.constant(value, held), exact)

    def evaluate(self, expr: Expr, args: Sequence[Reg | None], dtype: DType) -> Reg:
        """The tree's value, rounded to ``dtype``; constants take the dtype of the other operand. bf16 and f16 results
        use ``relaxed``; f32 results with such operands use ``relaxed_exponentials``."""
        self._shared = {}
        if dtype in _HALVES and expr.function in _PAIRED:
            regs = self._operands(expr, args, dtype)
            if all(r.dtype is dtype for r in regs):
                return Reg(self.text.call("half", (expr.function, dtype), *(r.text for r in regs)), dtype)
        read = {n: args[n] for n in read_by(expr)}
        if dtype in _HALVES and all(map(_of_floats, read.values())):
            expr = relaxed(expr, dtype)
        elif dtype is DType.F32:
            halves = {n for n, reg in read.items() if reg is not None and reg.dtype in _HALVES}
            expr = relaxed_exponentials(expr, halves) if halves else expr
        return self.convert(self._whole(expr, args, dtype), dtype)

    def _whole(self, expr: Expr, args: Sequence[Reg | None], hint: DType) -> Reg:
        """The tree's value. Of a large tree, a part that others share is emitted once; in a small one LLVM finds it."""
        large = _size(expr, {}) > _LARGE
        self.large |= large
        self._shared = dict.fromkeys(shared_parts(expr) if large else ())
        return self._tree(expr, args, hint)

    def convert(self, reg: Reg, dtype: DType) -> Reg:
        """Converts like ``cast``."""
        if reg.dtype is dtype:
            return reg
        if dtype in _HALVES:
            if not reg.dtype.is_float:  # through f64 if f32 would round first
                wide = reg.dtype.itemsize >= 4
                reg = self.convert(reg, DType.F64 if wide else DType.F32)
            return Reg(self.text.call("rounded", (dtype,), reg.text), dtype)
        if reg.held is dtype:
            return Reg(reg.text, dtype)
        return Reg(self.text.call("to", (dtype,), reg.text), dtype)

    def _tree(self, expr: Expr, args: Sequence[Reg | None], hint: DType) -> Reg:
        if expr.function == "arg":
            reg = args[expr.index]
            assert reg is not None, "the value belongs to another stage"
            return reg
        if expr.function == "const":
            return self.constant(expr.value, DType.B1 if isinstance(expr.value, bool) else hint)
        whole = id(expr)
        known = self._shared.get(whole)
        if known is not None:
            return known
        expr = self._contracted(expr, hint)
        regs = self._operands(expr, args, hint)
        if expr.function == "pow" and regs[0].dtype.is_int:
            found = self._power(regs[0], expr.args[1])
        else:
            found = self._apply(expr.function, regs)
        if whole in self._shared:
            found = self._shared[whole] = Reg(self.text.set(found.text), found.dtype)
        return found

    def _contracted(self, expr: Expr, hint: DType) -> Expr:
        """In a large tree of f32, the sum of a product and another value, rounded once. The tree has functions that
        differ in last bits from device to device in any case."""
        if hint is not DType.F32 or not self._shared or expr.function not in ("add", "sub"):
            return expr
        x, y = expr.args
        if x.function == "mul" and id(x) not in self._shared:
            return Expr("fma", (*x.args, y if expr.function == "add" else -y))
        if y.function == "mul" and id(y) not in self._shared:
            a, b = y.args
            return Expr("fma", (a if expr.function == "add" else -a, b, x))
        return expr

    def _operands(self, expr: Expr, args: Sequence[Reg | None], hint: DType) -> list[Reg]:
        """The values of a tree's operands; a constant takes the dtype of another one, or else ``hint``."""
        known = [None if a.function == "const" else self._tree(a, args, hint) for a in expr.args]
        numbers = known[1:] if expr.function == "select" else known
        near = next((k.dtype for k in numbers if k is not None), hint)
        return [k if k is not None else self._tree(a, args, near) for a, k in zip(expr.args, known)]

    def _apply(self, function: str, regs: list[Reg]) -> Reg:
        numbers = regs[1:] if function == "select" else regs
        held = numbers[-1].held
        assert all(r.held is held for r in numbers), f"{function} of {regs}"
        if function in _COMPARISONS:
            return self.call(function, *regs, dtype=DType.B1)
        same = all(r.dtype is numbers[0].dtype for r in numbers)
        return self.call(function, *regs, dtype=numbers[0].dtype if same and function in _EXACT else held)

    def _power(self, base: Reg, exponent: Expr) -> Reg:
        """An integer to the power of a constant, by squaring."""
        assert exponent.function == "const", "an integer's exponent must be a constant"
        result = self.constant(1, base.dtype)
        name = Reg(self.text.set(base.text), base.dtype)
        for digit in bin(int(exponent.value))[2:]:
            result = Reg(self.text.set(self.call("mul", result, result).text), base.dtype)
            if digit == "1":
                result = Reg(self.text.set(self.call("mul", result, name).text), base.dtype)
        return result


def _size(expr: Expr, known: dict[int, int]) -> int:
    """The operations of a tree, of which those of shared parts count each time. ``known``: by identity."""
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = bool(expr.args) + sum(_size(each, known) for each in expr.args)
    return found


def shared_parts(expr: Expr) -> list[int]:
    """The identities of the parts of a tree that are operands more than once."""
    seen: set[int] = set()
    found: dict[int, None] = {}
    waiting = [expr]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            found[id(each)] = None
        elif each.args:
            seen.add(id(each))
            waiting += each.args
    return list(found)


def _of_floats(reg: Reg | None) -> bool:
    return reg is not None and reg.held in (DType.F32, DType.B1)


def _is_exact(value: float, dtype: DType) -> bool:
    """Whether bf16 or f16 represents the number exactly."""
    if not math.isfinite(value):
        return True
    if dtype is DType.F16:
        with np.errstate(over="ignore"):
            return float(np.float16(value)) == value
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(single) == value and not int(single.view(np.uint32)) & 0xFFFF
