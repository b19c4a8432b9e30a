"""row_order as GPU kernels: a stable sort of the places of ids, digit by digit from the lowest (LSD radix sort).

A digit has up to 8 bits; its pass counts the digits of each block's keys, adds the counts up, and moves keys and
places. See Satish, Harris and Garland 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, Pointers, arguments, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import int_attr

_BLOCK_THREADS: Final = 256
_MOST_KEYS: Final = 16  # of a thread
_DIGIT_BITS: Final = 8  # at most

Argument: TypeAlias = Value | Scratch


class Keyed:
    """Base of kernels over ``parts`` lists of ``length`` ids, each below ``count``. A key is the pair of a part and an
    id: ``part * count + id``."""

    parts: int
    length: int
    count: int

    @property
    def all(self) -> int:
        return self.parts * self.length

    @property
    def keys(self) -> int:
        return self.parts * self.count


@dataclass(frozen=True)
class Digits(Keyed):
    """``parts`` times ``length`` ids below ``count``, whose keys have all bits of ``parts * count``."""

    ids: DType
    parts: int
    length: int
    count: int

    @property
    def tile(self) -> int:
        """Keys of a block: a warp ranks 32 at a time, one after the other, so as few as leave no more blocks than one
        block adds up at once."""
        each = 1
        while each < _MOST_KEYS and _BLOCK_THREADS**2 * each < self.all:
            each *= 2
        return _BLOCK_THREADS * each

    @property
    def blocks(self) -> int:
        return -(-self.all // self.tile)

    @property
    def scratch(self) -> int:
        """Blocks of scratch memory; a single pass leaves nothing for another."""
        return 5 if len(self.bits) > 1 else 3

    @property
    def absent(self) -> int:
        """The key of an id that does not exist."""
        return self.keys

    @property
    def first(self) -> int:
        """The number of the digit that is sorted first."""
        return 0

    def values(self, number: int) -> int:
        """The values of a digit."""
        return int(1 << self.bits[number])

    @property
    def bits(self) -> tuple[int, ...]:
        """The bits of each digit, from the lowest on."""
        whole = max(1, self.keys.bit_length())
        passes = -(-whole // _DIGIT_BITS)
        return tuple(whole // passes + (i < whole % passes) for i in range(passes))


@dataclass(frozen=True)
class RowDigits(Numbered):
    """Step 0 to 2 of the pass of digit ``number``: ``k(ids or keys, counts)``, ``k(counts, totals)`` and
    ``k(ids or keys and places, counts, totals, sorted keys, sorted places)``, each with numbers."""

    digits: Digits
    number: int
    step: int

    @property
    def geometry(self) -> Geometry:
        blocks = self.digits.values(self.number) if self.step == 1 else self.digits.blocks
        return Geometry((blocks, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        d = self.digits
        shift = sum(d.bits[: self.number])
        return Numbers(ALL=d.all, LENGTH=d.length, COUNT=d.count, PARTS=d.parts, ABSENT=d.absent, SHIFT=shift)

    @property
    def _first(self) -> bool:
        """Whether it reads ids, not keys."""
        return self.number == self.digits.first and self.step != 1

    @property
    def reads(self) -> Pointers:
        if self.step == 1:
            return ()
        given: Pointers = (
            ("const I *__restrict__ ", "ids") if self._first else ("const unsigned *__restrict__ ", "keys"),
        )
        if self.step == 0:
            return given
        places: Pointers = () if self._first else (("const int *__restrict__ ", "places"),)
        return (*given, *places, ("const int *__restrict__ ", "counts"), ("const int *__restrict__ ", "totals"))

    @property
    def writes(self) -> Pointers:
        written: tuple[Pointers, ...] = (
            (("int *", "counts"),),
            (("int *", "counts"), ("int *", "totals")),
            (("unsigned *", "sorted"), ("int *", "order")),
        )
        return written[self.step]

    @property
    def code(self) -> Code:
        first = self._first
        text = f"using I = {C_TYPES[self.digits.ids if first else DType.I32]};\n" + self.numbers.text()
        text += f"{arguments(self.reads, self.writes)}#define STEP {self.step}\n"
        text += f"#define GIVEN_KEYS {{{'ids, nullptr' if first else 'nullptr, keys'}}}\n"
        text += f"#define GIVEN_PLACES {'order' if first else 'places'}\n"
        sizes = {"THREADS": _BLOCK_THREADS, "TILE": self.digits.tile, "BITS": self.digits.bits[self.number]}
        sizes["DIGITS"] = self.digits.values(self.number)
        return Code("row_digits.cu", text + constants(**sizes, FIRST=int(first)))


@dataclass(frozen=True)
class RowStarts(Numbered):
    """``k(keys, starts, numbers)``: where each key begins."""

    digits: Digits
    reads: ClassVar[Pointers] = (("const unsigned *__restrict__ ", "keys"),)
    writes: ClassVar[Pointers] = (("int *__restrict__ ", "starts"),)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.digits.keys // _BLOCK_THREADS + 1, 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def numbers(self) -> Numbers:
        return Numbers(ALL=self.digits.all, KEYS=self.digits.keys)

    @property
    def code(self) -> Code:
        text = self.numbers.text() + arguments(self.reads, self.writes)
        return Code("row_starts.cu", text + constants(THREADS=_BLOCK_THREADS))


def ordered(digits: Digits, ids: Argument, order: Argument, starts: Argument, scratch: int) -> list[Launch]:
    """The launches that write ``order`` and ``starts`` of ids; as many blocks of scratch memory as ``digits`` says,
    from number ``scratch`` on."""
    passes, size = len(digits.bits), 4 * digits.all
    widest = 1 << max(digits.bits)
    counts, totals = Scratch(scratch, 4 * widest * digits.blocks), Scratch(scratch + 1, 4 * widest)
    keys = Scratch(scratch + 2, size), Scratch(scratch + 3, size)
    places = order, Scratch(scratch + 4, size)
    found: list[Launch] = []
    given: tuple[Argument, ...] = (ids,)
    for number in range(passes):
        to = (passes - 1 - number) % 2  # the last pass writes to the first of each
        found += [
            Launch(RowDigits(digits, number, 0), given[:1], (counts,)),
            Launch(RowDigits(digits, number, 1), (), (counts, totals)),
            Launch(RowDigits(digits, number, 2), (*given, counts, totals), (keys[to], places[to])),
        ]
        given = keys[to], places[to]
    return [*found, Launch(RowStarts(digits), (keys[0],), (starts,))]


@lowers("row_order", target="cuda")
def row_order(node: Node) -> list[Launch] | None:
    return order_of(node, node.outputs, 0)


def order_of(node: Node, results: Sequence[Argument], scratch: int) -> list[Launch] | None:
    """The launches of a ``row_order`` that write ``results``; None if it is too large. ``scratch`` as for
    ``ordered``."""
    [ids], count = node.input_types, int_attr(node.attrs, "count")
    parts, length = ids.ints
    digits = Digits(as_signed(ids.dtype), parts, length, count)
    if not digits.all or max(digits.all, digits.keys) >= I32_ELEMENTS - 1:
        return None
    order, starts = results
    return ordered(digits, node.inputs[0], order, starts, scratch)


def as_signed(dtype: DType) -> DType:
    """The dtype with the same bits that adds and multiplies alike; as an index, what a signed one cannot hold is
    negative, and so outside of each axis."""
    return {DType.U64: DType.I64, DType.U32: DType.I32}.get(dtype, dtype)
