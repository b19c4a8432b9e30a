"""Converts the statements of a generated kernel to LLVM IR.

The source consists of assignments, calls of the functions of ``library.py`` on names, numbers and other calls, and
loops ``for j in range(N)``. A name assigned once stands for its value. Other names are thread-local memory, which NVVM
turns into registers.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dslc.compiler.codegen.cuda.llvm.lanes import I1, I64, Lanes, llvm_type
from dslc.compiler.codegen.cuda.llvm.library import writer_of
from dslc.compiler.codegen.cuda.region.source import Source
from dslc.compiler.ir.types import DType


def write_body(source: Source, builder: Any) -> None:
    """Writes the source's function at the position of ``builder``, in an LLVM function whose last arguments are its
    own."""
    *constants, function = ast.parse(source.text).body
    assert isinstance(function, ast.FunctionDef) and function.name == source.name
    body = _Body(source, builder)
    for constant in constants:
        body.define(constant)
    names = [argument.arg for argument in function.args.args]
    values = builder.function.args[-len(names) :] if names else []
    assert len(names) == source.arguments + len(source.numbers)
    numbers = [Lanes(dtype, [value]) for dtype, value in zip(source.numbers, values[source.arguments :])]
    body.known |= zip(names, [*values[: source.arguments], *numbers], strict=True)
    stored = (n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    body.changing = {name for name, times in Counter(stored).items() if times > 1}
    body.write(function.body)


class _Body:
    def __init__(self, source: Source, builder: Any) -> None:
        self.builder = builder
        self.calls = {call.name: call for call in source.calls}
        self.known: dict[str, Any] = {}
        self.changing: set[str] = set()
        self._memory: dict[str, Lanes] = {}  # pointers to the values of names that are assigned more than once

    def define(self, constant: ast.stmt) -> None:
        """Defines a constant: ``c0 = f32("0x1.8p+1")``."""
        match constant:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind), args=[value])):
                dtype, number = DType(kind), ast.literal_eval(value)
                number = float.fromhex(number) if dtype.is_float else number
                self.known[name] = Lanes(dtype, [llvm_type(dtype)(number)])
            case _:
                raise TypeError(f"not a constant of a kernel: {ast.unparse(constant)}")

    def write(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._set(name, self._value(value))
                case ast.Expr(value=value):
                    self._value(value)
                case ast.For(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))]),
                    body=inner,
                ):
                    with self._loop(count) as index:
                        self.known[name] = Lanes(DType.I64, [index])
                        self.write(inner)
                case _:
                    raise TypeError(f"not a statement of a kernel: {ast.unparse(statement)}")

    def _set(self, name: str, value: Any) -> None:
        if name not in self.changing:
            self.known[name] = value
            return
        if name not in self._memory:
            with self.builder.goto_entry_block():
                pointers = [self.builder.alloca(lane.type) for lane in value.values]
            self._memory[name] = Lanes(value.dtype, pointers)
        memory = self._memory[name]
        assert memory.dtype is value.dtype
        for lane, pointer in zip(value.values, memory.values, strict=True):
            self.builder.store(lane, pointer)

    def _value(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Name(id=name) if name in self.changing:
                memory = self._memory[name]
                return Lanes(memory.dtype, [self.builder.load(pointer) for pointer in memory.values])
            case ast.Name(id=name):
                return self.known[name]
            case ast.Constant(value=bool(value)):
                return Lanes(DType.B1, [I1(value)])
            case ast.Constant() | ast.UnaryOp():
                return Lanes(DType.I64, [I64(ast.literal_eval(expression))])
            case ast.Call(func=ast.Name(id=name), args=args):
                return writer_of(self.calls[name])(self.builder, *[self._value(argument) for argument in args])
        raise TypeError(f"not an expression of a kernel: {ast.unparse(expression)}")

    @contextmanager
    def _loop(self, count: int) -> Iterator[Any]:
        """Opens a loop of ``count`` iterations and yields its index."""
        builder = self.builder
        before, function = builder.block, builder.function
        head, inside, behind = (function.append_basic_block(name) for name in ("loop", "turn", "behind"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(I64)
        index.add_incoming(I64(0), before)
        builder.cbranch(builder.icmp_signed("<", index, I64(count)), inside, behind)
        builder.position_at_end(inside)
        yield index
        index.add_incoming(builder.add(index, I64(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(behind)
