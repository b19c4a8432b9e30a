"""Runs the PTX of a kernel, thread by thread: what the compiler made of a text, without a GPU.

Registers hold bits. Of PTX it knows what simple kernels are made of; an instruction beyond that is an AttributeError.
Memory is numpy arrays; an access outside of one, or at an odd place, is an error. Threads of a block run from one
barrier or exchange to the next, which all of them must come to. An asynchronous copy arrives when its thread waits for
it and no earlier.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import simulator

#: Gives what the other threads of the block are to see, and gets what each of them has given.
_Running: TypeAlias = Generator[Any, list[Any], None]

_WIDTH = re.compile(r"(\d+)(?:x2)?$")
_STATEMENT = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);$")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def run(
    ptx: str,
    grid: int | tuple[int, int, int],
    threads: int,
    arguments: Sequence[np.ndarray],
    values: Sequence[int] = (),
    shared: int = 0,
) -> None:
    """Launches ``grid`` blocks of ``threads`` on arrays, in the order of the kernel's arguments; then ``values``.
    ``shared``: bytes of the shared memory whose size the launch says."""
    program = _Program(ptx, arguments, values, shared)
    for block in np.ndindex(grid if isinstance(grid, tuple) else (grid, 1, 1)):
        program.clear()
        _run_block([_Thread(program, block, thread).run() for thread in range(threads)])


def _run_block(threads: list[_Running]) -> None:
    """Each thread to its end, with what others give it."""
    given: list[Any] = []
    first = True
    while threads:
        asked: list[Any] = []
        for thread in threads:
            with suppress(StopIteration):
                asked.append(next(thread) if first else thread.send(given))
        assert not asked or len(asked) == len(threads), "some threads wait and others are done"
        given, threads, first = asked, threads if asked else [], False


def _width(type: str) -> int:
    if type in ("pred", "bf16x2", "f16x2"):
        return 32
    found = _WIDTH.search(type)
    assert found is not None, type
    return int(found[1])


class _Program:
    """Statements, labels, and memory: array number n lies from n << 40 on, one that a block shares from n << 24."""

    def __init__(self, ptx: str, arguments: Sequence[np.ndarray], values: Sequence[int], shared: int) -> None:
        self.memory = [np.zeros(0, np.uint8)]
        self.symbols: dict[str, int] = {}
        self.shared: list[np.ndarray] = []
        for name, size in re.findall(r"\.shared \.align \d+ \.b8 (\w+)\[(\d*)\];", ptx):
            self.symbols[name] = len(self.memory) << 24
            self.shared.append(np.zeros(int(size or shared), np.uint8))
            self.memory.append(self.shared[-1])
        first = len(self.memory)
        self.memory += [a.view(np.uint8) for a in arguments]
        for name, size, numbers in re.findall(r"\.const \.align \d+ \.b8 (\w+)\[(\d+)\] = \{([^}]*)\}", ptx):
            self.symbols[name] = len(self.memory) << 40
            table = np.zeros(int(size), np.uint8)
            given = [int(n) for n in numbers.split(",")]
            table[: len(given)] = given
            self.memory.append(table)
        for number in range(len(arguments)):
            self.symbols[f"param_{number}"] = (first + number) << 40
        for place, value in enumerate(values, len(arguments)):
            self.symbols[f"param_{place}"] = value % (1 << 64)
        body = ptx[ptx.index("{\n", ptx.index(".entry")) :]
        self.statements: list[tuple[str, str, list[str], list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in map(str.strip, body.split("\n")):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.statements)
                continue
            found = _STATEMENT.match(line)
            if found is not None:
                operands = [x.strip() for x in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", found[4])]
                self.statements.append((found[1] or "", found[2] or "", found[3].split("."), operands))

    def clear(self) -> None:
        """A new block's shared memory, in which nothing is known."""
        for memory in self.shared:
            memory[:] = 0xFF

    def place(self, address: int, size: int) -> np.ndarray:
        bits = 40 if address >> 40 else 24
        memory, offset = self.memory[address >> bits], address & ((1 << bits) - 1)
        assert offset % size == 0 and offset + size <= len(memory), "an access outside of its array, or at an odd place"
        return memory[offset : offset + size]


