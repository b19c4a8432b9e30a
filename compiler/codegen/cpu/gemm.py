"""Matrix products, plain or in stacks, as kernels: panels of B are packed on the stack, tiles run over the rows of A.

A task is a panel of columns and a block of rows. Where the columns of B are not dense and A has fewer rows than B has
columns, the transposed product is computed, so that the smaller side is the one to be packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.code import VECTOR_BYTES, Code, lane_type
from dslc.compiler.codegen.cpu.objects import emit, tasks
from dslc.compiler.codegen.cpu.tiles import ROWS, Matrix, Multiply, columns_of, lanes_of, resized
from dslc.compiler.codegen.cpu.values import Values
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region import broadcast_strides
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr

_DEPTH: Final = 256  # k of a packed panel
_TASK_FLOPS: Final = 400_000
_TASKS: Final = 16  # about so many where there is work for them


@dataclass(frozen=True, slots=True)
class Gemm:
    """c[m, n] = sum over k of a[m, k] * b[k, n] for each point of ``stack``; strides in elements.

    ``a``, ``b``, ``c``: strides over the stack, then over the two axes.
    """

    dtype: DType
    stack: tuple[int, ...]
    m: int
    n: int
    k: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]

    @property
    def panels(self) -> int:
        return -(-self.n // columns_of(self.dtype))

    @property
    def block(self) -> int:
        """Rows of a task."""
        wanted = min(_TASKS, max(1, 2 * self.m * self.n * self.k * prod(self.stack) // _TASK_FLOPS))
        blocks = max(1, -(-wanted // (self.panels * prod(self.stack))))
        rows = -(-self.m // blocks)
        return -(-max(rows, 2 * ROWS) // ROWS) * ROWS

    @property
    def blocks(self) -> int:
        return -(-self.m // self.block)


@tasks.register
def _(spec: Gemm) -> int:
    return prod(spec.stack) * spec.panels * spec.blocks if spec.m and spec.n else 0


@emit.register
def _(spec: Gemm, code: Code) -> None:
    a, b, c = (code.argument(i) for i in range(3))
    panel = code.local(lane_type(spec.dtype), _DEPTH * columns_of(spec.dtype), align=VECTOR_BYTES)
    whole = spec.n // columns_of(spec.dtype)
    with code.loop(code.last, code.first) as task:
        rest, block = code.divmod(task, spec.blocks)
        point, number = code.divmod(rest, spec.panels)
        index = code.unravel(point, spec.stack)
        start = code.mul(block, spec.block)
        stop = code.least(code.add(start, spec.block), spec.m) if spec.blocks > 1 else spec.m
        job = _Job(spec, code, a, b, c, panel, index, code.mul(number, columns_of(spec.dtype)), start, stop)
        if whole == spec.panels:
            job.run(columns_of(spec.dtype))
        elif whole == 0:
            job.run(spec.n)
        else:
            with code.b.if_else(code.b.icmp_signed("<", number, code.int(whole))) as (then, otherwise):
                with then:
                    job.run(columns_of(spec.dtype))
                with otherwise:
                    job.run(spec.n % columns_of(spec.dtype))


@dataclass(frozen=True)
class _Job:
    """One task: columns from ``column`` on, rows start..stop."""

    spec: Gemm
    code: Code
    a: Any
    b: Any
    c: Any
    panel: Any
    index: list[Any]
    column: Any
    start: Any
    stop: Any

    def run(self, columns: int) -> None:
        code, spec = self.code, self.spec
        if spec.k <= _DEPTH:
            self._pack(0, spec.k, columns)
            self._multiply(0, spec.k, columns, None)
            return
        with code.loop(spec.k, 0, _DEPTH) as k:
            depth = code.least(code.b.sub(code.int(spec.k), k), _DEPTH)
            self._pack(k, depth, columns)
            self._multiply(k, depth, columns, code.b.icmp_signed(">", k, code.int(0)))

    def _offset(self, strides: tuple[int, ...]) -> Any:
        found: Any = 0
        for i, stride in zip(self.index, strides):
            found = self.code.add(found, self.code.mul(i, stride))
        return found

    def _multiply(self, k: Any, depth: Any, columns: int, again: Any) -> None:
        code, spec = self.code, self.spec
        (a_row, a_k), (c_row, c_column) = spec.a[-2:], spec.c[-2:]
        left = Matrix(self.a, code.add(self._offset(spec.a[:-2]), code.mul(k, a_k)), a_row)
        base = code.add(self._offset(spec.c[:-2]), code.mul(self.column, c_column))
        result = Matrix(self.c, base, c_row, c_column)
        loops = ((depth, a_k),)
        Multiply(code, spec.dtype, left, self.panel, loops, result, spec.m, columns, again).run(self.start, self.stop)

    def _pack(self, k: Any, depth: Any, columns: int) -> None:
        """B[k..k+depth, column..column+columns] into the panel."""
        code, spec, lanes = self.code, self.spec, lanes_of(self.spec.dtype)
        b_k, b_column = spec.b[-2:]
        base = code.add(self._offset(spec.b[:-2]), code.add(code.mul(k, b_k), code.mul(self.column, b_column)))
        width, vectors = columns_of(spec.dtype), -(-columns // lanes)
        if b_column != 1 and b_k == 1:
            self._pack_lines(base, depth, columns)
            return
        with code.loop(depth) as i:
            for v in range(vectors):
                count = min(lanes, columns - v * lanes)
                offset = code.add(code.add(base, code.mul(i, b_k)), v * lanes * b_column)
                found = Values(code, count).load(self.b, offset, b_column, spec.dtype).value
                place = code.add(code.mul(i, width), v * lanes)
                whole = resized(code, found, lanes)
                Values(code, lanes).store_value(whole, spec.dtype, self.panel, place, 1)

    def _pack_lines(self, base: Any, depth: Any, columns: int) -> None:
        """Where k is the dense axis: column by column, vectors along k spread over the panel's lines."""
        code, spec, lanes = self.code, self.spec, lanes_of(self.spec.dtype)
        width, element = columns_of(spec.dtype), lane_type(spec.dtype)
        one, many = Values(code, 1), Values(code, lanes)
        padded = -(-columns // lanes) * lanes
        if padded != columns:
            zero = ir.Constant(element, 0.0)
            with code.loop(depth) as i:
                for column in range(columns, padded):
                    one.store_value(zero, spec.dtype, self.panel, code.add(code.mul(i, width), column), 1)
        even = code.b.sub(code.int(depth), code.b.srem(code.int(depth), code.int(lanes)))
        with code.loop(columns) as column:
            line = code.add(base, code.mul(column, spec.b[-1]))
            with code.loop(even, 0, lanes) as i:
                found = many.load(self.b, code.add(line, i), 1, spec.dtype).value
                place = code.add(code.mul(i, width), column)
                many.store_value(found, spec.dtype, self.panel, place, width)
            with code.loop(depth, even) as i:
                single = one.load(self.b, code.add(line, i), 1, spec.dtype).value
                one.store_value(single, spec.dtype, self.panel, code.add(code.mul(i, width), column), 1)


def matmul(node: Node) -> list[Launch]:
    """A stack without strides in B becomes more rows of one product, where A lies dense."""
    (a, b), y = node.input_types, node.types[0]
    ta, tb = bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")
    stack, (m, n) = y.ints[:-2], y.ints[-2:]
    k = a.ints[-2] if ta else a.ints[-1]
    left, right = _strides(a, stack, ta), _strides(b, stack, tb)
    result = _strides(y, stack, False)
    if not ta and b.rank == 2 and a.rank == y.rank and stack:
        m, stack, left, right, result = m * prod(stack), (), left[-2:], right[-2:], result[-2:]
    spec = Gemm(y.dtype, stack, m, n, k, left, right, result)
    reads = node.inputs
    if right[-1] != 1 and m < n:
        spec = Gemm(y.dtype, stack, n, m, k, _swapped(right), _swapped(left), _swapped(result))
        reads = (reads[1], reads[0])
    return [Launch(spec, reads, node.outputs)]


def _strides(type: TensorType, stack: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    *outer, rows, columns = type.ints
    over = tuple(s * rows * columns for s in broadcast_strides(outer, stack))
    return (*over, 1, columns) if transposed else (*over, columns, 1)


def _swapped(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (*strides[:-2], strides[-1], strides[-2])
