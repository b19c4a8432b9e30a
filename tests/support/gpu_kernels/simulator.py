"""Runs the text of a kernel with numpy: all threads of a few blocks at once, statement by statement.

A value is an array [blocks, threads, lanes]. The text's control flow is the same for all threads, so a statement runs
for all of them before the next, and shuffles and sums over a block are sums over axes of the arrays, in the order that
the GPU adds. Memory is numpy arrays; an access outside of one is an error, and so is a read of a value that another
thread has written in the same launch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dslc.compiler.codegen.cuda.region.source import Call, Source
from dslc.compiler.codegen.launch import ScalarArgs
from dslc.compiler.codegen.region.queries import identity
from dslc.compiler.ir import scalar
from dslc.compiler.ir.special import erf, larger, lesser
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.random.philox import halves
from dslc.runtime.artifact.dtypes import name_of

_NUMPY = {
    DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16, DType.BF16: np.uint16, DType.I64: np.int64,
    DType.I32: np.int32, DType.I16: np.int16, DType.I8: np.int8, DType.U64: np.uint64, DType.U32: np.uint32,
    DType.U16: np.uint16, DType.U8: np.uint8, DType.B1: np.bool_,
}  # fmt: skip
_COMBINE = {"sum": np.add, "prod": np.multiply, "max": larger, "min": lesser}
_BLOCKS = 64  # at once
#: Constructors of a text's constants.
_CONSTANTS = {
    "f32": lambda text: np.float32(float.fromhex(text)), "f64": lambda text: np.float64(float.fromhex(text)),
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8,
}  # fmt: skip


def numpy_type(dtype: DType) -> Any:
    """The dtype of arrays in memory; bf16 is its bits."""
    return np.dtype(_NUMPY[dtype])


def bf16_bits(x: np.ndarray) -> np.ndarray:
    """The nearest bf16 of f32, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def bf16_values(bits: np.ndarray) -> np.ndarray:
    """f32 of the bits of bf16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def memory(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Values as they lie in memory."""
    if dtype is DType.BF16:
        return bf16_bits(x)
    with np.errstate(over="ignore"):
        return np.asarray(x, numpy_type(dtype))


def values(x: np.ndarray, dtype: DType) -> np.ndarray:
    """What lies in memory as values, bf16 and f16 as f32."""
    if dtype is DType.BF16:
        return bf16_values(x)
    return x.astype(np.float32) if dtype is DType.F16 else x


