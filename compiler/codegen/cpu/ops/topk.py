"""topk: keeps the k best elements so far as a heap in the result, with the worst on top; finally heapsort. Of many
elements the whole line is sorted (``radix_sort.py``).

Lines are independent; a task processes several. Williams 1964, Floyd 1964: at most n*log(k) comparisons, mostly n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelSpec
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, Code, Reg
from dslc.compiler.codegen.cpu.ops.radix_sort import FEWEST, RadixSort
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_TASK_ELEMENTS: Final = 8192  # elements per task, about
_FEW: Final = 8  # elements, and the share of a line, from which on the whole line is sorted for its first ones


@described("TopK", "dtype before count after k largest")
@dataclass(frozen=True, slots=True)
class TopK(KernelSpec):
    """The first ``k`` along the middle axis of x [before, count, after]: values and i32 indices, [before, k, after]."""

    dtype: DType
    before: int
    count: int
    after: int
    k: int
    largest: bool

    @property
    def lines(self) -> int:
        return self.before * self.after

    @property
    def block(self) -> int:
        """Lines per task."""
        return max(1, _TASK_ELEMENTS // max(1, self.count))

    @property
    def tasks(self) -> int:
        return -(-self.lines // self.block)

    def emit(self, code: Code) -> None:
        x, values, places = (code.argument(i) for i in range(3))
        with code.loop(code.last, code.first) as task:
            start = code.mul(task, self.block)
            with code.loop(code.least(code.add(start, self.block), self.lines), start) as line:
                before, after = code.divmod(line, self.after)
                source = code.add(code.mul(before, self.count * self.after), after)
                target = code.add(code.mul(before, self.k * self.after), after)
                _Line(self, code, (x, source), (values, places, target)).run()


@dataclass(frozen=True)
class _Item:
    """A value and its index along the line."""

    value: Any
    place: Any


class _Line:
    def __init__(self, spec: TopK, code: Code, source: tuple[Any, Any], target: tuple[Any, Any, Any]) -> None:
        self.spec, self.code, self.b, self.one = spec, code, code.b, Values(code, 1)
        self.x, self.source = source
        self.values, self.places, self.target = target
        self.at = code.local(I64)

    def run(self) -> None:
        code, k = self.code, self.spec.k
        with code.loop(k) as i:
            self._set(i, self._given(i))
        if k > 1:
            with code.loop(k // 2) as i:
                position = self.b.sub(I64(k // 2 - 1), code.int(i))
                self._sift(position, self._get(position), I64(k))
        with code.loop(self.spec.count, k) as i:
            new = self._given(i)
            # its place is after those of the heap, so it does not precede an equal one
            with self.b.if_then(self._compare(new.value, self._get(0).value), likely=False):
                self._sift(I64(0), new, I64(k))
        if k > 1:
            with code.loop(k - 1) as i:
                last = self.b.sub(I64(k - 1), code.int(i))
                worst, moved = self._get(0), self._get(last)
                self._set(last, worst)
                self._sift(I64(0), moved, last)

    def _sift(self, position: Any, item: _Item, size: Any) -> None:
        """Puts ``item`` at ``position`` or below, so that none of the first ``size`` items precedes its parent."""
        b, depth = self.b, self.spec.k.bit_length()
        b.store(position, self.at)
        with _Loop(self.code, depth) as stop:
            here = b.load(self.at, typ=I64)
            child = b.add(b.shl(here, I64(1)), I64(1))
            stop(b.icmp_signed(">=", child, size))
            other = self.code.least(b.add(child, I64(1)), b.sub(size, I64(1)))
            left, right = self._get(child), self._get(other)
            second = self._ahead(left, right)
            worse = _Item(b.select(second, right.value, left.value), b.select(second, right.place, left.place))
            stop(b.not_(self._ahead(item, worse)))
            self._set(here, worse)
            b.store(b.select(second, other, child), self.at)
        self._set(b.load(self.at, typ=I64), item)

    def _given(self, i: Any) -> _Item:
        offset = self.code.add(self.source, self.code.mul(i, self.spec.after))
        value = self.one.load(self.x, offset, 0, self.spec.dtype).value
        return _Item(value, self.b.trunc(self.code.int(i), I32))

    def _offset(self, position: Any) -> Any:
        return self.code.add(self.target, self.code.mul(position, self.spec.after))

    def _get(self, position: Any) -> _Item:
        offset = self._offset(position)
        found = (self.one.load(p, offset, 0, d) for p, d in ((self.values, self.spec.dtype), (self.places, DType.I32)))
        return _Item(*(reg.value for reg in found))

    def _set(self, position: Any, item: _Item) -> None:
        offset = self._offset(position)
        self.one.store(Reg(item.value, self.spec.dtype), self.values, offset, 1)
        self.one.store(Reg(item.place, DType.I32), self.places, offset, 1)

    def _ahead(self, x: _Item, y: _Item) -> Any:
        """Whether x comes first: it is greater (less), or equal with the lower index; nan is greatest."""
        b, compare = self.b, self._compare
        more, less = compare(x.value, y.value), compare(y.value, x.value)
        earlier = b.icmp_signed("<", x.place, y.place)
        return b.or_(more, b.and_(b.not_(less), earlier))

    def _compare(self, x: Any, y: Any) -> Any:
        b, dtype = self.b, self.spec.dtype
        if not self.spec.largest:
            x, y = y, x
        found = self.one.compare(">", Reg(x, dtype), Reg(y, dtype))
        if dtype.is_float:
            found = b.or_(found, b.and_(b.fcmp_unordered("uno", x, x), b.fcmp_ordered("ord", y, y)))
        return found


class _Loop:
    """``with _Loop(...) as stop``: repeats the body at most ``most`` times, until ``stop(condition)`` leaves it."""

    def __init__(self, code: Code, most: int) -> None:
        self.code, self.b, self.most = code, code.b, most

    def __enter__(self) -> Callable[[Any], None]:
        before = self.b.block
        self.head, self.done = (self.code.function.append_basic_block(n) for n in ("again", "left"))
        self.b.branch(self.head)
        self.b.position_at_end(self.head)
        self.turns = self.b.phi(I64)
        self.turns.add_incoming(I64(0), before)
        return self._stop

    def _stop(self, condition: Any) -> None:
        on = self.code.function.append_basic_block("on")
        self.b.cbranch(condition, self.done, on)
        self.b.position_at_end(on)

    def __exit__(self, *error: Any) -> None:
        following = self.b.add(self.turns, I64(1))
        self.turns.add_incoming(following, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, I64(self.most)), self.head, self.done)
        self.b.position_at_end(self.done)


@lowers("topk", target="cpu")
def topk(node: Node) -> list[Launch]:
    k, largest = int_attr(node.attrs, "k"), bool_attr(node.attrs, "largest")
    return _ordered(node, k, largest, sorts=k > _FEW and k * _FEW >= _count(node))


@lowers("sort", target="cpu")
def sort(node: Node) -> list[Launch]:
    """All elements of each line; of a short line by a heap, which is then the line."""
    return _ordered(node, _count(node), bool_attr(node.attrs, "descending"), sorts=True)


def _count(node: Node) -> int:
    return node.input_types[0].ints[int_attr(node.attrs, "axis")]


def _ordered(node: Node, k: int, largest: bool, sorts: bool) -> list[Launch]:
    """The first ``k``; if ``sorts``, whole lines are sorted unless they are short."""
    [x], axis = node.input_types, int_attr(node.attrs, "axis")
    sizes = prod(x.ints[:axis]), x.ints[axis], prod(x.ints[axis + 1 :])
    if not sorts or x.ints[axis] < FEWEST:
        return [Launch(TopK(x.dtype, *sizes, k, largest), node.inputs, node.outputs)]
    spec = RadixSort(x.dtype, *sizes, k, largest)
    scratch = (Scratch(0, spec.bytes),) if spec.bytes else ()
    return [Launch(spec, node.inputs, (*node.outputs, *scratch))]
