"""Sorts long lines by the bytes of their elements, the last one first, with a count of each byte's values.

A line's elements become unsigned keys in the order that is wanted, with -0 as 0 and nan above all numbers. A pass moves
keys and places to where the counts say, in their order, so that equal elements keep it (Knuth, volume 3, 5.2.5). All
bytes are counted while the keys are made; a pass over a byte that is the same in all keys is left out. Elements do not
meet in comparisons, so the time is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, POINTER, Code, Reg
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

FEWEST: Final = 64  # elements of a line, from which on the counts of bytes are worth their time
_STACK_BYTES: Final = 128 << 10  # of keys and places on the stack
_TASK_ELEMENTS: Final = 8192
_VALUES: Final = 256  # of a byte


@described("RadixSort", "dtype before count after k descending")
@dataclass(frozen=True, slots=True)
class RadixSort(KernelSpec):
    """``k(x, values, places[, keys])``: the first ``k`` elements in order along the middle axis of x [before, count,
    after], and their i32 indices, both [before, k, after]. ``keys``: scratch memory of ``bytes`` if that is not 0."""

    dtype: DType
    before: int
    count: int
    after: int
    k: int
    descending: bool

    @property
    def key_bytes(self) -> int:
        """Of a key."""
        return max(4, self.dtype.itemsize)

    @property
    def key(self) -> Any:
        """The type of a key."""
        return ir.IntType(8 * self.key_bytes)

    @property
    def line_bytes(self) -> int:
        """Keys and places of a line, twice."""
        return 2 * self.count * (self.key_bytes + 4)

    @property
    def bytes(self) -> int:
        """Of scratch memory; 0 if a line fits the stack."""
        return 0 if self.line_bytes <= _STACK_BYTES else self.before * self.after * self.line_bytes

    @property
    def block(self) -> int:
        """Lines per task."""
        return max(1, _TASK_ELEMENTS // self.count)

    @property
    def tasks(self) -> int:
        return -(-self.before * self.after // self.block)

    def emit(self, code: Code) -> None:
        lines, sorter = self.before * self.after, _Sorter(self, code)
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, self.block)
            with code.loop(code.least(code.add(start, self.block), lines), start) as line:
                before, after = code.divmod(line, self.after)
                source, target = (code.add(code.mul(before, n * self.after), after) for n in (self.count, self.k))
                sorter.line(line, source, target)


class _Sorter:
    """The code for lines. Keys and places are in two halves of memory, between which each pass moves them."""

    def __init__(self, spec: RadixSort, code: Code) -> None:
        self.spec, self.code, self.b, self.one = spec, code, code.b, Values(code, 1)
        self.x, self.values, self.places = (code.argument(i) for i in range(3))
        self.counts = [code.local(I32, _VALUES) for _ in range(spec.dtype.itemsize)]
        self.memory = code.argument(3) if spec.bytes else code.local(I64, -(-spec.line_bytes // 8), align=64)
        self.here, self.there = code.local(POINTER), code.local(POINTER)

    def line(self, number: Any, source: Any, target: Any) -> None:
        """Sorts a line, whose elements begin at ``source`` and results at ``target``."""
        code, b, spec = self.code, self.b, self.spec
        start = code.mul(number, spec.line_bytes) if spec.bytes else 0
        first = code.at(self.memory, start, ir.IntType(8))
        b.store(first, self.here)
        b.store(code.at(first, spec.line_bytes // 2, ir.IntType(8)), self.there)
        for counts in self.counts:
            with code.loop(_VALUES) as value:
                b.store(I32(0), code.at(counts, value, I32))
        self._keys(source)
        for byte, counts in enumerate(self.counts):
            self._pass(byte, counts)
        order = self._places_at(b.load(self.here, typ=POINTER))
        with code.loop(spec.k) as i:
            place = b.load(code.at(order, i, I32), typ=I32)
            at = code.add(source, code.mul(b.zext(place, I64), spec.after))
            out = code.add(target, code.mul(i, spec.after))
            value = self.one.load(self.x, at, 0, spec.dtype)
            self.one.store(value, self.values, out, 1)
            self.one.store(Reg(place, DType.I32), self.places, out, 1)

    def _places_at(self, half: Any) -> Any:
        """The places of a half, after its keys."""
        return self.code.at(half, self.spec.count, self.spec.key)

    def _keys(self, source: Any) -> None:
        """Makes the keys and places of a line, and counts the values of each byte."""
        code, b, spec = self.code, self.b, self.spec
        keys = b.load(self.here, typ=POINTER)
        places = self._places_at(keys)
        with code.loop(spec.count) as i:
            value = self.one.load(self.x, code.add(source, code.mul(i, spec.after)), 0, spec.dtype)
            key = self._key(value)
            b.store(key, code.at(keys, i, spec.key))
            b.store(b.trunc(code.int(i), I32), code.at(places, i, I32))
            for byte, counts in enumerate(self.counts):
                place = code.at(counts, self._byte(key, byte), I32)
                b.store(b.add(b.load(place, typ=I32), I32(1)), place)

    def _key(self, reg: Reg) -> Any:
        """An unsigned number in the order that is wanted."""
        b, spec, width = self.b, self.spec, 8 * self.spec.dtype.itemsize
        type, value = ir.IntType(width), reg.value
        sign = ir.Constant(type, 1 << (width - 1))
        if spec.dtype.is_float:
            bits = b.bitcast(b.fadd(value, ir.Constant(value.type, 0.0)), type)  # -0 becomes 0
            below = b.ashr(bits, ir.Constant(type, width - 1))
            key = b.xor(bits, b.or_(below, sign))
            key = b.select(b.fcmp_unordered("uno", value, value), ir.Constant(type, (1 << width) - 1), key)
        else:
            key = value if spec.dtype.is_unsigned else b.xor(value, sign)
        if spec.descending:
            key = b.not_(key)
        return key if key.type.width == spec.key.width else b.zext(key, spec.key)

    def _byte(self, key: Any, byte: int) -> Any:
        b, type = self.b, self.spec.key
        found = b.and_(b.lshr(key, ir.Constant(type, 8 * byte)), ir.Constant(type, _VALUES - 1))
        return found if type.width == 64 else b.zext(found, I64)

    def _pass(self, byte: int, counts: Any) -> None:
        """Moves keys and places into the order of a byte, from one half to the other."""
        code, b, spec = self.code, self.b, self.spec
        source, target = b.load(self.here, typ=POINTER), b.load(self.there, typ=POINTER)
        first = self._byte(b.load(source, typ=spec.key), byte)
        alike = b.icmp_unsigned("==", b.load(code.at(counts, first, I32), typ=I32), I32(spec.count))
        with b.if_then(b.not_(alike)):
            before = [ir.Constant(I32, 0)]
            with code.loop(_VALUES, carried=before) as value:
                place = code.at(counts, value, I32)
                count = b.load(place, typ=I32)
                b.store(before[0], place)
                before[0] = b.add(before[0], count)
            given, made = self._places_at(source), self._places_at(target)
            with code.loop(spec.count) as i:
                key = b.load(code.at(source, i, spec.key), typ=spec.key)
                place = code.at(counts, self._byte(key, byte), I32)
                to = b.load(place, typ=I32)
                b.store(b.add(to, I32(1)), place)
                to = b.zext(to, I64)
                b.store(key, code.at(target, to, spec.key))
                b.store(b.load(code.at(given, i, I32), typ=I32), code.at(made, to, I32))
            b.store(target, self.here)
            b.store(source, self.there)
