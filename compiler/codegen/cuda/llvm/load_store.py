"""Loads and stores of lanes as LLVM IR: 16 bytes at once for vectors, else element by element.

Pointers are to global memory. Elements are addressed by index; ``at`` is the index of the first of ``vector``
neighbours, or several such indices as lanes. bf16 and f16 are converted to f32 on load and rounded on store. A b1 is a
byte, true if not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.llvm.half_floats import from_half, of_words, to_half, words_of
from dslc.compiler.codegen.cuda.llvm.lanes import F32, I1, I8, I16, I32, I64, Lanes, Writer, llvm_type, vector_of
from dslc.compiler.ir.types import DType

_GLOBAL: Final = 1  # the address space
_HALVES: Final = (DType.BF16, DType.F16)


def load(dtype: DType, vector: int) -> Writer:
    """``load(p, at[, mask])``: the ``vector`` lanes of each index of ``at``, in sequence; 0 if the mask is false."""

    def write(builder: Any, p: Any, at: Lanes, mask: Lanes | None = None) -> Lanes:
        raw: list[Any] = []
        for place, wanted in zip(at.values, [None] * at.count if mask is None else mask.spread(at.count)):
            raw += _guarded(builder, wanted, lambda: _load(builder, p, place, dtype, vector))  # noqa: B023
        if dtype in _HALVES and vector > 1:
            return of_words(builder, raw, dtype, vector * at.count)
        return Lanes(dtype.computed, [lane for x in raw for lane in _from_memory(builder, x, dtype)])

    return write


def store(dtype: DType, vector: int) -> Writer:
    """``store(p, at, value[, mask])``; a value of one lane is repeated."""

    def write(builder: Any, p: Any, at: Lanes, value: Lanes, mask: Lanes | None = None) -> None:
        assert value.dtype is dtype.computed, f"{value.dtype} as {dtype}"
        lanes = value.spread(vector * at.count)
        halves = dtype in _HALVES and vector > 1
        words = words_of(builder, value, dtype, vector * at.count) if halves else []
        masks = [None] * at.count if mask is None else mask.spread(at.count)
        for i, (place, wanted) in enumerate(zip(at.values, masks)):
            mine = lanes[i * vector : (i + 1) * vector], words[i * vector // 2 : (i + 1) * vector // 2]
            if wanted is None:
                _store(builder, p, place, dtype, *mine)
                continue
            with builder.if_then(wanted):
                _store(builder, p, place, dtype, *mine)

    return write


def load_bits(vector: int) -> Writer:
    """Like ``load`` for b1 lanes stored as bits, eight per byte; ``at`` counts elements, ``vector`` is 8, 16 or 32."""

    def write(builder: Any, p: Any, at: Lanes, mask: Lanes | None = None) -> Lanes:
        lanes: list[Any] = []
        for place, wanted in zip(at.values, [None] * at.count if mask is None else mask.spread(at.count)):
            address = _bits_address(builder, p, place, vector)
            [word] = _guarded(builder, wanted, lambda: [builder.load(address, align=vector // 8)])  # noqa: B023
            lanes += [builder.trunc(builder.lshr(word, word.type(i)), I1) for i in range(vector)]
        return Lanes(DType.B1, lanes)

    return write


def store_bits(vector: int) -> Writer:
    """Like ``store``, in the format of ``load_bits``."""

    def write(builder: Any, p: Any, at: Lanes, value: Lanes, mask: Lanes | None = None) -> None:
        lanes, type = value.spread(vector * at.count), ir.IntType(vector)
        masks = [None] * at.count if mask is None else mask.spread(at.count)
        for n, (place, wanted) in enumerate(zip(at.values, masks)):
            word = type(0)
            for i, lane in enumerate(lanes[n * vector : (n + 1) * vector]):
                word = builder.or_(word, builder.shl(builder.zext(lane, type), type(i)))
            address = _bits_address(builder, p, place, vector)
            with builder.if_then(wanted) if wanted is not None else nullcontext():
                builder.store(word, address, align=vector // 8)

    return write


def _bits_address(builder: Any, p: Any, at: Any, vector: int) -> Any:
    """The address of the word that contains bits ``at`` to ``at + vector``; ``at`` is a multiple of ``vector``."""
    byte = _address(builder, p, builder.ashr(at, at.type(3)), I8)
    return builder.bitcast(byte, ir.PointerType(ir.IntType(vector), _GLOBAL))


def raise_flag(builder: Any, p: Any, at: Lanes, found: Lanes) -> None:
    """Stores 1 to byte ``at`` if any lane is true."""
    anywhere: Any = I1(0)
    for lane in found.values:
        anywhere = builder.or_(anywhere, lane)
    with builder.if_then(anywhere, likely=False):
        builder.store(I8(1), _address(builder, p, at.value, I8), align=1)


def prefetch(dtype: DType) -> Writer:
    """``prefetch(p, at, mask)``: loads the cache lines at elements ``at`` to the L2 cache."""

    def write(builder: Any, p: Any, at: Lanes, mask: Lanes) -> None:
        asm = ir.InlineAsm(ir.FunctionType(ir.VoidType(), [I64]), "prefetch.global.L2 [$0];", "l", True)
        for place, wanted in zip(at.values, mask.spread(at.count)):
            address = _address(builder, p, place, _memory_type(dtype))
            with builder.if_then(wanted):
                builder.call(asm, [builder.ptrtoint(address, I64)])

    return write


def _guarded(builder: Any, wanted: Any, lanes: Callable[[], list[Any]]) -> list[Any]:
    """The lanes if ``wanted``, else zeros, with a branch around the memory access."""
    if wanted is None:
        return lanes()
    before = builder.block
    with builder.if_then(wanted):
        found = lanes()
        inside = builder.block
    merged = []
    for lane in found:
        phi = builder.phi(lane.type)
        phi.add_incoming(lane, inside)
        phi.add_incoming(lane.type(0), before)
        merged.append(phi)
    return merged


def _address(builder: Any, p: Any, at: Any, type: Any) -> Any:
    """A pointer to element ``at``, in global memory."""
    base = builder.addrspacecast(p, ir.PointerType(I8, _GLOBAL))
    place = at if at.type == I64 else builder.sext(at, I64)
    return builder.gep(builder.bitcast(base, ir.PointerType(type, _GLOBAL)), [place])


def _load(builder: Any, p: Any, at: Any, dtype: DType, vector: int) -> list[Any]:
    """``vector`` neighbours as stored in memory: elements, or words of several small ones."""
    size = dtype.itemsize
    step = min(vector, 16 // size)
    raw: list[Any] = []
    address = _address(builder, p, at, _memory_type(dtype))
    for first in range(0, vector, step):
        here = builder.gep(address, [I64(first)]) if first else address
        raw += _load_words(builder, here, dtype, step)
    return raw


def _load_words(builder: Any, address: Any, dtype: DType, count: int) -> list[Any]:
    """``count`` elements of at most 16 bytes in total, a power of two, aligned to their total size."""
    type, size = _memory_type(dtype), dtype.itemsize
    if count == 1:
        return [builder.load(address, align=size)]
    if size < 4:
        type = _words(size * count)
    else:
        type = ir.VectorType(type, count)
    whole = builder.load(builder.bitcast(address, ir.PointerType(type, _GLOBAL)), align=size * count)
    if not isinstance(type, ir.VectorType):
        return [whole]
    return [builder.extract_element(whole, I32(i)) for i in range(type.count)]


def _store(builder: Any, p: Any, at: Any, dtype: DType, lanes: list[Any], words: list[Any]) -> None:
    size = dtype.itemsize
    step = min(len(lanes), 16 // size)
    address = _address(builder, p, at, _memory_type(dtype))
    for first in range(0, len(lanes), step):
        here = builder.gep(address, [I64(first)]) if first else address
        _store_words(builder, here, dtype, lanes[first : first + step], words[first // 2 : (first + step) // 2])


def _store_words(builder: Any, address: Any, dtype: DType, lanes: list[Any], words: list[Any]) -> None:
    """Stores lanes of at most 16 bytes in total; ``words``: the packed pairs of several bf16 or f16 lanes."""
    size, count = dtype.itemsize, len(lanes)
    if count == 1:
        builder.store(_to_memory(builder, lanes[0], dtype), address, align=size)
        return
    if dtype in _HALVES:
        parts = words
    elif size < 4:
        parts = _packed(builder, [_to_memory(builder, lane, dtype) for lane in lanes], size)
    else:
        parts = lanes
    value = vector_of(builder, parts)
    builder.store(value, builder.bitcast(address, ir.PointerType(value.type, _GLOBAL)), align=size * count)


def _packed(builder: Any, lanes: list[Any], size: int) -> list[Any]:
    """Packs lanes of one or two bytes into words."""
    per = min(4 // size, len(lanes))
    word, parts = ir.IntType(8 * size * per), []
    for first in range(0, len(lanes), per):
        whole = builder.zext(lanes[first], word)
        for k in range(1, per):
            whole = builder.or_(whole, builder.shl(builder.zext(lanes[first + k], word), word(8 * size * k)))
        parts.append(whole)
    return parts


def _words(size: int) -> Any:
    return ir.IntType(8 * size) if size <= 4 else ir.VectorType(I32, size // 4)


def _memory_type(dtype: DType) -> Any:
    if dtype in _HALVES:
        return I16
    return I8 if dtype is DType.B1 else llvm_type(dtype)


def _from_memory(builder: Any, raw: Any, dtype: DType) -> list[Any]:
    """The lanes of an element, or of a word of small ones."""
    if dtype in _HALVES:
        return [from_half(builder, raw, dtype)]
    width = 8 * dtype.itemsize
    if dtype.itemsize < 4 and raw.type.width > width:
        shifted = (builder.lshr(raw, raw.type(k)) if k else raw for k in range(0, raw.type.width, width))
        lanes = [builder.trunc(x, ir.IntType(width)) for x in shifted]
    else:
        lanes = [raw]
    return [builder.icmp_unsigned("!=", x, I8(0)) for x in lanes] if dtype is DType.B1 else lanes


def _to_memory(builder: Any, lane: Any, dtype: DType) -> Any:
    if dtype in _HALVES:
        assert lane.type == F32
        return to_half(builder, lane, dtype)
    return builder.zext(lane, I8) if dtype is DType.B1 else lane
