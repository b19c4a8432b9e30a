"""Block and warp collectives as LLVM IR: reductions, scans, transposes.

All threads of a block execute the same statements, so all take part in shuffles and barriers. Every reduction is a tree
whose shape depends only on its parameters; all threads get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.llvm.lanes import I8, I32, I64, Lanes, Writer, llvm_type
from dslc.compiler.codegen.cuda.llvm.math import combine, device
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.ir.types import DType

_SHARED: Final = 3  # the address space
_EVERY: Final = I32(-1)  # all threads of a warp


def barrier(builder: Any) -> None:
    """No thread of the block continues before all have arrived."""
    device(builder, "llvm.nvvm.barrier0", ir.VoidType())


def group(how: str, width: int) -> Writer:
    """Reduces each lane over groups of ``width`` neighbouring threads of a warp, by butterflies."""
    return lambda builder, x: Lanes(x.dtype, _butterflies(builder, how, x.dtype, x.values, width // 2))


def running(how: str, width: int, count: int, exclusive: int) -> Writer:
    """Scans ``count`` lanes: combines each with all before it in its thread and in the preceding threads of a group of
    ``width``. ``exclusive``: only with those before it."""

    def write(builder: Any, x: Lanes) -> Lanes:
        dtype = x.dtype
        lanes = x.spread(count)
        for i in range(1, count):
            lanes = [*lanes[:i], combine(builder, how, dtype, lanes[i - 1], lanes[i]), *lanes[i + 1 :]]
        nothing = lanes[0].type(identity(how, dtype))
        member = builder.urem(device(builder, "llvm.nvvm.read.ptx.sreg.tid.x", I32), I32(width))
        total, distance = lanes[-1], 1
        while distance < width:  # Hillis and Steele
            other = _shuffled(builder, total, distance, up=True)
            reached = builder.icmp_unsigned(">=", member, I32(distance))
            total = combine(builder, how, dtype, builder.select(reached, other, nothing), total)
            distance *= 2
        if width > 1:
            first = builder.icmp_unsigned("==", member, I32(0))
            before = builder.select(first, nothing, _shuffled(builder, total, 1, up=True))
        else:
            before = nothing
        if exclusive:
            lanes = [nothing, *lanes[:-1]]
        return Lanes(x.dtype, [combine(builder, how, dtype, before, lane) for lane in lanes])

    return write


def across(how: str, parts: int, width: int, slot: int, everywhere: int) -> Writer:
    """Reduces each lane over the threads t, t + width, ... of a block of ``parts * width`` threads, a multiple of a
    warp.

    Neighbouring parts are combined in pairs, then the pairs, and so on, for any width: within a warp by butterflies,
    then through shared memory. ``slot`` names the memory; no two calls of a kernel share one. If not ``everywhere``,
    only the first ``width`` threads read the shared memory; the results of the others are undefined.
    """
    assert parts * width % WARP == 0 and (WARP % width == 0 or width % WARP == 0)

    def write(builder: Any, x: Lanes) -> Lanes:
        dtype, count, lanes, stretch = x.dtype, x.count, x.values, max(width, WARP)
        type = llvm_type(dtype) if dtype is not DType.B1 else I8
        distance, left = width, parts * width // stretch
        while distance < WARP:
            others = [_shuffled(builder, lane, distance) for lane in lanes]
            lanes = [combine(builder, how, dtype, a, b) for a, b in zip(lanes, others)]
            distance *= 2
        if left == 1:
            return Lanes(x.dtype, lanes)
        memory = _shared(builder, f"shared_{slot}", ir.ArrayType(type, count * left * width))
        here = device(builder, "llvm.nvvm.read.ptx.sreg.tid.x", I32)
        column, group = builder.and_(here, I32(width - 1)), builder.lshr(here, I32(stretch.bit_length() - 1))

        def at(i: int, group: Any) -> Any:
            line = builder.mul(builder.add(group, I32(i * left)), I32(width))
            return builder.gep(memory, [I32(0), builder.add(line, column)])

        with builder.if_then(builder.icmp_unsigned("<", builder.and_(here, I32(WARP - 1)), I32(width))):
            for i, lane in enumerate(lanes):
                builder.store(lane, at(i, group))
        device(builder, "llvm.nvvm.barrier0", ir.VoidType())

        def whole(i: int) -> Any:
            partial = [builder.load(at(i, I32(g))) for g in range(left)]
            while len(partial) > 1:
                partial = [combine(builder, how, dtype, a, b) for a, b in zip(partial[::2], partial[1::2])]
            return partial[0]

        if everywhere:
            return Lanes(x.dtype, [whole(i) for i in range(count)])
        before = builder.block
        with builder.if_then(builder.icmp_unsigned("<", here, I32(width))):
            totals = [whole(i) for i in range(count)]
            inside = builder.block
        found = []
        for lane, total in zip(lanes, totals):
            found.append(builder.phi(total.type))
            found[-1].add_incoming(total, inside)
            found[-1].add_incoming(lane, before)
        return Lanes(x.dtype, found)

    return write


def warps(how: str, count: int, slot: int, turns: int) -> Writer:
    """Reduces each lane, equal in all threads of a warp, over the ``count`` warps of a block by butterflies.

    ``slot`` as in ``across``. In a loop it has ``turns`` buffers, and ``turn`` selects one. With two of them and a call
    in every iteration, no thread writes a buffer that another still reads from the iteration before, so no barrier is
    needed.
    """

    def write(builder: Any, x: Lanes, turn: Lanes | None = None) -> Lanes:
        dtype, lanes_of = x.dtype, x.count
        lanes = x.values
        memory = _shared(builder, f"shared_{slot}", ir.ArrayType(llvm_type(dtype), turns * lanes_of * count))
        here = device(builder, "llvm.nvvm.read.ptx.sreg.tid.x", I32)
        lane, warp = builder.and_(here, I32(31)), builder.lshr(here, I32(5))
        base = I32(0)
        if turn is not None:
            [number] = turn.values
            narrow = number if number.type == I32 else builder.trunc(number, I32)
            base = builder.mul(narrow, I32(lanes_of * count))

        def at(i: int, member: Any) -> Any:
            return builder.gep(memory, [I32(0), builder.add(builder.add(base, member), I32(i * count))])

        with builder.if_then(builder.icmp_unsigned("==", lane, I32(0))):
            for i, value in enumerate(lanes):
                builder.store(value, at(i, warp))
        device(builder, "llvm.nvvm.barrier0", ir.VoidType())
        width = 1 << (count - 1).bit_length()
        member = builder.and_(lane, I32(width - 1))
        there = builder.icmp_unsigned("<", member, I32(count))
        found, nothing = [], lanes[0].type(identity(how, dtype))
        for i in range(lanes_of):
            value = builder.load(at(i, builder.select(there, member, I32(0))))
            found.append(value if width == count else builder.select(there, value, nothing))
        return Lanes(x.dtype, _butterflies(builder, how, dtype, found, width // 2))

    return write


def turned(tall: int, wide: int, vector: int, threads: int, slot: int) -> Writer:
    """Transposes a tile: from ``wide`` lines of ``tall`` elements to ``tall`` lines of ``wide``.

    Vector q = thread, thread + threads, ... of either form is ``vector`` neighbours of line q // (its length / vector).
    Vectors beyond the tile have any values. Lines in shared memory have an odd length, to reduce bank conflicts.
    """

    def write(builder: Any, x: Lanes) -> Lanes:
        dtype, pitch, vectors = x.dtype, tall | 1, tall * wide // vector
        memory_type = I8 if dtype is DType.B1 else llvm_type(dtype)
        lanes = x.values
        held = len(lanes) // vector
        lines = -(-held * threads * vector // tall)  # also of the vectors beyond the tile
        memory = _shared(builder, f"shared_{slot}", ir.ArrayType(memory_type, lines * pitch))
        thread = device(builder, "llvm.nvvm.read.ptx.sreg.tid.x", I32)
        numbers = [builder.add(thread, I32(number * threads)) for number in range(held)]

        def places(length: int) -> list[tuple[Any, Any]]:
            each = I32(length // vector)
            return [(builder.udiv(q, each), builder.mul(builder.urem(q, each), I32(vector))) for q in numbers]

        def at(line: Any, place: Any) -> Any:
            return builder.gep(memory, [I32(0), builder.add(builder.mul(line, I32(pitch)), place)])

        given = places(tall)
        for n, lane in enumerate(lanes):
            line, place = given[n // vector]
            stored = builder.zext(lane, I8) if dtype is DType.B1 else lane
            builder.store(stored, at(line, builder.add(place, I32(n % vector))))
        device(builder, "llvm.nvvm.barrier0", ir.VoidType())
        wanted = places(wide)
        if vectors % threads:  # those beyond the tile read an element of it
            there = [builder.icmp_unsigned("<", q, I32(vectors)) for q in numbers]
            wanted = [
                (builder.select(known, line, I32(0)), builder.select(known, place, I32(0)))
                for known, (line, place) in zip(there, wanted)
            ]
        found = []
        for n in range(len(lanes)):
            line, place = wanted[n // vector]
            lane = builder.load(at(builder.add(place, I32(n % vector)), line))
            found.append(builder.icmp_unsigned("!=", lane, I8(0)) if dtype is DType.B1 else lane)
        return Lanes(x.dtype, found)

    return write


def _shared(builder: Any, name: str, type: Any) -> Any:
    """Allocates shared memory of the block."""
    memory = ir.GlobalVariable(builder.module, type, name, addrspace=_SHARED)
    memory.linkage = "internal"
    memory.initializer = ir.Constant(type, ir.Undefined)
    memory.align = 16
    return memory


def _butterflies(builder: Any, how: str, dtype: DType, lanes: Sequence[Any], first: int, last: int = 1) -> list[Any]:
    """Each lane combined with those of the threads whose indices differ in the bits ``first`` down to ``last``."""
    found, distance = list(lanes), first
    while distance >= last:
        others = [_shuffled(builder, lane, distance) for lane in found]
        found = [combine(builder, how, dtype, a, b) for a, b in zip(found, others)]
        distance //= 2
    return found


def _shuffled(builder: Any, lane: Any, distance: int, up: bool = False) -> Any:
    """The lane of the thread whose index differs in the bit ``distance``, or is less by it (``up``)."""
    type = lane.type
    bits = type.width if isinstance(type, ir.IntType) else 32 if isinstance(type, ir.FloatType) else 64
    raw = lane if isinstance(type, ir.IntType) else builder.bitcast(lane, ir.IntType(bits))
    if bits == 64:
        halves = [builder.trunc(raw, I32), builder.trunc(builder.lshr(raw, I64(32)), I32)]
        low, high = (builder.zext(_exchanged(builder, half, distance, up), I64) for half in halves)
        raw = builder.or_(low, builder.shl(high, I64(32)))
    elif bits == 32:
        raw = _exchanged(builder, raw, distance, up)
    else:
        raw = builder.trunc(_exchanged(builder, builder.zext(raw, I32), distance, up), type)
    return raw if isinstance(type, ir.IntType) else builder.bitcast(raw, type)


def _exchanged(builder: Any, word: Any, distance: int, up: bool) -> Any:
    name, bound = ("up", 0) if up else ("bfly", 31)
    return device(builder, f"llvm.nvvm.shfl.sync.{name}.i32", I32, _EVERY, word, I32(distance), I32(bound))
