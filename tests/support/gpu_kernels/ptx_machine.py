"""Runs the PTX of a kernel, thread by thread: what the compiler made of a text, without a GPU.

Registers hold bits. Of PTX it knows what our kernels are made of; an instruction beyond that is an error. Memory is
numpy arrays; an access outside of one, or at an odd place, is an error, and so are two threads that meet in memory
without a barrier between them (``accesses.py``). Threads of a warp run from one exchange to the next, those of a block
from one barrier to the next, and all of them must come to the same one. An asynchronous copy arrives when its thread
waits for it and no earlier. Blocks run one after another, or, if they wait for one another, in turns: each up to its
next look at what others have released (``ld.acquire``), or until it does not find what it looks for (``ld.relaxed``,
and then a vote). What a thread writes for such looks (``st.relaxed``) arrives as late as it may: at the thread's next
fence, or when nobody can go on, the newest first.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import numpy as np
from gpu_kernels import simulator
from gpu_kernels.accesses import WARP, Accesses
from gpu_kernels.ptx_arithmetic import as_float, bits_of, computed, pair, signed, width, word

from dslc.compiler.codegen.launch import ScalarArgs

#: Gives the number of its statement and what the other threads are to see; gets what each of its warp has given.
_Running: TypeAlias = Generator[tuple[int, Any], list[Any], None]
#: A block, which stops where it looks at what others have released.
_Block: TypeAlias = Generator[None, None, None]

_STATEMENT = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
_FUNCTION = re.compile(r"\.func\s+(?:\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)\s*(\{\n.*?\n\}\n)", re.S)
_TABLE = re.compile(r"\.(?:const|global) \.align \d+ \.(b8|[usb]\d+|f\d+) (\w+)\[(\d+)\](?: = \{([^}]*)\})?;")
_LOCAL = 1 << 60  # where a thread's own memory lies
_NOTHING = 0xA5A5A5A5A5A5A5A5  # in an unwritten register: results that depend on it must not matter
_COMMON = ("bar", "barrier")  # what all threads of a block come to


def run(
    ptx: str,
    grid: int | tuple[int, int, int],
    threads: int,
    arguments: Sequence[np.ndarray],
    given: ScalarArgs = (),
    shared: int = 0,
    *,
    races: bool = True,
    backwards: bool = False,
    together: bool = False,
) -> list[int]:
    """Launches ``grid`` blocks of ``threads`` on arrays, in the order of the kernel's arguments; then ``given``.
    ``shared``: bytes of the shared memory whose size the launch says. Of each array, the bytes up to the last one that
    a thread has touched. Raises Race for accesses in no order, unless told not to: memory that no earlier launch of the
    program leaves may make threads meet that never do. ``backwards``: the last block runs first. ``together``: all
    blocks are on the device at once, and may wait for one another."""
    sizes = grid if isinstance(grid, tuple) else (grid, 1, 1)
    program = _Program(ptx, arguments, given, shared, races)
    with np.errstate(all="ignore"):
        blocks = list(np.ndindex(sizes))
        blocks = blocks[::-1] if backwards else blocks
        for some in [blocks] if together else [[block] for block in blocks]:
            _run_blocks(program, {block: _Thread.all(program, block, threads, sizes) for block in some})
    ends = program.accesses.ends(40)
    return [ends.get(at >> 40, 0) for at in program.parameters[: len(arguments)]]


def _run_blocks(program: _Program, blocks: dict[tuple[int, ...], list[_Running]]) -> None:
    """Blocks in turns, each to its end."""
    running: dict[tuple[int, ...], _Block] = {}
    for block, threads in blocks.items():
        program.clear(block)
        running[block] = _run_block(program, threads)
    while running:
        before = len(running), program.accesses.releases, program.found
        for block in list(running):
            program.enter(block)
            if next(running[block], "done") == "done":
                del running[block]
        if (len(running), program.accesses.releases, program.found) == before:
            assert program.late, "blocks wait for one another, all in vain"
            for _ in range(-(-len(program.late) // 2)):
                program.arrive(*program.late.pop()[1:])
    program.arrive_all()
    program.own.clear()


def _run_block(program: _Program, threads: list[_Running]) -> _Block:
    """Each thread to its end, with what others of its warp give it."""
    warps = [threads[i : i + WARP] for i in range(0, len(threads), WARP)]
    started = False
    while True:
        places: set[int | None] = set()
        running = [_run_warp(program, number, warp, started) for number, warp in enumerate(warps)]
        while running:  # warps in turns, each up to its next look
            for each in list(running):
                try:
                    next(each)
                except StopIteration as end:
                    places.add(end.value)
                    running.remove(each)
            if running:
                yield
        assert len(places) == 1, "some threads of a block wait at a barrier and others do not, or elsewhere"
        if places == {None}:
            return
        program.accesses.barrier()
        started = True


def _run_warp(
    program: _Program, number: int, threads: list[_Running], started: bool
) -> Generator[None, None, int | None]:
    """A warp up to the next barrier of its block: its statement, or None at the end."""
    given: list[Any] | None = [] if started else None
    while True:
        asked: list[tuple[int, Any]] = []
        for thread in threads:
            try:
                place = next(thread) if given is None else thread.send(given)
                while program.statements[place[0]][2][:2] == ("ld", "acquire"):  # others run after it has looked
                    yield
                    place = next(thread)
                asked.append(place)
            except StopIteration:
                continue
        if not asked:
            return None
        assert len(asked) == len(threads), "some threads of a warp wait and others are done"
        places = {at for at, _ in asked}
        assert len(places) == 1, "threads of a warp wait at different places"
        [at] = places
        words = program.statements[at][2]
        if words[0] in _COMMON and words[1] != "warp":
            return at
        if words[0] == "bar":
            program.accesses.warp_barrier(number)
        given = [value for _, value in asked]
        if words[0] == "vote" and program.looks:
            program.found += not any(given)
            if any(given):
                yield


class _Program:
    """Statements, labels, and memory: array number n lies from n << 40 on, one that a block shares from n << 24."""

    def __init__(self, ptx: str, arguments: Sequence[np.ndarray], given: ScalarArgs, shared: int, races: bool) -> None:
        self.memory = [np.zeros(0, np.uint8)]
        self.symbols: dict[str, int] = {}
        self.shared: list[np.ndarray] = []
        self.own: dict[tuple[int, ...], list[np.ndarray]] = {}
        for name, size in re.findall(r"\.shared \.align \d+ \.b8 (\w+)\[(\d*)\];", ptx):
            self.symbols[name] = len(self.memory) << 24
            self.shared.append(np.zeros(int(size or shared), np.uint8))
            self.memory.append(self.shared[-1])
        first = len(self.memory)
        self.memory += [a.view(np.uint8) for a in arguments]
        for kind, name, count, numbers in _TABLE.findall(ptx):
            self.symbols[name] = len(self.memory) << 40
            each = width(kind) // 8
            values = [int(n, 0) for n in numbers.split(",")] if numbers else []
            table = b"".join((n & ((1 << 8 * each) - 1)).to_bytes(each, "little") for n in values)
            self.memory.append(np.frombuffer(table.ljust(int(count) * each, b"\0"), np.uint8).copy())
        self.parameters = [(first + number) << 40 for number in range(len(arguments))]
        self.parameters += [bits_of(v, k) if k[0] == "f" else int(v) % (1 << 64) for k, v in given]
        own = re.search(r"\.local \.align \d+ \.b8 (\w+)\[(\d+)\];", ptx)
        self.local = int(own[2]) if own else 0
        if own:
            self.symbols[own[1]] = _LOCAL
        self.statements: list[tuple[str, str, tuple[str, ...], list[Any]]] = []
        self.labels: dict[str, int] = {}
        self.parameters_of: dict[str, list[str]] = {}
        self._add(ptx[ptx.index("{\n", ptx.index(".entry")) :])
        for name, parameters, text in _FUNCTION.findall(ptx):
            self.labels[name] = len(self.statements)
            self.parameters_of[name] = re.findall(r"(\w+)\s*(?:,|$)", parameters)
            self._add(text)
        touched = [w for _, _, w, _ in self.statements if w[0] in ("ld", "st", "atom", "ldmatrix") and w[1] != "param"]
        self.looks = any(w[:2] == ("ld", "relaxed") for _, _, w, _ in self.statements)
        self.found = 0  # looks that found what they looked for
        self.late: list[tuple[Any, int, bytes]] = []  # of a thread, to an address
        self.accesses = Accesses(min((width(w[-1]) // 8 for w in touched), default=1), races)

    def _add(self, text: str) -> None:
        """The statements of a body, up to its last brace."""
        body = re.sub(r"(?m)^\s*call[^;]*;", lambda m: " ".join(m[0].split()), text.partition("\n}\n")[0])
        for line in map(str.strip, body.split("\n")):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.statements)
                continue
            found = _STATEMENT.match(line)
            if found is not None:
                operands = [self.known(x.strip()) for x in _OPERAND.findall(found[4])]
                self.statements.append((found[1] or "", found[2] or "", tuple(found[3].split(".")), operands))

    def known(self, text: str) -> Any:
        """An operand, or the bits that it is in every thread."""
        if text in self.symbols:
            return self.symbols[text]
        if text[:2] in ("0f", "0d"):
            return int(text[2:], 16)
        return int(text, 0) if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", text) else text

    def clear(self, block: tuple[int, ...]) -> None:
        """A new block's shared memory, in which nothing is known."""
        self.accesses.begin(block)
        self.own[block] = [np.full_like(memory, 0xFF) for memory in self.shared]
        self.enter(block)

    def enter(self, block: tuple[int, ...]) -> None:
        """A block runs on, with its shared memory."""
        self.accesses.enter(block)
        self.memory[1 : 1 + len(self.shared)] = self.own[block]

    def arrive(self, address: int, data: bytes) -> None:
        """A late write is there."""
        self.place(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def arrive_all(self, thread: Any = None, address: int | None = None) -> None:
        """All late writes, or those of a thread, or those of a thread to an address, are there."""
        left = []
        for each in self.late:
            if (thread is None or each[0] == thread) and address in (None, each[1]):
                self.arrive(*each[1:])
            else:
                left.append(each)
        self.late = left

    def place(self, address: int, size: int) -> np.ndarray:
        bits = 40 if address >> 40 else 24
        memory, offset = self.memory[address >> bits], address & ((1 << bits) - 1)
        assert offset % size == 0 and offset + size <= len(memory), (
            f"an access outside of its array, or at an odd place: {size} bytes at {offset} of {len(memory)}"
        )
        return memory[offset : offset + size]

    def read(self, thread: int, address: int, size: int) -> np.ndarray:
        found = self.place(address, size)
        self.accesses.read(thread, not address >> 40, address, size)
        return found

    def write(self, thread: int, address: int, data: bytes, atomic: bool = False) -> None:
        place = self.place(address, len(data))
        self.accesses.write(thread, not address >> 40, address, data, atomic)
        place[:] = np.frombuffer(data, np.uint8)


class _Thread:
    def __init__(
        self, program: _Program, block: tuple[int, ...], thread: int, threads: int, grid: Sequence[int]
    ) -> None:
        self.program, self.number, self.lane = program, thread, thread % WARP
        self.name = block, thread
        self.registers = {"%tid.x": thread, "%ntid.x": threads, "%tid.y": 0, "%tid.z": 0, "%laneid": self.lane}
        for axis, place, size in zip("xyz", block, grid):
            self.registers |= {f"%ctaid.{axis}": place, f"%nctaid.{axis}": size}
        self.copies: list[list[tuple[int, np.ndarray]]] = [[]]  # under way, by group; the last is open
        self.local = np.full(program.local, 0xFF, np.uint8)

    @classmethod
    def all(cls, program: _Program, block: tuple[int, ...], threads: int, grid: Sequence[int]) -> list[_Running]:
        """The threads of a block."""
        return [cls(program, block, t, threads, grid).run() for t in range(threads)]

    def run(self) -> _Running:
        at, program, value = 0, self.program, self.value
        callers: list[tuple[int, dict[str, int], str]] = []  # the next statement, the registers, the result's place
        while True:
            negated, predicate, words, operands = program.statements[at]
            registers = self.registers
            at += 1
            if predicate and bool(registers[predicate]) == bool(negated):
                continue
            match words[0]:
                case "ret" if callers:
                    at, self.registers, result = callers.pop()
                    if result:
                        self.registers[result] = registers["func_retval0"]
                case "ret" | "exit":
                    return
                case "call":
                    result, name, given = ["", *operands][-3].strip("()").strip(), operands[-2], _names(operands[-1])
                    callers.append((at, registers, result))
                    special = {k: v for k, v in registers.items() if k[1:4] in ("tid", "nti", "lan", "cta", "nct")}
                    self.registers = special | dict(zip(program.parameters_of[name], map(value, given), strict=True))
                    at = program.labels[name]
                case "griddepcontrol":  # nothing runs at the same time
                    continue
                case "prefetch":
                    program.place(self._address(operands[0]), 1)
                case "bra":
                    at = program.labels[operands[0]]
                case "bar" | "barrier":
                    yield at - 1, None
                case "shfl":
                    others = yield at - 1, value(operands[1])
                    register = operands[0].split("|")[0]
                    registers[register] = self._exchanged(words[2], others, value(operands[2]), value(operands[3]))
                case "vote":
                    assert words[2] == "ballot"
                    others = yield at - 1, value(operands[1])
                    registers[operands[0]] = sum(bool(v) << i for i, v in enumerate(others))
                case "ldmatrix":
                    addresses = yield at - 1, value(operands[1].strip("[]"))
                    self._load_matrices("trans" in words, _names(operands[0]), addresses)
                case "mma":
                    mine = [[value(x) for x in _names(text)] for text in operands[1:]]
                    others = yield at - 1, mine[:2]
                    self._multiply(words, _names(operands[0]), others, mine[2])
                case "ld" if words[1] == "acquire":
                    self._acquire(words, operands)
                    yield at - 1, None
                case "fence":
                    assert words[1:] == ("acq_rel", "gpu")
                    program.arrive_all(self.name)
                case "red":
                    self._release(words, operands)
                case "ld" | "st":
                    self._move(words, operands)
                case "atom":
                    self._atomic(words, operands)
                case "cp":
                    self._copy(words, operands)
                case _:
                    self._compute(words, operands)

    def _compute(self, words: tuple[str, ...], operands: list[Any]) -> None:
        if words[0] != "mov":
            self.registers[operands[0]] = computed(words, [self.value(x) for x in operands[1:]])
            return
        if isinstance(operands[0], str) and operands[0][0] == "{":  # of one register, its parts
            names = _names(operands[0])
            each, whole = width(words[-1]) // len(names), self.value(operands[1])
            for i, name in enumerate(names):
                self.registers[name] = whole >> i * each & ((1 << each) - 1)
            return
        if isinstance(operands[1], str) and operands[1][0] == "{":
            parts = [self.value(x) for x in _names(operands[1])]
            each = width(words[-1]) // len(parts)
            self.registers[operands[0]] = sum((x & ((1 << each) - 1)) << i * each for i, x in enumerate(parts))
            return
        self.registers[operands[0]] = computed(words, [self.value(x) for x in operands[1:]])

    def value(self, text: Any) -> int:
        if type(text) is int:
            return text
        if text in self.registers:
            return self.registers[text]
        known = self.program.known(text)
        return known if type(known) is int else _NOTHING

    def _address(self, text: str) -> int:
        base, _, offset = text.strip("[]").partition("+")
        return self.value(base) + int(offset or 0)

    def _exchanged(self, how: str, others: list[int], distance: int, bound: int) -> int:
        lane = self.lane
        other = {"bfly": lane ^ distance, "up": lane - distance, "down": lane + distance, "idx": distance}[how]
        assert bound == (0 if how == "up" else 31)
        return others[other if 0 <= other < len(others) else self.lane]

    def _move(self, words: tuple[str, ...], operands: list[Any]) -> None:
        place, register = operands if words[0] == "st" else operands[::-1]
        if words[1] == "param":
            name = place.strip("[]").partition("+")[0]
            if words[0] == "st":
                self.registers[name] = self.value(register)
            elif name in self.registers:  # of a function's call
                self.registers[register] = self.registers[name]
            else:
                bits = self.program.parameters[int(name.rsplit("_", 1)[1])]
                unsigned = words[-1][0] == "u"  # a wider register is filled with zeros
                self.registers[register] = bits & ((1 << width(words[-1])) - 1) if unsigned else bits
            return
        registers = [register] if type(register) is int else _names(register)
        size, address, is_signed = width(words[-1]) // 8, self._address(place), words[-1][0] == "s"
        whole = size * len(registers)
        own = address - _LOCAL if address >= _LOCAL else None
        if words[0] == "st":
            data = b"".join((self.value(x) & ((1 << 8 * size) - 1)).to_bytes(size, "little") for x in registers)
            if own is None and words[1] == "relaxed":
                self.program.place(address, whole)
                self.program.arrive_all(self.name, address)
                self.program.late.append((self.name, address, data))
            elif own is None:
                self.program.write(self.number, address, data)
            else:
                assert 0 <= own <= len(self.local) - whole
                self.local[own : own + whole] = np.frombuffer(data, np.uint8)
            return
        if words[1] == "relaxed":
            found = self.program.place(address, whole)
        else:
            found = self.program.read(self.number, address, whole) if own is None else self.local[own : own + whole]
        data = found.tobytes()
        assert len(data) == whole
        for i, name in enumerate(registers):
            bits = int.from_bytes(data[i * size : (i + 1) * size], "little")
            held = (
                8 * size if size > 8 else 64 if name.startswith("%rd") else 32
            )  # a register may be wider than the value
            whole = (1 << held) - 1
            self.registers[name] = signed(bits, 8 * size) & whole if is_signed else bits

    def _acquire(self, words: tuple[str, ...], operands: list[Any]) -> None:
        assert words == ("ld", "acquire", "gpu", "global", "u32")
        place = self.program.place(self._address(operands[1]), 4)
        self.registers[operands[0]] = int.from_bytes(place.tobytes(), "little")
        self.program.accesses.acquire()

    def _release(self, words: tuple[str, ...], operands: list[Any]) -> None:
        assert words == ("red", "release", "gpu", "global", "add", "u32")
        place = self.program.place(self._address(operands[0]), 4)
        sum_ = (int.from_bytes(place.tobytes(), "little") + self.value(operands[1])) % (1 << 32)
        place[:] = np.frombuffer(sum_.to_bytes(4, "little"), np.uint8)
        for thread in {name for name, _, _ in self.program.late if name[0] == self.name[0]}:
            self.program.arrive_all(thread)
        self.program.accesses.release()

    def _atomic(self, words: tuple[str, ...], operands: list[Any]) -> None:
        how, kind = words[2:]
        size = int(kind[1:]) // 8
        address = self._address(operands[1])
        before = int.from_bytes(self.program.place(address, size).tobytes(), "little")
        given = self.value(operands[2]) % (1 << 8 * size)
        if how == "add":
            after = (before + given) % (1 << 8 * size)
        else:
            pick = {"max": max, "min": min}[how]
            after = pick(before, given, key=lambda x: signed(x, 8 * size) if kind[0] == "s" else x)
        self.program.write(self.number, address, after.to_bytes(size, "little"), atomic=True)
        self.registers[operands[0]] = before

    def _copy(self, words: tuple[str, ...], operands: list[Any]) -> None:
        assert words[1] == "async"
        if words[2] == "commit_group":
            self.copies.append([])
        elif words[2] == "wait_group":
            done = max(0, len(self.copies) - 1 - self.value(operands[0]))
            for to, data in (copy for group in self.copies[:done] for copy in group):
                self.program.accesses.copy_ends(self.number, to, len(data))
                self.program.place(to, len(data))[:] = data
            del self.copies[:done]
        else:
            to, source = (self._address(x) for x in operands[:2])
            size = self.value(operands[2])
            there = self.value(operands[3]) if len(operands) > 3 else size
            data = np.zeros(size, np.uint8)
            if there:
                data[:there] = self.program.read(self.number, source, there)
            self.program.place(to, size)
            self.program.accesses.copy_begins(self.number, to, size)
            self.copies[-1].append((to, data))

    def _load_matrices(self, turned: bool, names: list[str], rows: list[int]) -> None:
        """Two neighbours of a row, or a column, of each 8x8 matrix; lanes have their rows' addresses."""
        for i, name in enumerate(names):
            if turned:
                low, high = (rows[i * 8 + self.lane % 4 * 2 + j] + self.lane // 4 * 2 for j in (0, 1))
                parts = [self.program.read(self.number, at, 2) for at in (low, high)]
                self.registers[name] = word(np.concatenate(parts).view(np.uint16))
            else:
                at = rows[i * 8 + self.lane // 4] + self.lane % 4 * 4
                self.registers[name] = word(self.program.read(self.number, at, 4).view(np.uint16))

    def _multiply(self, words: tuple[str, ...], names: list[str], others: list[Any], sums: list[int]) -> None:
        """m16n8k16, of TF32 m16n8k8: rows of a and columns of b lie with four lanes each."""
        lane = self.lane
        if words[-2] == "tf32":
            assert words[3:6] == ("m16n8k8", "row", "col")
            for j, name in enumerate(names):
                row, column, down = lane // 4 * 4, (lane % 4 * 2 + j % 2) * 4, j // 2
                factors = [
                    [others[at + i][which][r] for r in registers for i in range(4)]
                    for which, at, registers in ((0, row, (down, down + 2)), (1, column, (0, 1)))
                ]
                assert not any(bits & 0x1FFF for side in factors for bits in side), "a factor is not rounded to TF32"
                a, b = (np.array([as_float(bits) for bits in side], np.float64) for side in factors)
                self.registers[name] = bits_of(a @ b + np.float64(as_float(sums[j])))
            return
        assert words[3:6] == ("m16n8k16", "row", "col")
        values = simulator.bf16_values if words[-2] == "bf16" else lambda x: x.view(np.float16).astype(np.float32)

        def row(which: int, first: int, registers: tuple[int, int]) -> np.ndarray:
            pairs = [pair(others[first * 4 + i][which][r]) for r in registers for i in range(4)]
            return np.asarray(values(np.concatenate(pairs)), np.float64)

        for j, name in enumerate(names):
            a = row(0, lane // 4, (0, 2) if j < 2 else (1, 3))
            b = row(1, lane % 4 * 2 + j % 2, (0, 1))
            self.registers[name] = bits_of(a @ b + np.float64(as_float(sums[j])))


def _names(text: str) -> list[str]:
    return [x.strip() for x in text.strip("{}() ").split(",")]
