"""Sums over the paths of ctc, their gradient and weighted sums: time after time, with the states of a row in vectors.

A task is one row of the batch. The first or last two states, which have fewer neighbours, are computed one by one, the
others in whole vectors, the last of which ends with the last state and may compute some states again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, Reg, lanes_of
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import Expr, argument, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr

Body = Callable[[Values, Any], None]


@described("PathSizes", "dtype times_dtype states_dtype rows times states")
@dataclass(frozen=True)
class _Sizes:
    """The sizes of x, its dtype, and those of the two counts of each row."""

    dtype: DType
    times_dtype: DType
    states_dtype: DType
    rows: int
    times: int
    states: int


def _sizes(node: Node) -> _Sizes:
    x, _, times, states = node.input_types[:4]
    return _Sizes(x.dtype, times.dtype, states.dtype, *x.ints)


class _Row:
    """Emits what both kernels do in a row."""

    def __init__(self, code: Code, sizes: _Sizes, row: Any) -> None:
        self.code, self.sizes, self.row, self.one = code, sizes, row, Values(code, 1)
        self.skips, self.base = code.mul(row, sizes.states), code.mul(row, sizes.times * sizes.states)

    def count(self, pointer: Any, dtype: DType) -> Any:
        """The row's number in ``pointer``, as i64."""
        return self.one.convert(self.one.load(pointer, self.row, 0, dtype), DType.I64).value

    def within(self, value: Any, low: int, high: int) -> Any:
        """The i64 limited to low..high."""
        b, code = self.code.b, self.code
        value = b.select(b.icmp_signed("<", value, code.int(low)), code.int(low), value)
        return code.least(value, high)

    def at(self, time: Any) -> Any:
        """The place of state 0 at a time in [rows, times, states]."""
        return self.code.add(self.base, self.code.mul(time, self.sizes.states))

    def across(self, first: int, stop: int, body: Body) -> None:
        """``body(values, state)`` for the states from ``first`` on, in vectors where there are enough."""
        code, lanes = self.code, lanes_of(self.sizes.dtype)
        if stop - first < lanes:
            if stop > first:
                with code.loop(stop, first) as state:
                    body(self.one, state)
            return
        whole = Values(code, lanes)
        with code.loop(stop - (stop - first) % lanes, first, lanes) as state:
            body(whole, state)
        if (stop - first) % lanes:
            body(whole, stop - lanes)

    def evaluate(self, values: Values, expr: Expr, *args: Reg) -> Reg:
        return values.evaluate(expr, list(args), self.sizes.dtype)

    def none(self, values: Values) -> Reg:
        return values.const(-math.inf, self.sizes.dtype)

    def where(self, values: Values, flag: Reg, value: Reg) -> Reg:
        """The value where the flag is true, else minus infinity."""
        return Reg(values.b.select(flag.value, value.value, self.none(values).value), value.dtype)

    def log_sum(self, values: Values, *xs: Reg) -> Reg:
        """The logarithm of the sum of exponentials."""
        a, count = [argument(i) for i in range(len(xs) + 1)], len(xs)
        largest, total = a[0], call("exp", a[0] - a[count])
        for x in a[1:count]:
            largest, total = call("max", largest, x), total + call("exp", x - a[count])
        top = self.evaluate(values, largest, *xs)
        safe = self.evaluate(values, select(call("eq", a[0], -math.inf), 0.0, a[0]), top)
        found = self.evaluate(values, total, *xs, safe)
        return self.evaluate(
            values, select(call("eq", a[0], -math.inf), a[0], a[1] + call("log", a[2])), top, safe, found
        )

    def load(self, values: Values, pointer: Any, place: Any, state: Any) -> Reg:
        return values.load(pointer, self.code.add(place, state), 1, self.sizes.dtype)

    def store(self, values: Values, value: Reg, pointer: Any, place: Any, state: Any) -> None:
        values.store(value, pointer, self.code.add(place, state), 1)

    def skip(self, values: Values, pointer: Any, state: Any) -> Reg:
        return values.load(pointer, self.code.add(self.skips, state), 1, DType.B1)


