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
from gpu_kernels.accesses import WARP, Accesses
from gpu_kernels.ptx_arithmetic import as_float, bits_of, width
from gpu_kernels.ptx_products import product
from gpu_kernels.ptx_steps import LOCAL, Registers, Step, address_of, names, step_of

from dslc.compiler.codegen.launch import ScalarArgs

#: Gives the number of its statement and what the other threads are to see; gets what each of its warp has given, or
#: the one thing that a vote or a product makes of that.
_Running: TypeAlias = Generator[tuple[int, Any], list[Any], None]
#: The predicate and whether it is negated, the words, the operands, and what it does to a thread's registers.
_Statement: TypeAlias = tuple[str, bool, tuple[str, ...], list[Any], Step | None]
#: A block, which stops where it looks at what others have released.
_Block: TypeAlias = Generator[None, None, None]

_STATEMENT = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
_FUNCTION = re.compile(r"\.func\s+(?:\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)\s*(\{\n.*?\n\}\n)", re.S)
_TABLE = re.compile(r"\.(?:const|global) \.align \d+ \.(b8|[usb]\d+|f\d+) (\w+)\[(\d+)\](?: = \{([^}]*)\})?;")
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
    with np.errstate(all="ignore"):
        program = _Program(ptx, arguments, given, shared, races)
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
        if words[0] == "vote":
            if program.looks:
                program.found += not any(given)
                if any(given):
                    yield
            given = [sum(bool(value) << i for i, value in enumerate(given))]
        elif words[0] == "mma":
            given = [product(words, given)]


class _Program:
    """Statements, labels, and memory: array number n lies from n << 40 on, one that a block shares from n << 24."""

    def __init__(self, ptx: str, arguments: Sequence[np.ndarray], given: ScalarArgs, shared: int, races: bool) -> None:
        self.memory = [memoryview(b"")]
        self.symbols: dict[str, int] = {}
        self.shared: list[int] = []  # bytes of each
        self.own: dict[tuple[int, ...], list[memoryview]] = {}
        for name, size in re.findall(r"\.shared \.align \d+ \.b8 (\w+)\[(\d*)\];", ptx):
            self.symbols[name] = len(self.memory) << 24
            self.shared.append(int(size or shared))
            self.memory.append(memoryview(b""))
        first = len(self.memory)
        self.memory += [memoryview(a.view(np.uint8)) for a in arguments]
        for kind, name, count, numbers in _TABLE.findall(ptx):
            self.symbols[name] = len(self.memory) << 40
            each = width(kind) // 8
            values = [int(n, 0) for n in numbers.split(",")] if numbers else []
            table = b"".join((n & ((1 << 8 * each) - 1)).to_bytes(each, "little") for n in values)
            self.memory.append(memoryview(bytearray(table.ljust(int(count) * each, b"\0"))))
        self.parameters = [(first + number) << 40 for number in range(len(arguments))]
        self.parameters += [bits_of(v, k) if k[0] == "f" else int(v) % (1 << 64) for k, v in given]
        own = re.search(r"\.local \.align \d+ \.b8 (\w+)\[(\d+)\];", ptx)
        self.local = int(own[2]) if own else 0
        if own:
            self.symbols[own[1]] = LOCAL
        self.statements: list[_Statement] = []
        self.labels: dict[str, int] = {}
        self.parameters_of: dict[str, list[str]] = {}
        self._add(ptx[ptx.index("{\n", ptx.index(".entry")) :])
        for name, parameters, text in _FUNCTION.findall(ptx):
            self.labels[name] = len(self.statements)
            self.parameters_of[name] = re.findall(r"(\w+)\s*(?:,|$)", parameters)
            self._add(text)
        words = [w for _, _, w, _, _ in self.statements]
        touched = [w for w in words if w[0] in ("ld", "st", "atom", "ldmatrix") and w[1] != "param"]
        self.looks = any(w[:2] == ("ld", "relaxed") for w in words)
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
                words = tuple(found[3].split("."))
                step = step_of(words, operands, self.known)
                self.statements.append((found[2] or "", bool(found[1]), words, operands, step))

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
        self.own[block] = [memoryview(bytearray(b"\xff" * size)) for size in self.shared]
        self.enter(block)

    def enter(self, block: tuple[int, ...]) -> None:
        """A block runs on, with its shared memory."""
        self.accesses.enter(block)
        self.memory[1 : 1 + len(self.shared)] = self.own[block]

    def arrive(self, address: int, data: bytes) -> None:
        """A late write is there."""
        self.place(address, len(data))[:] = data

    def arrive_all(self, thread: Any = None, address: int | None = None) -> None:
        """All late writes, or those of a thread, or those of a thread to an address, are there."""
        left = []
        for each in self.late:
            if (thread is None or each[0] == thread) and address in (None, each[1]):
                self.arrive(*each[1:])
            else:
                left.append(each)
        self.late = left

    def place(self, address: int, size: int) -> memoryview:
        bits = 40 if address >> 40 else 24
        memory, offset = self.memory[address >> bits], address & ((1 << bits) - 1)
        assert offset % size == 0 and offset + size <= len(memory), (
            f"an access outside of its array, or at an odd place: {size} bytes at {offset} of {len(memory)}"
        )
        return memory[offset : offset + size]

    def read(self, thread: int, address: int, size: int) -> memoryview:
        found = self.place(address, size)
        self.accesses.read(thread, not address >> 40, address, size)
        return found

    def write(self, thread: int, address: int, data: bytes, atomic: bool = False) -> None:
        place = self.place(address, len(data))
        self.accesses.write(thread, not address >> 40, address, data, atomic)
        place[:] = data


