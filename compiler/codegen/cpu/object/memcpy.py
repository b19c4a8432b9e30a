"""Defines memcpy and memset in an object. LLVM calls them by these names, so the object calls nothing outside of
itself, wherever it is loaded.

Their loops stay loops: LLVM does not replace a loop by a call of memcpy inside a function of that name.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.writer import I8, I32, I64, POINTER

_LANES: Final = 64  # bytes at a time
_VECTOR: Final = ir.VectorType(I8, _LANES)


def add_memory_functions(module: Any) -> None:
    """Defines both functions in a module."""
    _copy(module)
    _set(module)


def _set(module: Any) -> None:
    function = ir.Function(module, ir.FunctionType(POINTER, [POINTER, I32, I64]), "memset")
    target, value, count = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    byte = b.trunc(value, I8)
    nothing, first = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(I32, _LANES), [0] * _LANES)
    lanes = b.shuffle_vector(b.insert_element(nothing, byte, I32(0)), nothing, first)
    whole = b.and_(count, I64(-_LANES))
    _loop(b, function, I64(0), whole, _LANES, lambda at: _store(b, lanes, target, at))
    _loop(b, function, whole, count, 1, lambda at: _store(b, byte, target, at))
    b.ret(target)


def _copy(module: Any) -> None:
    function = ir.Function(module, ir.FunctionType(POINTER, [POINTER, POINTER, I64]), "memcpy")
    target, source, count = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    whole = b.and_(count, I64(-_LANES))
    _loop(b, function, I64(0), whole, _LANES, lambda at: _store(b, _load(b, _VECTOR, source, at), target, at))
    _loop(b, function, whole, count, 1, lambda at: _store(b, _load(b, I8, source, at), target, at))
    b.ret(target)


def _loop(b: Any, function: Any, start: Any, stop: Any, step: int, body: Any) -> None:
    before = b.block
    head, inside, done = (function.append_basic_block(n) for n in ("head", "loop", "done"))
    b.branch(head)
    b.position_at_end(head)
    at = b.phi(I64)
    at.add_incoming(start, before)
    b.cbranch(b.icmp_unsigned("<", at, stop), inside, done)
    b.position_at_end(inside)
    body(at)
    at.add_incoming(b.add(at, I64(step)), b.block)
    b.branch(head)
    b.position_at_end(done)


def _load(b: Any, type: Any, pointer: Any, at: Any) -> Any:
    return b.load(b.gep(pointer, [at], source_etype=I8), align=1, typ=type)


def _store(b: Any, value: Any, pointer: Any, at: Any) -> None:
    b.store(value, b.gep(pointer, [at], source_etype=I8), align=1)