def held(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The nearest values that the dtype has."""
    return np.asarray(values(memory(x, dtype), dtype)).reshape(np.shape(x))


def run(source: Source, grid: int, arguments: Sequence[np.ndarray], given: ScalarArgs = ()) -> None:
    """Launches ``grid`` blocks on arrays: of one dimension, in the order of the arguments; ``given``: by value."""
    assert len(arguments) == source.arguments and [kind for kind, _ in given] == [d.value for d in source.numbers]
    machine = _Machine(source, arguments)
    names = {**_CONSTANTS, **{c.name: machine.function(c) for c in source.calls}, "__builtins__": {"range": range}}
    check_names(source)
    exec(source.text, names)  # noqa: S102 - the text is of the compiler's templates
    kernel = names[source.name]
    for first in range(0, grid, _BLOCKS):
        machine.blocks = np.arange(first, min(grid, first + _BLOCKS))
        with np.errstate(all="ignore"):
            kernel(*range(len(arguments)), *(value for _, value in given))


def check_names(source: Source) -> None:
    """A value made within a loop is known there alone: the compiler has it so, if not Python."""
    *_, function = ast.parse(source.text).body
    assert isinstance(function, ast.FunctionDef)
    _check_names(function.body, set())


def _check_names(statements: Sequence[ast.stmt], known: set[str]) -> None:
    for statement in statements:
        if isinstance(statement, ast.For):
            assert isinstance(statement.target, ast.Name)
            _check_names(statement.body, known | {statement.target.id})
            continue
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        missing = {name for name in read if name[0] == "t" and name[1:].isdecimal()} - known
        assert not missing, f"{missing} used outside of a loop: {ast.unparse(statement)}"
        if isinstance(statement, ast.Assign):
            known = known | {t.id for t in statement.targets if isinstance(t, ast.Name)}


class _Machine:
    def __init__(self, source: Source, arguments: Sequence[np.ndarray]) -> None:
        self.threads, self.memory = source.threads, arguments
        self.blocks = np.arange(0)
        self.own: dict[tuple[Any, ...], np.ndarray] = {}  # what each thread keeps in shared memory

    def function(self, call: Call) -> Callable[..., Any]:
        if call.head in scalar.FUNCTIONS:
            return lambda *xs: _scalar(call.head, *xs)
        if call.head in FAST:
            return lambda *xs: fast(call.head, *xs)
        return lambda *xs: getattr(self, call.head)(*call.parameters, *xs)

    # Where a thread is, and indices.

    def thread(self) -> np.ndarray:
        return np.arange(self.threads, dtype=np.int64)[None, :, None]

    def block(self) -> np.ndarray:
        return self.blocks.astype(np.int64)[:, None, None]

    def plus(self, x: Any, y: Any) -> Any:
        return x + y

    def times(self, x: Any, y: int) -> Any:
        return x * y

    def quotient(self, x: Any, y: int) -> Any:
        return x // y

    def remainder(self, x: Any, y: int) -> Any:
        return x % y

    def divided(self, x: Any, magic: Any, shift: Any) -> Any:
        assert np.all((x >= 0) & (x < 1 << 31))
        return 2 * x * (magic % (1 << 32)) >> 32 >> shift

    def rest(self, x: Any, quotient: Any, size: Any) -> Any:
        return x - quotient * size

    def below(self, x: Any, y: int) -> Any:
        return x < y

    def ramp(self, count: int, step: int, x: Any) -> np.ndarray:
        x = np.atleast_3d(x) if np.ndim(x) == 3 else np.full((1, 1, 1), x)
        return (x[..., None] + np.arange(count) * step).reshape(*x.shape[:-1], -1)

    # Lanes.

    def to(self, dtype: DType, x: Any) -> Any:
        x = np.asarray(x)
        if dtype is DType.B1:
            return x != 0
        if dtype.is_int and np.issubdtype(x.dtype, np.floating):
            info = np.iinfo(_NUMPY[dtype])
            top = np.nextafter(float(info.max) + 1, 0) if dtype.itemsize == 8 else float(info.max)
            whole = np.trunc(np.clip(np.where(np.isnan(x), 0, x).astype(np.float64), float(info.min), top))
            return np.where(x > top, info.max, whole.astype(_NUMPY[dtype])).astype(_NUMPY[dtype])
        return x.astype(_NUMPY[dtype])

    def rounded(self, dtype: DType, x: np.ndarray) -> np.ndarray:
        assert x.dtype in (np.float32, np.float64)
        if dtype is DType.F16:
            return x.astype(np.float16).astype(np.float32)
        return bf16_values(bf16_bits(np.asarray(x, np.float32)))

    def half(self, function: str, dtype: DType, x: Any, y: Any) -> np.ndarray:
        for given in (np.atleast_1d(x), np.atleast_1d(y)):
            assert np.array_equal(self.rounded(dtype, given), given, equal_nan=True), f"no {dtype}"
        return self.rounded(dtype, np.asarray(_scalar(function, x, y), np.float32))

    # Groups of arguments.

    def placed(self, *given: Any) -> np.ndarray:
        *counts, x = given
        groups = np.repeat(np.arange(len(counts)), counts)
        starts = np.concatenate([[0], np.cumsum(counts)])[: len(counts)]
        group = groups[x]
        return np.concatenate([group, x - starts[group]], axis=-1)

    def chosen(self, *given: Any) -> np.ndarray:
        *numbers, x = given
        return np.array(numbers)[x]

    def pointer(self, first: int, step: int, count: int, total: int, x: np.ndarray) -> np.ndarray:
        assert first + (count - 1) * step < total == len(self.memory) and np.all(x < count)
        return first + np.asarray(x) * step

    def bits(
        self, count: int, key: int, row_elements: int, aligned: int, seed: Any, step: Any, row: Any, first: Any
    ) -> np.ndarray:
        assert np.all(first % aligned == 0)
        seed, step, start = (int(np.ravel(x)[0]) for x in (seed, step, row * row_elements))
        places = self.ramp(count, 1, first)
        return halves(start, int(places.max()) + 1, key=key, seed=seed, step=step)[places].astype(np.int64)

    def fill(self, dtype: DType, count: int, x: Any) -> np.ndarray:
        return np.full((1, 1, count), x, np.int64 if dtype is DType.I32 else _NUMPY[dtype])

    def each(self, count: int, x: np.ndarray) -> np.ndarray:
        return np.repeat(x, count, axis=-1)

    def tile(self, times: int, count: int, x: np.ndarray) -> np.ndarray:
        return np.concatenate([_spread(x, count)] * times, axis=-1)

    def joined(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = self._everywhere(x), self._everywhere(y)
        return np.concatenate([x, y], axis=-1)

    def part(self, number: int, x: np.ndarray) -> np.ndarray:
        return np.split(x, 2, axis=-1)[number]

    def added(self, how: str, groups: int, count: int, total: np.ndarray, x: np.ndarray) -> np.ndarray:
        x = _spread(np.asarray(x), groups * count)
        for g in range(groups):
            total = _COMBINE[how](total, x[..., g * count : (g + 1) * count])
        return total

    def fold(self, how: str, groups: int, count: int, x: np.ndarray) -> np.ndarray:
        x = _spread(np.asarray(x), groups * count)
        return _tree(how, [x[..., i * count : (i + 1) * count] for i in range(groups)])

    # Over threads.

    def barrier(self) -> None:
        """No effect: all threads run a statement before the next one."""

    def group(self, how: str, width: int, x: np.ndarray) -> np.ndarray:
        x = self._everywhere(x)
        shape = x.shape
        x = x.reshape(shape[0], -1, width, shape[-1])
        distance = width // 2
        while distance:
            x = _COMBINE[how](x, x[:, :, np.arange(width) ^ distance])
            distance //= 2
        return x.reshape(shape)

    def running(self, how: str, width: int, count: int, exclusive: int, x: np.ndarray) -> np.ndarray:
        x = self._everywhere(_spread(np.asarray(x), count))
        shape = x.shape
        row = x.reshape(shape[0], -1, width * count)
        found = _COMBINE[how].accumulate(row, axis=-1)
        if exclusive:
            nothing = np.full_like(found[..., :1], identity(how, DType(name_of(x.dtype))))
            found = np.concatenate([nothing, found[..., :-1]], axis=-1)
        return found.reshape(shape)

    def turned(self, tall: int, wide: int, vector: int, threads: int, slot: int, x: np.ndarray) -> np.ndarray:
        x = self._everywhere(x)
        blocks, count = len(x), tall * wide // vector
        in_order = x.reshape(blocks, threads, -1, vector).transpose(0, 2, 1, 3).reshape(blocks, -1, vector)
        lines = in_order[:, :count].reshape(blocks, wide, tall).transpose(0, 2, 1).reshape(blocks, count, vector)
        turned = np.concatenate([lines, in_order[:, count:]], axis=1).reshape(blocks, -1, threads, vector)
        return turned.transpose(0, 2, 1, 3).reshape(x.shape)

    def warps(self, how: str, count: int, slot: int, turns: int, x: np.ndarray, turn: Any = 0) -> np.ndarray:
        assert np.all((np.asarray(turn) >= 0) & (np.asarray(turn) < turns))
        x = self._everywhere(x)
        each = x.reshape(len(x), count, 32, x.shape[-1])
        assert np.array_equal(each, np.broadcast_to(each[:, :, :1], each.shape), equal_nan=True)
        width = 1 << (count - 1).bit_length()
        nothing = np.full((len(x), width - count, x.shape[-1]), identity(how, DType(name_of(x.dtype))), x.dtype)
        found = np.concatenate([each[:, :, 0], nothing], axis=1)
        distance = width // 2
        while distance:
            found = _COMBINE[how](found, found[:, np.arange(width) ^ distance])
            distance //= 2
        return np.array(np.broadcast_to(found[:, :1], x.shape))

    def across(self, how: str, parts: int, width: int, slot: int, everywhere: int, x: np.ndarray) -> np.ndarray:
        x = self._everywhere(x)
        each = x.reshape(x.shape[0], parts, width, x.shape[-1])
        while each.shape[1] > 1:
            each = _COMBINE[how](each[:, ::2], each[:, 1::2])
        return np.concatenate([each[:, 0]] * parts if everywhere else [each[:, 0], x[:, width:]], axis=1)

    def _everywhere(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (len(self.blocks), self.threads, np.shape(x)[-1]))

    # Memory.

    def load(self, dtype: DType, vector: int, p: Any, at: Any, mask: Any = None) -> np.ndarray:
        if isinstance(p, np.ndarray):
            found = held(np.zeros(1), dtype)
            for n in np.unique(p):
                mine = self._of(p, n, mask)
                found = np.where(self._places(vector, at, mine)[1], self.load(dtype, vector, int(n), at, mine), found)
            return found
        places, there = self._places(vector, at, mask)
        array = self.memory[p]
        assert array.dtype == numpy_type(dtype)
        assert np.all((places >= 0) & (places < len(array)) | ~there), "a load outside of its array"
        _check_aligned(dtype, vector, at, there)
        found = np.where(there, array[np.where(there, places, 0)] if len(array) else 0, array.dtype.type(0))
        return values(found, dtype)

    def _of(self, p: np.ndarray, number: Any, mask: Any) -> np.ndarray:
        """Where a pointer is this one."""
        return (p == number) & (True if mask is None else np.asarray(mask))

    def load_if(self, dtype: DType, vector: int, p: Any, at: Any, mask: Any) -> np.ndarray:
        return self.load(dtype, vector, p, at, mask)

    def store(self, dtype: DType, vector: int, p: Any, at: Any, value: Any, mask: Any = None) -> None:
        if isinstance(p, np.ndarray):
            for n in np.unique(p):
                self.store(dtype, vector, int(n), at, value, self._of(p, n, mask))
            return
        places, there = self._places(vector, at, mask)
        array = self.memory[p]
        assert array.dtype == numpy_type(dtype)
        assert np.all((places >= 0) & (places < len(array)) | ~there), "a store outside of its array"
        _check_aligned(dtype, vector, at, there)
        value = memory(np.asarray(value), dtype)
        shape = (len(self.blocks), self.threads, places.shape[-1])
        places, value, there = (np.broadcast_to(x, shape) for x in (places, value, there))
        places, value = places[there], value[there]
        assert len(np.unique(places)) == len(places), "two threads write one element"
        array[places] = value

    def store_if(self, dtype: DType, vector: int, p: Any, at: Any, value: Any, mask: Any) -> None:
        self.store(dtype, vector, p, at, value, mask)

    def load_bits(self, vector: int, p: int, at: Any, mask: Any = None) -> np.ndarray:
        places, there = self._places(vector, at, mask)
        assert np.all(np.asarray(at) % vector == 0), "bits that do not begin a word"
        array = self.memory[p].view(np.uint8)
        assert np.all((places >= 0) & (places < 8 * len(array)) | ~there), "a load outside of its array"
        word = array[np.where(there, places // 8, 0)] if len(array) else np.uint8(0)
        return ((word >> (places % 8).astype(np.uint8)) & 1 & there) != 0

    def load_bits_if(self, vector: int, p: int, at: Any, mask: Any) -> np.ndarray:
        return self.load_bits(vector, p, at, mask)

    def store_bits(self, vector: int, p: int, at: Any, value: Any, mask: Any = None) -> None:
        places, there = self._places(vector, at, mask)
        assert np.all(np.asarray(at) % vector == 0), "bits that do not begin a word"
        array = self.memory[p].view(np.uint8)
        assert np.all((places >= 0) & (places < 8 * len(array)) | ~there), "a store outside of its array"
        shape = (len(self.blocks), self.threads, places.shape[-1])
        places, value, there = (np.broadcast_to(x, shape).reshape(-1, 8) for x in (places, value, there))
        written = places[there[:, 0], 0] // 8
        assert len(np.unique(written)) == len(written), "two threads write one element"
        array[written] = np.packbits(value[there[:, 0]], axis=-1, bitorder="little")[:, 0]

    def store_bits_if(self, vector: int, p: int, at: Any, value: Any, mask: Any) -> None:
        self.store_bits(vector, p, at, value, mask)

    def keep(self, dtype: DType, count: int, threads: int, first: int, x: np.ndarray) -> None:
        assert threads == self.threads and x.shape[-1] in (1, count)
        self.own[dtype, count, first] = self._everywhere(_spread(x, count)).copy()

    def kept(self, dtype: DType, count: int, threads: int, first: int) -> np.ndarray:
        return self.own[dtype, count, first]

    def prefetch(self, dtype: DType, p: int, at: Any, mask: Any) -> None:
        self.load(dtype, 16 // dtype.itemsize, p, at, mask)  # not outside of its array

    def raise_flag(self, p: int, at: Any, found: Any) -> None:
        places, raised = np.broadcast_arrays(at, found)
        self.memory[p][np.unique(places[raised])] = True

    def _places(self, vector: int, at: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        places = self.ramp(vector, 1, at)
        mask = np.asarray(True).reshape(1, 1, 1) if mask is None else np.asarray(mask)
        there = self.each(vector, _spread(mask, places.shape[-1] // vector))
        return places, np.broadcast_to(there, np.broadcast_shapes(there.shape, places.shape))


def _check_aligned(dtype: DType, vector: int, at: Any, there: np.ndarray) -> None:
    if vector > 1:
        step = min(vector, 16 // dtype.itemsize)
        first = np.broadcast_to(np.repeat(np.asarray(at), vector, axis=-1), there.shape)
        assert not np.any((first % step != 0) & there), "a vector at an odd place"


def _spread(x: np.ndarray, count: int) -> np.ndarray:
    assert np.ndim(x) == 0 or x.shape[-1] in (1, count)
    x = np.asarray(x)
    return np.broadcast_to(x, (*(x.shape[:-1] or (1, 1)), count))


def _tree(how: str, parts: list[np.ndarray]) -> np.ndarray:
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        parts = [_COMBINE[how](parts[i], parts[i + half]) if i + half < len(parts) else parts[i] for i in range(half)]
    return parts[0]


#: Functions for results of 16 bits in f64, and the most that the instructions err by, relatively (the PTX ISA's words).
FAST: dict[str, tuple[Callable[..., Any], float]] = {
    "fma": (lambda x, y, z: x * y + z, 0.0),
    "fast_exp2": (np.exp2, 2.0**-22),
    "flushed_exp2": (lambda x: np.where(x < -126, 0, np.exp2(x)), 2.0**-22),
    "fast_inverse": (lambda x: np.where(np.abs(x) > 2.0**126, 0, 1 / x), 2.0**-23),
    "fast_div": (np.divide, 2.0**-22),
    "fast_sqrt": (np.sqrt, 2.0**-23),
    "fast_inverse_root": (lambda x: 1 / np.sqrt(x), 2.0**-22.9),
    "fast_tanh": (np.tanh, 2.0**-11),
}


def fast(name: str, *xs: Any) -> np.ndarray:
    """As the hardware at its worst: up to its bound too large or too small, as the bits of the arguments have it."""
    function, bound = FAST[name]
    xs = tuple(np.asarray(x) for x in np.broadcast_arrays(*xs))
    assert all(x.dtype == np.float32 for x in xs)
    mixed = sum(x.view(np.uint32).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15 + 2 * n) for n, x in enumerate(xs))
    sign = np.where(mixed >> np.uint64(40) & np.uint64(1), 1.0, -1.0)
    with np.errstate(all="ignore"):
        exact = function(*(x.astype(np.float64) for x in xs))
        return np.asarray(exact * (1 + bound * sign), np.float32)


def _scalar(name: str, *xs: Any) -> Any:
    match name:
        case "select":
            return np.where(*xs)
        case "erf":
            return erf(np.asarray(xs[0]))
    found = scalar.evaluate(
        scalar.call(name, *(scalar.argument(i) for i in range(len(xs)))), [np.asarray(x) for x in xs]
    )
    kept = name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")
    assert kept or found.dtype == np.asarray(xs[-1]).dtype, (
        f"{name} of {[np.asarray(x).dtype for x in xs]} is {found.dtype}"
    )
    return found