class _Thread:
    def __init__(self, program: _Program, block: tuple[int, ...], thread: int) -> None:
        self.program, self.registers = program, dict[str, int]()
        self.special = {"%tid.x": thread, **{f"%ctaid.{axis}": place for axis, place in zip("xyz", block)}}
        self.copies: list[list[tuple[np.ndarray, np.ndarray]]] = [[]]  # under way, by group; the last is open

    def run(self) -> _Running:
        at, program, number = 0, self.program, self.special["%tid.x"]
        while True:
            negated, predicate, words, operands = program.statements[at]
            at += 1
            if predicate and bool(self.registers[predicate]) == bool(negated):
                continue
            if words[0] == "ret":
                return
            if words[0] == "griddepcontrol":  # nothing runs beside
                continue
            if words[0] == "bra":
                at = program.labels[operands[0]]
            elif words[0] == "bar":
                yield None
            elif words[0] == "shfl":
                assert words[2] == "bfly" and operands[3:] == ["31", "-1"]
                self.registers[operands[0]] = (yield self.value(operands[1]))[number ^ int(operands[2])]
            elif words[0] == "ldmatrix":
                addresses = yield self.value(operands[1].strip("[]"))
                self._load_matrices("trans" in words, _names(operands[0]), addresses[number // 32 * 32 :], number % 32)
            elif words[0] == "mma":
                mine = [[self.value(x) for x in _names(text)] for text in operands[1:]]
                others = yield mine[:2]
                self._multiply(words, _names(operands[0]), others[number // 32 * 32 :][:32], mine[2], number % 32)
            elif words[0] in ("ld", "st"):
                self._move(words, operands)
            elif words[0] == "cp":
                self._copy(words, operands)
            else:
                values = [self.value(x) for x in operands[1:]]
                found = getattr(self, f"_{words[0]}")(words, values)
                self.registers[operands[0]] = found & ((1 << (1 if words[0] == "setp" else _result(words))) - 1)

    def value(self, text: str) -> int:
        if text in self.registers:
            return self.registers[text]
        if text in self.special:
            return self.special[text]
        if text.startswith("0f"):
            return int(text[2:], 16)
        if text in self.program.symbols:
            return self.program.symbols[text]
        return int(text, 0)

    def _move(self, words: list[str], operands: list[str]) -> None:
        place, register = operands if words[0] == "st" else operands[::-1]
        registers = _names(register)
        inside = place.strip("[]")
        if words[1] == "param":
            self.registers[register] = self.program.symbols["param_" + inside.rsplit("_", 1)[1]]
            return
        base, _, offset = inside.partition("+")
        size = _width(words[-1]) // 8
        memory = self.program.place(self.value(base) + int(offset or 0), size * len(registers))
        for i, name in enumerate(registers):
            part = memory[i * size : (i + 1) * size]
            if words[0] == "st":
                part[:] = np.frombuffer((self.value(name) & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8)
            else:
                self.registers[name] = int.from_bytes(part.tobytes(), "little")

    def _copy(self, words: list[str], operands: list[str]) -> None:
        assert words[1] == "async"
        if words[2] == "commit_group":
            self.copies.append([])
        elif words[2] == "wait_group":
            left = int(operands[0])
            for to, data in (copy for group in self.copies[: len(self.copies) - 1 - left] for copy in group):
                to[:] = data
            del self.copies[: max(0, len(self.copies) - 1 - left)]
        else:
            to, source = (self.value(base) + int(offset or 0) for base, _, offset in (
                x.strip("[]").partition("+") for x in operands[:2]))  # fmt: skip
            size, there = int(operands[2]), self.value(operands[3])
            data = np.zeros(size, np.uint8)
            if there:
                data[:there] = self.program.place(source, there)
            self.copies[-1].append((self.program.place(to, size), data))

    def _load_matrices(self, turned: bool, names: list[str], rows: list[int], lane: int) -> None:
        """Two neighbours of a row, or a column, of each 8x8 matrix; lanes have their rows' addresses."""
        for i, name in enumerate(names):
            if turned:
                low, high = (self.program.place(rows[i * 8 + lane % 4 * 2 + j] + lane // 4 * 2, 2) for j in (0, 1))
                self.registers[name] = _word(np.concatenate([low, high]).view(np.uint16))
            else:
                self.registers[name] = _word(
                    self.program.place(rows[i * 8 + lane // 4] + lane % 4 * 4, 4).view(np.uint16)
                )

    def _multiply(self, words: list[str], names: list[str], others: list[Any], sums: list[int], lane: int) -> None:
        """m16n8k16, of TF32 m16n8k8: rows of a and columns of b lie with four lanes each."""
        if words[-2] == "tf32":
            assert words[3:6] == ["m16n8k8", "row", "col"]
            for j, name in enumerate(names):
                row, column, down = lane // 4 * 4, (lane % 4 * 2 + j % 2) * 4, j // 2
                factors = [
                    ([others[at + i][which][r] for r in registers for i in range(4)])
                    for which, at, registers in ((0, row, (down, down + 2)), (1, column, (0, 1)))
                ]
                assert not any(bits & 0x1FFF for side in factors for bits in side), "a factor is not rounded to TF32"
                a, b = (np.array([_float(bits) for bits in side], np.float64) for side in factors)
                self.registers[name] = _bits(np.float32(a @ b + np.float64(_float(sums[j]))))
            return
        assert words[3:6] == ["m16n8k16", "row", "col"]
        values = simulator.bf16_values if words[-2] == "bf16" else lambda x: x.view(np.float16).astype(np.float32)

        def row(which: int, first: int, registers: tuple[int, int]) -> np.ndarray:
            pairs = [_pair(others[first * 4 + i][which][r]) for r in registers for i in range(4)]
            return np.asarray(values(np.concatenate(pairs)), np.float64)

        for j, name in enumerate(names):
            a = row(0, lane // 4, (0, 2) if j < 2 else (1, 3))
            b = row(1, lane % 4 * 2 + j % 2, (0, 1))
            self.registers[name] = _bits(np.float32(a @ b + np.float64(_float(sums[j]))))

    # Instructions: their words and operands to bits.

    def _mov(self, words: list[str], x: list[int]) -> int:
        return x[0]

    _cvta = _mov

    def _add(self, words: list[str], x: list[int]) -> int:
        return _bits(np.float32(_float(x[0]) + _float(x[1]))) if words[-1] == "f32" else x[0] + x[1]

    def _sub(self, words: list[str], x: list[int]) -> int:
        return _bits(np.float32(_float(x[0]) - _float(x[1]))) if words[-1] == "f32" else x[0] - x[1]

    def _mul(self, words: list[str], x: list[int]) -> int:
        if words[-1] == "f32":
            return _bits(np.float32(_float(x[0]) * _float(x[1])))
        signed, width = words[-1].startswith("s"), _width(words[-1])
        product = math.prod(_signed(v, width) if signed else v & ((1 << width) - 1) for v in x)
        return product >> width if "hi" in words else product

    def _mad(self, words: list[str], x: list[int]) -> int:
        return self._mul(words, x[:2]) + x[2]

    def _fma(self, words: list[str], x: list[int]) -> int:
        """Of f32, where rounding twice is near enough, and of pairs of bf16."""
        if words[-1] == "f32":
            a, b, c = (np.float64(_float(v)) for v in x)
            return _bits(np.float32(a * b + c))
        assert words[-1] == "bf16x2"
        a, b, c = (simulator.bf16_values(_pair(v)).astype(np.float64) for v in x)
        return _word(simulator.bf16_bits(np.float32(a * b + c)))

    def _max(self, words: list[str], x: list[int]) -> int:
        if words[-1] == "bf16x2":
            return _word(simulator.bf16_bits(np.maximum(*(simulator.bf16_values(_pair(v)) for v in x))))
        if words[1] in ("s32", "u32"):
            return max(_signed(v, 32) if words[1] == "s32" else v & 0xFFFFFFFF for v in x)
        return _bits(np.maximum(_float(x[0]), _float(x[1])))

    def _min(self, words: list[str], x: list[int]) -> int:
        if words[1] in ("s32", "u32"):
            return min(_signed(v, 32) if words[1] == "s32" else v & 0xFFFFFFFF for v in x)
        assert words[1:] == ["NaN", "f32"]
        return _bits(np.minimum(_float(x[0]), _float(x[1])))

    def _div(self, words: list[str], x: list[int]) -> int:
        if words[1] in ("u32", "s32"):
            a, b = (_signed(v, 32) if words[1] == "s32" else v for v in x)
            return abs(a) // abs(b) * (1 if a * b >= 0 else -1)
        if words[1] == "rn":
            return _bits(np.float32(_float(x[0]) / _float(x[1])))
        assert words[1] == "full"
        return self._fast("fast_div", x)

    def _rcp(self, words: list[str], x: list[int]) -> int:
        assert words[1:] == ["approx", "ftz", "f32"]
        return self._fast("fast_inverse", x)

    def _ex2(self, words: list[str], x: list[int]) -> int:
        return self._fast("flushed_exp2" if "ftz" in words else "fast_exp2", x)

    def _sqrt(self, words: list[str], x: list[int]) -> int:
        assert words[1] == "approx"
        return self._fast("fast_sqrt", x)

    def _tanh(self, words: list[str], x: list[int]) -> int:
        return self._fast("fast_tanh", x)

    def _fast(self, name: str, x: list[int]) -> int:
        return _bits(simulator.fast(name, *(np.asarray(_float(v)) for v in x))[()])

    def _neg(self, words: list[str], x: list[int]) -> int:
        return -x[0] if words[-1].startswith("s") else x[0] ^ (1 << 31)

    def _abs(self, words: list[str], x: list[int]) -> int:
        return x[0] & ~(1 << 31)

    def _and(self, words: list[str], x: list[int]) -> int:
        return x[0] & x[1]

    def _or(self, words: list[str], x: list[int]) -> int:
        return x[0] | x[1]

    def _xor(self, words: list[str], x: list[int]) -> int:
        return x[0] ^ x[1]

    def _bfi(self, words: list[str], x: list[int]) -> int:
        """The low bits of the first in the second."""
        own, other, place, count = x
        mask = ((1 << count) - 1) << place
        return (own << place & mask) | (other & ~mask)

    def _not(self, words: list[str], x: list[int]) -> int:
        return 1 - x[0] if words[-1] == "pred" else ~x[0]

    def _shl(self, words: list[str], x: list[int]) -> int:
        return x[0] << x[1]

    def _shr(self, words: list[str], x: list[int]) -> int:
        return (_signed(x[0], _width(words[-1])) if words[-1].startswith("s") else x[0]) >> x[1]

    def _selp(self, words: list[str], x: list[int]) -> int:
        return x[0] if x[2] else x[1]

    def _setp(self, words: list[str], x: list[int]) -> int:
        kind, type = words[1], words[-1]
        if type.startswith("f"):
            a, b = (_pair(v).view(np.float16)[0] if type == "f16" else _float(v) for v in x)
            unordered = kind.endswith("u") and kind not in ("equ",)
            return int((unordered and (math.isnan(a) or math.isnan(b))) or _COMPARED[kind[:2]](a, b))
        width = _width(type)
        a, b = (_signed(v, width) if type.startswith("s") else v & ((1 << width) - 1) for v in x)
        return int(_COMPARED[kind](a, b))

    def _cvt(self, words: list[str], x: list[int]) -> int:
        if words[-2] in ("bf16x2", "f16x2"):
            floats = np.array([_float(v) for v in x[::-1]], np.float32)
            return _word(
                simulator.bf16_bits(floats) if words[-2] == "bf16x2" else floats.astype(np.float16).view(np.uint16)
            )
        if words[1:] == ["rna", "tf32", "f32"]:  # halves away from 0
            return (x[0] + 0x1000) & 0xFFFFE000
        if words[-2:] == ["f32", "f16"]:
            return _bits(np.float32(_pair(x[0]).view(np.float16)[0]))
        source = words[-1]
        return _signed(x[0], _width(source)) if source.startswith("s") else x[0] & ((1 << _width(source)) - 1)


def _result(words: list[str]) -> int:
    """Bits of what an instruction gives."""
    if words[0] == "cvt":
        return _width(words[-2])
    return 2 * _width(words[-1]) if "wide" in words else _width(words[-1])


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def _float(bits: int) -> np.float32:
    return np.float32(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def _bits(value: Any) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _pair(word: int) -> np.ndarray:
    return np.array([word & 0xFFFF, word >> 16 & 0xFFFF], np.uint16)


def _word(halves: np.ndarray) -> int:
    return int(halves[0]) | int(halves[1]) << 16


def _names(text: str) -> list[str]:
    return [x.strip() for x in text.strip("{}").split(",")]