@described("PathLoss", "sizes")
@dataclass(frozen=True)
class PathLoss(KernelSpec):
    """``k(x, skips, times, states, loss, sums)``."""

    sizes: _Sizes

    @property
    def tasks(self) -> int:
        return self.sizes.rows

    def emit(self, code: Code) -> None:
        given = [code.argument(i) for i in range(6)]
        with code.loop(code.last, code.first) as task:
            row = _Row(code, self.sizes, task)
            self._sums(code, row, given[0], given[1], given[5])
            self._loss(code, row, given[2], given[3], given[4], given[5])

    def _sums(self, code: Code, row: _Row, x: Any, skips: Any, sums: Any) -> None:
        count, begin = self.sizes.states, row.at(0)
        row.across(0, min(2, count), lambda v, s: row.store(v, row.load(v, x, begin, s), sums, begin, s))
        row.across(2, count, lambda v, s: row.store(v, row.none(v), sums, begin, s))
        with code.loop(self.sizes.times, 1) as time:
            here, before = row.at(time), row.at(code.add(time, -1))

            def state(v: Values, s: Any, reach: int) -> None:
                near = [row.load(v, sums, before, code.add(s, -i)) for i in range(reach + 1)]
                near += [row.none(v)] * (2 - reach)
                near[2] = row.where(v, row.skip(v, skips, s), near[2])
                found = row.evaluate(v, argument(0) + argument(1), row.load(v, x, here, s), row.log_sum(v, *near))
                row.store(v, found, sums, here, s)

            for first in range(min(2, count)):
                state(row.one, first, first)
            row.across(2, count, lambda v, s: state(v, s, 2))

    def _loss(self, code: Code, row: _Row, times: Any, states: Any, loss: Any, sums: Any) -> None:
        b, one, sizes = code.b, row.one, self.sizes
        n, m = row.count(times, sizes.times_dtype), row.count(states, sizes.states_dtype)
        last = row.at(b.sub(row.within(n, 1, sizes.times), code.int(1)))
        end = b.sub(row.within(m, 1, sizes.states), code.int(1))
        before = b.select(b.icmp_signed(">", end, code.int(0)), b.sub(end, code.int(1)), end)
        more = Reg(b.icmp_signed(">", end, code.int(0)), DType.B1)
        second = row.where(one, more, row.load(one, sums, last, before))
        found = row.evaluate(one, -argument(0), row.log_sum(one, row.load(one, sums, last, end), second)).value
        zero, none, nan = (one.const(c, sizes.dtype).value for c in (0.0, math.inf, math.nan))
        nowhere = b.select(b.icmp_signed("==", m, code.int(1)), zero, none)
        found = b.select(b.icmp_signed("==", n, code.int(0)), nowhere, found)
        known = b.and_(
            b.icmp_unsigned("<=", n, code.int(sizes.times)),
            b.icmp_unsigned("<", b.sub(m, code.int(1)), code.int(sizes.states)),
        )
        one.store(Reg(b.select(known, found, nan), sizes.dtype), loss, row.row, 1)


