"""Typed values in registers: loads, stores, conversions, and scalar trees as IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm import halves
from dslc.compiler.codegen.cpu.llvm.scalar_ops import apply
from dslc.compiler.codegen.cpu.llvm.writer import (
    I64,
    VECTOR_BYTES,
    Code,
    Reg,
    lane_type,
    memory_type,
    shuffle_of,
    suffix,
    wide,
)
from dslc.compiler.codegen.region.queries import read_by
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.types import DType

_WIDEST_STRIDE: Final = 4  # largest stride that is read as whole vectors


def is_vector(reg: Reg | None) -> bool:
    """Whether a register holds a value for each of several lanes."""
    return reg is not None and isinstance(reg.value.type, ir.VectorType)


class Values:
    """Emits values of ``lanes`` lanes at the code's position."""

    def __init__(self, code: Code, lanes: int) -> None:
        self.code, self.b, self.lanes = code, code.b, lanes

    def type(self, dtype: DType) -> Any:
        return wide(lane_type(dtype), self.lanes)

    def const(self, value: float | int | bool, dtype: DType) -> Reg:
        """The number in all lanes; an f32 for floats of 16 bits, which may not represent it."""
        dtype = dtype.computed
        if dtype is DType.B1:
            value = int(bool(value))
        else:
            value = float(value) if dtype.is_float else int(value)
        return Reg(ir.Constant(self.type(dtype), [value] * self.lanes if self.lanes > 1 else value), dtype)

    def splat(self, scalar: Any) -> Any:
        """One value in all lanes."""
        if self.lanes == 1:
            return scalar
        type = wide(scalar.type, self.lanes)
        first = self.b.insert_element(ir.Constant(type, ir.Undefined), scalar, I64(0))
        zeros = shuffle_of(*[0] * self.lanes)
        return self.b.shuffle_vector(first, ir.Constant(type, ir.Undefined), zeros)

    def first(self, vector: Any, count: int) -> Any:
        """The first ``count`` lanes, possibly all."""
        if count == self.lanes:
            return vector
        if count == 1:
            return self.b.extract_element(vector, I64(0))
        picks = shuffle_of(*range(count))
        return self.b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), picks)

    def counting(self, start: Any) -> Reg:
        """start, start + 1, ... as i64."""
        steps = ir.Constant(self.type(DType.I64), list(range(self.lanes)) if self.lanes > 1 else 0)
        return Reg(self.b.add(self.splat(self.code.int(start)), steps), DType.I64)

    def load(self, pointer: Any, offset: Any, stride: int, dtype: DType) -> Reg:
        """Elements offset, offset + stride, ... of ``pointer``."""
        memory, lanes = memory_type(dtype), self.lanes
        if stride == 0 or lanes == 1:
            raw = self.splat(self._load(pointer, offset, memory, dtype))
        elif stride == 1:
            raw = self._load(pointer, offset, wide(memory, lanes), dtype, memory)
        elif stride == -1:
            raw = self._load(pointer, self.code.add(offset, 1 - lanes), wide(memory, lanes), dtype, memory)
            raw = self.picked(raw, range(lanes - 1, -1, -1))
        elif 1 < stride <= _WIDEST_STRIDE and stride < lanes:
            raw = self._strided(pointer, offset, stride, dtype)
        else:
            raw = self._lane_by_lane(pointer, [self.code.add(offset, lane * stride) for lane in range(lanes)], dtype)
        return self._in_register(raw, dtype)

    def _strided(self, pointer: Any, offset: Any, stride: int, dtype: DType) -> Any:
        """Loads whole vectors and picks some of their lanes; the last vector ends with the last element."""
        lanes, memory = self.lanes, memory_type(dtype)
        starts = [*range(0, (stride - 1) * lanes, lanes), (lanes - 1) * (stride - 1)]
        found: Any = None
        for start in starts:
            vector = self._load(pointer, self.code.add(offset, start), wide(memory, lanes), dtype, memory)
            places = [lane * stride - start for lane in range(lanes)]
            if found is None:
                found = self.picked(vector, [min(p, lanes - 1) for p in places])
                continue
            mask = [lanes + p if 0 <= p < lanes else lane for lane, p in enumerate(places)]
            found = self.b.shuffle_vector(found, vector, shuffle_of(*mask))
        return found

    def repeated(self, pointer: Any, base: Any, start: Any, repeat: int, dtype: DType) -> Reg:
        """Elements ``base + (start + lane) // repeat``; ``start`` is a multiple of a whole vector's lanes."""
        memory, lanes = memory_type(dtype), self.lanes
        if VECTOR_BYTES // 8 % repeat == 0:
            count = -(-lanes // repeat)
            offset = self.code.add(base, self.code.divmod(start, repeat)[0])
            raw = self._load(pointer, offset, wide(memory, count), dtype, memory)
            raw = self.picked(raw, [lane // repeat for lane in range(lanes)]) if count > 1 else self.splat(raw)
        else:
            places = [self.code.divmod(self.code.add(start, lane), repeat)[0] for lane in range(lanes)]
            raw = self._lane_by_lane(pointer, [self.code.add(base, place) for place in places], dtype)
        return self._in_register(raw, dtype)

    def gather(self, pointer: Any, base: Any, stride: int, index: Reg, mask: Reg | None, dtype: DType) -> Reg:
        """Elements ``base + lane * stride + index`` of ``pointer``; 0 if ``mask`` is false."""
        lanes, b = self.lanes, self.b
        if lanes > 1 and not is_vector(index) and (mask is None or not is_vector(mask)):
            return self._shifted(pointer, base, stride, index, mask, dtype)
        index, mask = self.in_lanes(index), mask if mask is None else self.in_lanes(mask)
        places = index.value
        if mask is not None:
            places = b.select(mask.value, places, self.const(0, index.dtype).value)
        if stride:
            steps = [lane * stride for lane in range(lanes)] if lanes > 1 else 0
            steps = ir.Constant(places.type, steps)
            if mask is not None:
                steps = b.select(mask.value, steps, self.const(0, index.dtype).value)
            places = b.add(places, steps)
        each = [places] if lanes == 1 else [b.extract_element(places, I64(lane)) for lane in range(lanes)]
        offsets = [self.code.add(base, p if p.type == I64 else b.sext(p, I64)) for p in each]
        found = self._in_register(self._lane_by_lane(pointer, offsets, dtype), dtype)
        if mask is None:
            return found
        return Reg(b.select(mask.value, found.value, self.const(0, dtype).value), dtype)

    def _shifted(self, pointer: Any, base: Any, stride: int, index: Reg, mask: Reg | None, dtype: DType) -> Reg:
        """As ``gather``, where index and mask are the same for all lanes; so is the result if the stride is 0."""
        values = self if stride else Values(self.code, 1)

        def loaded() -> Reg:
            place = index.value if index.value.type == I64 else self.b.sext(index.value, I64)
            return values.load(pointer, self.code.add(base, place), stride, dtype)

        if mask is None:
            return loaded()
        none = values.const(0, dtype).value
        [found] = self.code.if_then(mask.value, [none], lambda: [loaded().value])
        return Reg(found, dtype)

    def picked(self, vector: Any, lanes: Sequence[int]) -> Any:
        """The given lanes of ``vector``, as a vector."""
        picks = shuffle_of(*lanes)
        return self.b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), picks)

    def _lane_by_lane(self, pointer: Any, offsets: Sequence[Any], dtype: DType) -> Any:
        memory = memory_type(dtype)
        if self.lanes == 1:
            return self._load(pointer, offsets[0], memory, dtype)
        raw = ir.Constant(wide(memory, self.lanes), ir.Undefined)
        for lane, offset in enumerate(offsets):
            raw = self.b.insert_element(raw, self._load(pointer, offset, memory, dtype), I64(lane))
        return raw

    def _in_register(self, raw: Any, dtype: DType) -> Reg:
        if dtype is DType.B1:
            raw = self.b.icmp_unsigned("!=", raw, ir.Constant(raw.type, [0] * self.lanes if self.lanes > 1 else 0))
        return Reg(halves.widened(self, raw, dtype) if dtype.is_half else raw, dtype)

    def _load(self, pointer: Any, offset: Any, type: Any, dtype: DType, element: Any = None) -> Any:
        place = self.code.at(pointer, offset, element or type)
        return self.b.load(place, typ=type, align=dtype.itemsize)

    def store(self, reg: Reg, pointer: Any, offset: Any, stride: int) -> None:
        """Stores elements offset, offset + stride, ...; a stride of 0 is valid only for one lane."""
        value = reg.value
        if reg.dtype is DType.B1:
            value = self.b.zext(value, wide(memory_type(reg.dtype), self.lanes))
        elif reg.dtype.is_half:
            value = halves.packed(self, value, reg.dtype)
        self.store_value(value, reg.dtype, pointer, offset, stride)

    def store_value(self, value: Any, dtype: DType, pointer: Any, offset: Any, stride: int) -> None:
        """Like ``store``, for a value already in its memory format."""
        memory, lanes = memory_type(dtype), self.lanes
        if stride == -1 and lanes > 1:
            value = self.picked(value, range(lanes - 1, -1, -1))
            offset, stride = self.code.add(offset, 1 - lanes), 1
        if lanes == 1 or stride == 1:
            self.b.store(value, self.code.at(pointer, offset, memory), align=dtype.itemsize)
            return
        assert stride != 0, "several lanes cannot be stored to one element"
        for lane in range(lanes):
            one = self.b.extract_element(value, I64(lane))
            place = self.code.at(pointer, self.code.add(offset, lane * stride), memory)
            self.b.store(one, place, align=dtype.itemsize)

    def convert(self, reg: Reg, dtype: DType) -> Reg:
        """Converts like ``cast``: floats to integers saturate and drop their fraction, nan gives 0. Floats of 16 bits
        are rounded to the nearest, ties to even; 32-bit and 64-bit integers become f64 first."""
        old, b, type = reg.dtype.computed, self.b, self.type(dtype)
        if reg.dtype is dtype:
            return reg
        if dtype.is_half:
            if not old.is_float:
                reg = self.convert(reg, DType.F64 if old.itemsize >= 4 else DType.F32)
            return Reg(halves.rounded(self, reg.value, dtype), dtype)
        if old is dtype:
            return Reg(reg.value, dtype)
        if dtype is DType.B1:
            zero = self.const(0, old).value
            found = b.fcmp_unordered("!=", reg.value, zero) if old.is_float else b.icmp_signed("!=", reg.value, zero)
            return Reg(found, dtype)
        if old.is_float and dtype.is_float:
            turn = b.fptrunc if dtype.itemsize < old.itemsize else b.fpext
            return Reg(turn(reg.value, type), dtype)
        if old.is_float and (dtype.itemsize < 4 or dtype is DType.I32):
            return Reg(self._saturated(reg.value, old, dtype), dtype)
        if old.is_float:
            name = "fptoui" if dtype.is_unsigned else "fptosi"
            full = f"llvm.{name}.sat.{suffix(type)}.{suffix(reg.value.type)}"
            return Reg(self.code.intrinsic(full, type, reg.value), dtype)
        unsigned = self.unsigned(old)
        if dtype.is_float:
            return Reg((b.uitofp if unsigned else b.sitofp)(reg.value, type), dtype)
        if old is not DType.B1 and dtype.itemsize == old.itemsize:
            return Reg(reg.value, dtype)
        if old is not DType.B1 and dtype.itemsize < old.itemsize:
            return Reg(b.trunc(reg.value, type), dtype)
        return Reg((b.zext if unsigned else b.sext)(reg.value, type), dtype)

    def _saturated(self, x: Any, old: DType, dtype: DType) -> Any:
        """Floats as integers that fit i32, in vectors: LLVM's saturating conversion takes one lane after the other."""
        b, bits, unsigned = self.b, 8 * dtype.itemsize, self.unsigned(dtype)
        low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        least, beyond = (self.const(float(n), old).value for n in (low, high + 1))
        over, under = b.fcmp_ordered(">=", x, beyond), b.fcmp_ordered("<=", x, least)
        inside = b.and_(b.fcmp_ordered("<", x, beyond), b.fcmp_ordered(">", x, least))
        whole = b.fptosi(b.select(inside, x, self.const(0, old).value), self.type(DType.I32))
        if dtype.itemsize < 4:
            whole = b.trunc(whole, self.type(dtype))
        for outside, end in ((over, high), (under, low)):
            whole = b.select(outside, self.const(end, dtype).value, whole)
        return whole

    def in_lanes(self, reg: Reg) -> Reg:
        """The register in all lanes, if it is one value for all of them."""
        return reg if self.lanes == 1 or is_vector(reg) else Reg(self.splat(reg.value), reg.dtype)

    def evaluate(self, expr: Expr, args: Sequence[Reg | None], dtype: DType) -> Reg:
        """The tree's value, rounded to ``dtype``; constants take the dtype of the other operand. If all arguments are
        one value for all lanes, so is the result."""
        if self.lanes > 1 and (read := read_by(expr)):
            if not any(is_vector(args[n]) for n in read):
                return Values(self.code, 1).evaluate(expr, args, dtype)
            args = [self.in_lanes(reg) if reg is not None and n in read else reg for n, reg in enumerate(args)]
        found = self._tree(expr, args, dtype)
        return self.convert(found, dtype)

    def _tree(self, expr: Expr, args: Sequence[Reg | None], hint: DType) -> Reg:
        if expr.function == "arg":
            reg = args[expr.index]
            assert reg is not None, "the value belongs to another stage"
            return reg
        if expr.function == "const":
            return self.const(expr.value, DType.B1 if isinstance(expr.value, bool) else hint)
        known = [None if a.function == "const" else self._tree(a, args, hint) for a in expr.args]
        numbers = known[1:] if expr.function == "select" else known
        near = next((k.dtype for k in numbers if k is not None), hint)
        regs = [k if k is not None else self._tree(a, args, near) for a, k in zip(expr.args, known)]
        return apply(self, expr.function, regs)

    def compare(self, sign: str, x: Reg, y: Reg) -> Any:
        """An i1 per lane; comparisons with nan are false, except !=."""
        if x.dtype.is_float:
            return (self.b.fcmp_unordered if sign == "!=" else self.b.fcmp_ordered)(sign, x.value, y.value)
        turn = self.b.icmp_unsigned if self.unsigned(x.dtype) else self.b.icmp_signed
        return turn(sign, x.value, y.value)

    def unsigned(self, dtype: DType) -> bool:
        return dtype.is_unsigned

    def combine(self, how: str, x: Reg, y: Reg) -> Reg:
        """x + y, x * y, the maximum or the minimum; for the latter two, nan if either is nan."""
        return apply(self, {"sum": "add", "prod": "mul"}.get(how, how), [x, y])