class _Thread:
    def __init__(
        self, program: _Program, block: tuple[int, ...], thread: int, threads: int, grid: Sequence[int]
    ) -> None:
        self.program, self.number, self.lane = program, thread, thread % WARP
        self.name = block, thread
        self.registers = Registers(
            {"%tid.x": thread, "%ntid.x": threads, "%tid.y": 0, "%tid.z": 0, "%laneid": self.lane}
        )
        for axis, place, size in zip("xyz", block, grid):
            self.registers |= {f"%ctaid.{axis}": place, f"%nctaid.{axis}": size}
        self.copies: list[list[tuple[int, bytes]]] = [[]]  # under way, by group; the last is open
        self.local = memoryview(bytearray(b"\xff" * program.local))

    @classmethod
    def all(cls, program: _Program, block: tuple[int, ...], threads: int, grid: Sequence[int]) -> list[_Running]:
        """The threads of a block."""
        return [cls(program, block, t, threads, grid).run() for t in range(threads)]

    def run(self) -> _Running:
        at, program, value, statements = 0, self.program, self.value, self.program.statements
        callers: list[tuple[int, Registers, str]] = []  # the next statement, the registers, the result's place
        registers = self.registers
        while True:
            predicate, negated, words, operands, step = statements[at]
            at += 1
            if predicate:
                held = registers.get(predicate)
                assert held is not None, f"{predicate} is not known"
                if bool(held) == negated:
                    continue
            if step is not None:
                step(self, registers)
                continue
            match words[0]:
                case "ret" if callers:
                    given_back = registers["func_retval0"]
                    at, registers, result = callers.pop()
                    self.registers = registers
                    if result:
                        registers[result] = given_back
                case "ret" | "exit":
                    return
                case "call":
                    result, name, given = ["", *operands][-3].strip("()").strip(), operands[-2], names(operands[-1])
                    callers.append((at, registers, result))
                    special = {k: v for k, v in registers.items() if str(k)[1:4] in ("tid", "nti", "lan", "cta", "nct")}
                    parameters = dict(zip(program.parameters_of[name], map(value, given), strict=True))
                    registers = self.registers = Registers(special | parameters)
                    at = program.labels[name]
                case "griddepcontrol":  # nothing runs at the same time
                    continue
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
                    [registers[operands[0]]] = yield at - 1, value(operands[1])
                case "ldmatrix":
                    addresses = yield at - 1, value(operands[1].strip("[]"))
                    self._load_matrices("trans" in words, names(operands[0]), addresses)
                case "mma":
                    mine = [[value(x) for x in names(text)] for text in operands[1:]]
                    [found] = yield at - 1, mine[:2]
                    self._add(names(operands[0]), found, mine[2])
                case "ld":
                    self._acquire(words, operands)
                    yield at - 1, None
                case other:
                    raise NotImplementedError(other)

    def value(self, text: Any) -> int:
        found = self.registers.get(text)
        return found if found is not None else self.registers[self.program.known(text) if type(text) is str else text]

    def _exchanged(self, how: str, others: list[int], distance: int, bound: int) -> int:
        lane = self.lane
        other = {"bfly": lane ^ distance, "up": lane - distance, "down": lane + distance, "idx": distance}[how]
        assert bound == (0 if how == "up" else 31)
        return others[other if 0 <= other < len(others) else self.lane]

    def _acquire(self, words: tuple[str, ...], operands: list[Any]) -> None:
        assert words == ("ld", "acquire", "gpu", "global", "u32")
        base, offset = address_of(operands[1], self.program.known)
        place = self.program.place(self.registers[base] + offset, 4)
        self.registers[operands[0]] = int.from_bytes(place, "little")
        self.program.accesses.acquire()

    def _load_matrices(self, turned: bool, into: list[str], rows: list[int]) -> None:
        """Two neighbours of a row, or a column, of each 8x8 matrix; lanes have their rows' addresses."""
        for i, name in enumerate(into):
            if turned:
                low, high = (rows[i * 8 + self.lane % 4 * 2 + j] + self.lane // 4 * 2 for j in (0, 1))
                data = b"".join(self.program.read(self.number, at, 2) for at in (low, high))
                self.registers[name] = int.from_bytes(data, "little")
            else:
                at = rows[i * 8 + self.lane // 4] + self.lane % 4 * 4
                self.registers[name] = int.from_bytes(self.program.read(self.number, at, 4), "little")

    def _add(self, into: list[str], found: np.ndarray, sums: list[int]) -> None:
        """A thread's four elements of a product and what it adds to them."""
        for j, name in enumerate(into):
            element = found[self.lane // 4 + j // 2 * 8, self.lane % 4 * 2 + j % 2]
            self.registers[name] = bits_of(element + np.float64(as_float(sums[j])))
