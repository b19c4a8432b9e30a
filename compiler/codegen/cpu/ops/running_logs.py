"""logcumsumexp and its gradient on the CPU, in the order of the elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Any, Final

from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import Code, Reg
from dslc.compiler.codegen.cpu.ops.lines import Lines, sizes_of
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scalar import argument, call, select
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr

_X, _TOP, _OTHERS, _LESS = (argument(i) for i in range(4))
_APART: Final = select(call("eq", _X, _TOP), 0.0, -call("abs", _X - _TOP))
_SUM: Final = select(_X <= _TOP, _OTHERS + _LESS, _LESS * (_OTHERS + 1.0))
_LOG: Final = _TOP + call("log1p", _OTHERS)


@described("RunningLogs", "dtype outer count inner reverse")
@dataclass(frozen=True, slots=True)
class RunningLogs(Lines):
    """``k(x, y)``."""

    dtype: DType  # f32 or f64
    outer: int
    count: int
    inner: int
    reverse: bool

    def along(self, code: Code, first: Any, lanes: int) -> None:
        x, y = (code.argument(i) for i in range(2))
        values, dtype = Values(code, lanes), self.dtype
        carried = [values.const(-inf, dtype).value, values.const(0.0, dtype).value]
        with code.loop(self.count, carried=carried) as turn:
            place = self.place(code, first, turn)
            given = values.load(x, place, self.apart, dtype)
            known = [given, *(Reg(each, dtype) for each in carried)]
            known.append(values.evaluate(call("exp", _APART), known, dtype))
            found = [given, values.combine("max", given, known[1]), values.evaluate(_SUM, known, dtype)]
            carried[:] = [reg.value for reg in found[1:]]
            values.store(values.evaluate(_LOG, found, dtype), y, place, self.apart)


@described("RunningLogsGrad", "dtype outer count inner reverse")
@dataclass(frozen=True, slots=True)
class RunningLogsGrad(Lines):
    """``k(x, y, dy, dx)``; ``reverse``: of this recurrence, which begins where the sums end."""

    dtype: DType  # f32 or f64
    outer: int
    count: int
    inner: int
    reverse: bool

    def along(self, code: Code, first: Any, lanes: int) -> None:
        pointers, dx = [code.argument(i) for i in range(3)], code.argument(3)
        values, dtype, most = Values(code, lanes), self.dtype, _most(self.dtype)
        x, y, dy, last, h = (argument(i) for i in range(5))
        kept = call("min", call("max", y, -most), most)
        carried = [values.const(inf, dtype).value, values.const(-0.0, dtype).value]  # so that a dy of -0.0 stays
        with code.loop(self.count, carried=carried) as turn:
            place = self.place(code, first, turn)
            known = [values.load(p, place, self.apart, dtype) for p in pointers]
            known[1] = values.evaluate(kept, known, dtype)
            known += [Reg(each, dtype) for each in carried]
            known[4] = values.evaluate(call("exp", y - last) * h + dy, known, dtype)
            carried[:] = [known[1].value, known[4].value]
            found = values.evaluate(call("exp", call("min", x, most) - y) * h, known, dtype)
            values.store(found, dx, place, self.apart)


def _most(dtype: DType) -> float:
    """The greatest finite number of f64 or f32."""
    return (2.0 - 2.0**-52) * 2.0**1023 if dtype is DType.F64 else (2.0 - 2.0**-23) * 2.0**127


@lowers("logcumsumexp", target="cpu")
def logcumsumexp(node: Node) -> list[Launch]:
    if not prod(node.types[0].ints):
        return []
    spec = RunningLogs(node.types[0].dtype, *sizes_of(node), bool_attr(node.attrs, "reverse"))
    return [Launch(spec, node.inputs, node.outputs)]


@lowers("logcumsumexp_grad", target="cpu")
def logcumsumexp_grad(node: Node) -> list[Launch]:
    if not prod(node.types[0].ints):
        return []
    spec = RunningLogsGrad(node.types[0].dtype, *sizes_of(node), not bool_attr(node.attrs, "reverse"))
    return [Launch(spec, node.inputs, node.outputs)]