@described("PathLossGrad", "sizes")
@dataclass(frozen=True)
class PathLossGrad(KernelSpec):
    """``k(x, skips, times, states, loss, sums, dy, dx, rest)``; ``rest``: two times of every row, [rows, 2, states]."""

    sizes: _Sizes

    @property
    def tasks(self) -> int:
        return self.sizes.rows

    def emit(self, code: Code) -> None:
        x, skips, times, states, loss, sums, dy, dx, rest = (code.argument(i) for i in range(9))
        b, sizes = code.b, self.sizes
        with code.loop(code.last, code.first) as task:
            row = _Row(code, sizes, task)
            limit = row.within(row.count(times, sizes.times_dtype), 0, sizes.times)
            end = b.sub(row.within(row.count(states, sizes.states_dtype), 1, sizes.states), code.int(1))
            given = [row.one.load(pointer, task, 0, sizes.dtype).value for pointer in (loss, dy)]

            def finish(v: Values, s: Any, time: Any, after: Reg) -> None:
                """From the sum over all ends of the paths: the gradient, and the sum with the score for the next."""
                both = [Reg(v.splat(value), sizes.dtype) for value in given]
                a = [argument(i) for i in range(4)]
                share = call("exp", a[0] + a[1] + a[2])
                slope = select(call("eq", a[2], math.inf), 0.0, -a[3] * share)
                here = row.at(time)
                known = row.load(v, sums, here, s)
                row.store(v, row.evaluate(v, slope, known, after, *both), dx, here, s)
                kept = row.evaluate(v, a[0] + a[1], after, row.load(v, x, here, s))
                row.store(v, kept, rest, ring(time), s)

            def ring(time: Any) -> Any:
                return code.mul(code.add(code.mul(task, 2), code.divmod(time, 2)[1]), sizes.states)

            with code.loop(sizes.times, limit) as time:
                row.across(0, sizes.states, lambda v, s: row.store(v, v.const(0.0, sizes.dtype), dx, row.at(time), s))
            last = b.sub(limit, code.int(1))

            def at_end(v: Values, s: Any) -> None:
                state, two = v.counting(s).value, v.splat(code.int(2))
                apart = b.sub(v.splat(end), state)  # 0 and 1 are ends
                ends = Reg(b.icmp_unsigned("<", apart, two), DType.B1)
                finish(v, s, last, row.where(v, ends, v.const(0.0, sizes.dtype)))

            with b.if_then(b.icmp_signed(">", limit, code.int(0))):
                row.across(0, sizes.states, at_end)
            with code.loop(last) as turn:
                time = b.sub(b.sub(last, code.int(1)), code.int(turn))
                after = ring(code.add(time, 1))

                def state(v: Values, s: Any, reach: int) -> None:
                    near = [row.load(v, rest, after, code.add(s, i)) for i in range(reach + 1)]
                    near += [row.none(v)] * (2 - reach)
                    if reach == 2:
                        near[2] = row.where(v, row.skip(v, skips, code.add(s, 2)), near[2])
                    finish(v, s, time, row.log_sum(v, *near))

                row.across(0, sizes.states - 2, lambda v, s: state(v, s, 2))
                for reach in range(min(2, sizes.states)):
                    state(row.one, sizes.states - 1 - reach, reach)


@described("PathScan", "dtype rows times states back")
@dataclass(frozen=True)
class PathScan(KernelSpec):
    """``k(x, stay, one, two, y)``."""

    dtype: DType
    rows: int
    times: int
    states: int
    back: bool

    @property
    def tasks(self) -> int:
        return self.rows

    def emit(self, code: Code) -> None:
        x, *weights, y = (code.argument(i) for i in range(5))
        count, times = self.states, self.times
        with code.loop(code.last, code.first) as task:
            row = _Row(code, _Sizes(self.dtype, DType.I32, DType.I32, self.rows, times, count), task)
            begin = row.at(code.int(times - 1 if self.back else 0))
            row.across(0, count, lambda v, s: row.store(v, row.load(v, x, begin, s), y, begin, s))
            with code.loop(times - 1) as turn:
                time = code.b.sub(code.int(times - 2), code.int(turn)) if self.back else code.add(turn, 1)
                here, known = row.at(time), row.at(code.add(time, 1 if self.back else -1))

                def state(v: Values, s: Any, reach: int) -> None:
                    a, found = [argument(i) for i in range(3)], row.load(v, x, here, s)
                    for step, weight in enumerate(weights[: reach + 1]):
                        near = code.add(s, step if self.back else -step)
                        factor = row.load(v, weight, *((known, near) if self.back else (here, s)))
                        found = row.evaluate(v, a[0] + a[1] * a[2], found, factor, row.load(v, y, known, near))
                    row.store(v, found, y, here, s)

                few = min(2, count)
                for reach in range(few):
                    state(row.one, count - 1 - reach if self.back else reach, reach)
                first, stop = (0, count - few) if self.back else (few, count)
                row.across(first, stop, lambda v, s: state(v, s, 2))


@lowers("path_scan", target="cpu")
def path_scan(node: Node) -> list[Launch]:
    x = node.input_types[0]
    rows, times, states = x.ints
    return [Launch(PathScan(x.dtype, rows, times, states, bool_attr(node.attrs, "back")), node.inputs, node.outputs)]


@lowers("path_loss", target="cpu")
def path_loss(node: Node) -> list[Launch]:
    return [Launch(PathLoss(_sizes(node)), node.inputs, node.outputs)]


@lowers("path_loss_grad", target="cpu")
def path_loss_grad(node: Node) -> list[Launch]:
    sizes = _sizes(node)
    rest = Scratch(0, 2 * sizes.rows * sizes.states * sizes.dtype.itemsize)
    return [Launch(PathLossGrad(sizes), node.inputs, (*node.outputs, rest))]
