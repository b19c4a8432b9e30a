"""What a statement of PTX does to the registers of a thread, found once for all threads that come to it.

A *step* takes a thread and its registers. Registers hold bits by name; constants are among them, each under itself, so
that an operand is a key whatever it is. A statement that is no step moves the thread or makes it wait
(``ptx_machine.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from gpu_kernels.ptx_arithmetic import signed, width
from gpu_kernels.ptx_common import function_of

LOCAL = 1 << 60  # where a thread's own memory lies
_NOTHING = 0xA5A5A5A5A5A5A5A5  # in an unwritten register: results that depend on it must not matter
_CONTROL = ("ret", "exit", "call", "griddepcontrol", "bra", "bar", "barrier", "shfl", "vote", "ldmatrix", "mma")

Step: TypeAlias = Callable[[Any, "Registers"], None]


class Registers(dict[Any, int]):
    """Bits by name."""

    def __missing__(self, name: Any) -> int:
        if type(name) is not int:
            return _NOTHING
        self[name] = name
        return name


def names(text: str) -> list[str]:
    return [x.strip() for x in text.strip("{}() ").split(",")]


def step_of(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step | None:
    """None: the statement moves the thread or makes it wait. ``known``: an operand, or the bits that it is."""
    if words[0] in _CONTROL or words[:2] == ("ld", "acquire"):
        return None
    special = {"prefetch": _prefetch, "fence": _fence, "red": _release, "atom": _atomic, "cp": _copy}
    if words[0] in special:
        return special[words[0]](words, operands, known)
    if words[0] in ("ld", "st"):
        return _parameter(words, operands, known) if words[1] == "param" else _move(words, operands, known)
    return _compute(words, operands, known)


def _parts(operand: Any) -> bool:
    return isinstance(operand, str) and operand[0] == "{"


def _compute(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    if words[0] == "mov" and _parts(operands[0]):  # of one register, its parts
        wanted, source = names(operands[0]), operands[1]
        each = width(words[-1]) // len(wanted)
        places, low = [(name, i * each) for i, name in enumerate(wanted)], (1 << each) - 1

        def split(thread: Any, registers: Registers) -> None:
            whole = registers[source]
            for name, shift in places:
                registers[name] = whole >> shift & low

        return split
    to = operands[0]
    if words[0] == "mov" and _parts(operands[1]):
        given = [known(name) for name in names(operands[1])]
        each = width(words[-1]) // len(given)
        sources, mask = [(name, i * each) for i, name in enumerate(given)], (1 << each) - 1

        def join(thread: Any, registers: Registers) -> None:
            registers[to] = sum((registers[name] & mask) << shift for name, shift in sources)

        return join
    try:
        return _result(to, function_of(words), operands[1:])
    except NotImplementedError as unknown:
        return _unknown(unknown)


def _unknown(error: NotImplementedError) -> Step:
    """An error for the thread that comes to it: kernels hold instructions for rare numbers, such as large angles."""

    def fail(thread: Any, registers: Registers) -> None:
        raise error

    return fail


def _result(to: str, function: Callable[..., int], given: list[Any]) -> Step:
    if len(given) == 1:
        [a] = given

        def one(thread: Any, registers: Registers) -> None:
            registers[to] = function(registers[a])

        return one
    if len(given) == 2:
        a, b = given

        def two(thread: Any, registers: Registers) -> None:
            registers[to] = function(registers[a], registers[b])

        return two
    all_of = itemgetter(*given)

    def several(thread: Any, registers: Registers) -> None:
        registers[to] = function(*all_of(registers))

    return several


def address_of(text: str, known: Callable[[str], Any]) -> tuple[Any, int]:
    """Of ``[base+offset]``, the register and the offset."""
    base, _, offset = text.strip("[]").partition("+")
    return known(base), int(offset or 0)


def _parameter(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    place, register = operands if words[0] == "st" else operands[::-1]
    name = place.strip("[]").partition("+")[0]
    if words[0] == "st":

        def give(thread: Any, registers: Registers) -> None:
            registers[name] = registers[register]

        return give
    # A wider register is filled with zeros.
    mask = (1 << width(words[-1])) - 1 if words[-1][0] == "u" else -1
    number = name.rpartition("_")[2]

    def take(thread: Any, registers: Registers) -> None:
        if name in registers:  # of a function's call
            registers[register] = registers[name]
        else:
            registers[register] = thread.program.parameters[int(number)] & mask

    return take


def _move(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    place, register = operands if words[0] == "st" else operands[::-1]
    registers_named = [register] if type(register) is int else [known(name) for name in names(register)]
    size, (base, offset) = width(words[-1]) // 8, address_of(place, known)
    relaxed = words[1] == "relaxed"
    if words[0] == "st":
        return _store(base, offset, size, registers_named, relaxed)
    return _load(base, offset, size, registers_named, relaxed, words[-1][0] == "s")


def _store(base: Any, offset: int, size: int, given: list[Any], relaxed: bool) -> Step:
    mask, whole = (1 << 8 * size) - 1, size * len(given)
    shifts = [(name, 8 * size * i) for i, name in enumerate(given)]
    [first, *others] = given

    def store(thread: Any, registers: Registers) -> None:
        address = registers[base] + offset
        if others:
            bits = sum((registers[name] & mask) << shift for name, shift in shifts)
        else:
            bits = registers[first] & mask
        data = bits.to_bytes(whole, "little")
        if address >= LOCAL:
            own = address - LOCAL
            assert own <= len(thread.local) - whole
            thread.local[own : own + whole] = data
        elif relaxed:
            thread.program.place(address, whole)
            thread.program.arrive_all(thread.name, address)
            thread.program.late.append((thread.name, address, data))
        else:
            thread.program.write(thread.number, address, data)

    return store


def _load(base: Any, offset: int, size: int, wanted: list[Any], relaxed: bool, is_signed: bool) -> Step:
    whole, bits, low = size * len(wanted), 8 * size, (1 << 8 * size) - 1
    # A register may be wider than the value.
    places = [
        (name, i * bits, (1 << (bits if size > 8 else 64 if name.startswith("%rd") else 32)) - 1)
        for i, name in enumerate(wanted)
    ]
    alone = wanted[0] if len(wanted) == 1 and not is_signed else None

    def load(thread: Any, registers: Registers) -> None:
        address = registers[base] + offset
        if address >= LOCAL:
            found = thread.local[address - LOCAL : address - LOCAL + whole]
            assert len(found) == whole
        elif relaxed:
            found = thread.program.place(address, whole)
        else:
            found = thread.program.read(thread.number, address, whole)
        value = int.from_bytes(found, "little")
        if alone is not None:
            registers[alone] = value
            return
        for name, shift, held in places:
            part = value >> shift & low
            registers[name] = signed(part, bits) & held if is_signed else part

    return load


def _prefetch(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    base, offset = address_of(operands[0], known)

    def prefetch(thread: Any, registers: Registers) -> None:
        thread.program.place(registers[base] + offset, 1)

    return prefetch


def _fence(words: tuple[str, ...], operands: Sequence[Any], known: Callable[[str], Any]) -> Step:
    assert words[1:] == ("acq_rel", "gpu")

    def fence(thread: Any, registers: Registers) -> None:
        thread.program.arrive_all(thread.name)

    return fence


def _release(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    assert words == ("red", "release", "gpu", "global", "add", "u32")
    (base, offset), added = address_of(operands[0], known), operands[1]

    def release(thread: Any, registers: Registers) -> None:
        program = thread.program
        place = program.place(registers[base] + offset, 4)
        total = (int.from_bytes(place, "little") + registers[added]) % (1 << 32)
        place[:] = total.to_bytes(4, "little")
        for each in {name for name, _, _ in program.late if name[0] == thread.name[0]}:
            program.arrive_all(each)
        program.accesses.release()

    return release


def _atomic(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    how, kind = words[2:]
    size, (base, offset), [to, given] = int(kind[1:]) // 8, address_of(operands[1], known), operands[::2]
    pick = {"add": None, "max": max, "min": min}[how]

    def number(bits: int) -> int:
        return signed(bits, 8 * size) if kind[0] == "s" else bits

    def atomic(thread: Any, registers: Registers) -> None:
        address = registers[base] + offset
        before = int.from_bytes(thread.program.place(address, size), "little")
        value = registers[given] % (1 << 8 * size)
        after = pick(before, value, key=number) if pick else (before + value) % (1 << 8 * size)
        thread.program.write(thread.number, address, after.to_bytes(size, "little"), atomic=True)
        registers[to] = before

    return atomic


def _copy(words: tuple[str, ...], operands: list[Any], known: Callable[[str], Any]) -> Step:
    assert words[1] == "async"
    if words[2] == "commit_group":

        def commit(thread: Any, registers: Registers) -> None:
            thread.copies.append([])

        return commit
    if words[2] == "wait_group":
        [left] = operands

        def wait(thread: Any, registers: Registers) -> None:
            done = max(0, len(thread.copies) - 1 - registers[left])
            for to, data in (copy for group in thread.copies[:done] for copy in group):
                thread.program.accesses.copy_ends(thread.number, to, len(data))
                thread.program.place(to, len(data))[:] = data
            del thread.copies[:done]

        return wait
    (to, by), (source, from_) = (address_of(x, known) for x in operands[:2])
    [size, there] = operands[2], operands[3 if len(operands) > 3 else 2]

    def copy(thread: Any, registers: Registers) -> None:
        whole, part, place = registers[size], registers[there], registers[to] + by
        data = b""
        if part:
            data = bytes(thread.program.read(thread.number, registers[source] + from_, part))
        thread.program.place(place, whole)
        thread.program.accesses.copy_begins(thread.number, place, whole)
        thread.copies[-1].append((place, data.ljust(whole, b"\0")))

    return copy
