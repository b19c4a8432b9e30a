"""cholesky, lu and triangular_solve on the CPU: a task for each matrix, or for some right sides of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, Reg, lanes_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import argument, call
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr

_X, _Y, _Z = (argument(i) for i in range(3))
_LESS: Final = _X - _Y * _Z
_MIDDLE: Final = 0.5 * _X + 0.5 * _Y


class _Matrix:
    """Elements of the row-major matrix [count, count] of floats that begins at element ``first`` of ``pointer``."""

    def __init__(self, code: Code, pointer: Any, first: Any, count: int, dtype: DType) -> None:
        self.code, self.pointer, self.first, self.count, self.dtype = code, pointer, first, count, dtype
        self.one = Values(code, 1)

    def place(self, row: Any, column: Any) -> Any:
        return self.code.add(self.code.add(self.first, self.code.mul(row, self.count)), column)

    def load(self, row: Any, column: Any, values: Values | None = None) -> Reg:
        """An element, or those from it on in all lanes of ``values``."""
        values = values or self.one
        return values.load(self.pointer, self.place(row, column), 1, self.dtype)

    def store(self, value: Reg, row: Any, column: Any, values: Values | None = None) -> None:
        (values or self.one).store(value, self.pointer, self.place(row, column), 1)

    def along(self, start: Any, stop: Any, body: Callable[[Values, Any], None]) -> None:
        """``body`` for neighbouring columns from ``start`` to before ``stop``: whole vectors, then one by one."""
        code, lanes = self.code, lanes_of(self.dtype)
        rest = code.b.srem(code.b.sub(code.int(stop), code.int(start)), I64(lanes))
        middle = code.b.sub(code.int(stop), rest)
        with code.loop(middle, start, lanes) as column:
            body(Values(code, lanes), column)
        with code.loop(stop, middle) as column:
            body(self.one, column)

    def subtract(self, row: Any, factor: Reg, other: Any, start: Any, stop: Any) -> None:
        """``row -= factor * other`` of these columns of two rows."""

        def body(values: Values, column: Any) -> None:
            known = [self.load(row, column, values), values.in_lanes(factor), self.load(other, column, values)]
            self.store(values.evaluate(_LESS, known, self.dtype), row, column, values)

        self.along(start, stop, body)


@described("Cholesky", "dtype lines count")
@dataclass(frozen=True, slots=True)
class Cholesky(KernelSpec):
    """``k(x, y)``: both [lines, count, count]. Above the diagonal, y holds the columns until the last one is done."""

    dtype: DType  # f32 or f64
    lines: int
    count: int

    @property
    def tasks(self) -> int:
        return self.lines

    def emit(self, code: Code) -> None:
        pointers, one, n = [code.argument(i) for i in range(2)], Values(code, 1), self.count
        with code.loop(code.last, code.first) as line:
            x, y = (_Matrix(code, p, code.mul(line, n * n), n, self.dtype) for p in pointers)
            with code.loop(n) as i, code.loop(code.add(i, 1)) as j:
                y.store(one.evaluate(_MIDDLE, [x.load(i, j), x.load(j, i)], self.dtype), i, j)
            with code.loop(n) as j:
                root = one.evaluate(call("sqrt", _X), [y.load(j, j)], self.dtype)
                y.store(root, j, j)
                after = code.add(j, 1)
                with code.loop(n, after) as i:
                    found = one.evaluate(_X / _Y, [y.load(i, j), root], self.dtype)
                    y.store(found, i, j)
                    y.store(found, j, i)
                with code.loop(n, after) as i:
                    y.subtract(i, y.load(i, j), j, after, code.add(i, 1))
            with code.loop(n) as i, code.loop(n, code.add(i, 1)) as j:
                y.store(one.const(0.0, self.dtype), i, j)


@described("Lu", "dtype lines count")
@dataclass(frozen=True, slots=True)
class Lu(KernelSpec):
    """``k(x, y, order, sign)``: x and y [lines, count, count], order i32 [lines, count], sign i32 [lines]."""

    dtype: DType  # f32 or f64
    lines: int
    count: int

    @property
    def tasks(self) -> int:
        return self.lines

    def emit(self, code: Code) -> None:
        (given, factors, order, sign), one, n = [code.argument(i) for i in range(4)], Values(code, 1), self.count
        with code.loop(code.last, code.first) as line:
            first = code.mul(line, n)
            x, y = (_Matrix(code, p, code.mul(line, n * n), n, self.dtype) for p in (given, factors))
            with code.loop(n) as i:
                one.store(Reg(code.b.trunc(code.int(i), I32), DType.I32), order, code.add(first, i), 1)
                y.along(0, n, lambda values, column, i=i: y.store(x.load(i, column, values), i, column, values))  # type: ignore[misc]
            signs: list[Any] = [I32(1)]
            with code.loop(n, carried=signs) as k:
                best = self.pivot(y, k)
                same = code.b.icmp_signed("==", best, code.int(k))
                signs[0] = code.b.select(same, signs[0], code.b.neg(signs[0]))
                self.swap(y, order, first, k, best)
                pivot, after = y.load(k, k), code.add(k, 1)
                none = one.compare("==", pivot, one.const(0.0, self.dtype))
                with code.loop(n, after) as i:
                    old = y.load(i, k)
                    new = one.evaluate(_X / _Y, [old, pivot], self.dtype)
                    factor = Reg(code.b.select(none, old.value, new.value), self.dtype)
                    y.store(factor, i, k)
                    y.subtract(i, factor, k, after, n)
            one.store(Reg(signs[0], DType.I32), sign, line, 1)

    def pivot(self, y: _Matrix, k: Any) -> Any:
        """The row from k on with the greatest magnitude in column k; the first one, or the first nan."""
        code, one, size = y.code, y.one, call("abs", _X)
        found: list[Any] = [one.evaluate(size, [y.load(k, k)], self.dtype).value, code.int(k)]
        with code.loop(self.count, code.add(k, 1), carried=found) as i:
            own = one.evaluate(size, [y.load(i, k)], self.dtype).value
            more = code.b.fcmp_unordered(">", own, found[0])
            more = code.b.and_(more, code.b.fcmp_ordered("ord", found[0], found[0]))
            found[:] = code.b.select(more, own, found[0]), code.b.select(more, i, found[1])
        return found[1]

    def swap(self, y: _Matrix, order: Any, first: Any, k: Any, other: Any) -> None:
        """Exchanges two rows of ``y`` and of ``order``."""
        code, one = y.code, y.one

        def body(values: Values, column: Any) -> None:
            here, there = y.load(k, column, values), y.load(other, column, values)
            y.store(here, other, column, values)
            y.store(there, k, column, values)

        y.along(0, self.count, body)
        places = [code.add(first, k), code.add(first, other)]
        rows = [one.load(order, place, 0, DType.I32) for place in places]
        for row, place in zip(rows, reversed(places)):
            one.store(row, order, place, 1)


@described("TriangularSolve", "dtype upper transposed unit lines count columns")
@dataclass(frozen=True, slots=True)
class TriangularSolve(KernelSpec):
    """``k(t, b, x)``: t [lines, count, count], b and x [lines, count, columns]; a task is a vector of columns."""

    dtype: DType  # f32 or f64
    upper: bool
    transposed: bool
    unit: bool
    lines: int
    count: int
    columns: int

    @property
    def tasks(self) -> int:
        return self.lines * -(-self.columns // lanes_of(self.dtype))

    def emit(self, code: Code) -> None:
        lanes = lanes_of(self.dtype)
        whole, rest = divmod(self.columns, lanes)
        with code.loop(code.last, code.first) as task:
            line, number = code.unravel(task, (self.lines, -(-self.columns // lanes)))
            first = code.mul(number, lanes)
            if whole and rest:
                with code.b.if_else(code.b.icmp_signed("==", code.int(number), I64(whole))) as (then, otherwise):
                    with then:
                        self.solve(code, line, first, rest)
                    with otherwise:
                        self.solve(code, line, first, lanes)
            else:
                self.solve(code, line, first, lanes if whole else rest)

    def solve(self, code: Code, line: Any, first: Any, lanes: int) -> None:
        """The unknowns of as many columns as lanes."""
        n, dtype, values = self.count, self.dtype, Values(code, lanes)
        t = _Matrix(code, code.argument(0), code.mul(line, n * n), n, dtype)
        b, x = (code.argument(i) for i in (1, 2))
        begin = code.add(code.mul(line, n * self.columns), first)

        def row(turn: Any) -> Any:
            return code.b.sub(I64(n - 1), code.int(turn)) if self.upper is not self.transposed else turn

        def place(i: Any) -> Any:
            return code.add(begin, code.mul(i, self.columns))

        with code.loop(n) as turn:
            i = row(turn)
            left = [values.load(b, place(i), 1, dtype).value]
            with code.loop(turn, carried=left) as before:
                j = row(before)
                factor = t.load(*((j, i) if self.transposed else (i, j)))
                known = [Reg(left[0], dtype), values.in_lanes(factor), values.load(x, place(j), 1, dtype)]
                left[0] = values.evaluate(_LESS, known, dtype).value
            found = Reg(left[0], dtype)
            if not self.unit:
                found = values.evaluate(_X / _Y, [found, values.in_lanes(t.load(i, i))], dtype)
            values.store(found, x, place(i), 1)


@lowers("cholesky", target="cpu")
def cholesky(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    spec = Cholesky(node.types[0].dtype, prod(shape[:-2]), shape[-1])
    return [Launch(spec, node.inputs, node.outputs)] if prod(shape) else []


@lowers("lu", target="cpu")
def lu(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    return [Launch(Lu(node.types[0].dtype, prod(shape[:-2]), shape[-1]), node.inputs, node.outputs)]


@lowers("triangular_solve", target="cpu")
def triangular_solve(node: Node) -> list[Launch]:
    *lead, count, columns = node.types[0].ints
    upper, transposed, unit = (bool_attr(node.attrs, name) for name in ("upper", "transposed", "unit"))
    spec = TriangularSolve(node.types[0].dtype, upper, transposed, unit, prod(lead), count, columns)
    return [Launch(spec, node.inputs, node.outputs)] if prod(node.types[0].ints) else []
