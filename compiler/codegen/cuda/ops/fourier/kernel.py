"""The description of a kernel of Fourier transforms."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, constants
from dslc.compiler.codegen.cuda.hardware import WARP
from dslc.compiler.codegen.cuda.ops.fourier.butterflies import butterfly
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.products.fourier_plan import MOST_BYTES, least_wide, root_places

_THREADS: Final = 1024  # the most that a block may have
_EACH: Final = 16  # numbers of a thread, about
_WANTED: Final = 4096  # numbers of a block, about
_WIDE: Final = 32  # the most lines of a block whose own numbers are apart
_BANKS: Final = 16  # for numbers of two words
_COMPLEX: Final = "struct __align__(2 * sizeof(SUM)) Complex { SUM re, im; };\n"


@dataclass(frozen=True)
class Side:
    """What a kernel reads, or what it writes: ``parts``, 0 for real and 1 for imaginary ones, are tensors [., size,
    inner] of reals; without any it is one tensor of complex numbers. ``near``: a line's numbers follow one another,
    also where there are lines between. ``twice``: numbers count twice, for their conjugates."""

    size: int
    parts: tuple[int, ...]
    near: bool = False
    twice: bool = False


@dataclass(frozen=True)
class Transform(Numbered):
    """``k(x..., table, y..., numbers)``: ``lines`` transforms with stages of these orders, of [., middle, inner].

    ``given`` and ``results``: what it reads and writes; ``count``: the order of the whole transform. ``halved``: which
    of them are pairs of reals. ``roots``: of the table, before its own. ``chirp``: the numbers of the chirp, 0 without
    one. ``factors``: where the table has those between two kernels, by which complex results are multiplied.
    """

    dtype: DType
    orders: tuple[int, ...]
    count: int
    sign: int
    scale: float
    halved: str
    lines: int
    middle: int
    inner: int
    given: Side
    results: Side
    roots: int
    chirp: int = 0
    factors: int = 0

    @property
    def length(self) -> int:
        return prod(self.orders)

    @property
    def across(self) -> tuple[bool, bool]:
        """Whether neighbours in memory are numbers of neighbouring lines: of what is read, and of what is written."""
        between = self.middle * self.inner > 1
        return (self.inner > 1 if self.given.near else between), between

    @property
    def wide(self) -> int:
        """Lines of a block: as many as are read or written together, and enough blocks to keep the GPU busy."""
        bytes = self.dtype.computed.itemsize
        wanted, least = max(1, _WANTED // self.length), 1
        if any(self.across):
            least = least_wide(bytes)
            wanted = min(_WIDE, max(least, 1 << wanted.bit_length() - 1))
        assert least * self.length * 2 * bytes <= MOST_BYTES, "the plan has longer transforms than fit"
        while wanted > least and -(-self.lines // wanted) < 2 * H200.multiprocessors:
            wanted = max(least, wanted // 2)
        return wanted

    @property
    def threads(self) -> int:
        numbers = self.wide * self.length
        most = max(-(-numbers // order // max(1, _EACH // order)) for order in self.orders)
        return min(_THREADS, -(-most // WARP) * WARP)

    @property
    def pitch(self) -> int:
        """From a line to the next in shared memory; lines next to each other are in different banks if one thread has
        each."""
        least = self.length + -(-self.length // _BANKS)
        if not any(self.across):
            return least
        step = max(1, _BANKS // self.wide)
        return least + (step - least) % _BANKS

    @property
    def geometry(self) -> Geometry:
        shared = 2 * self.dtype.computed.itemsize * self.wide * self.pitch if self.is_held else 0
        return Geometry((-(-self.lines // self.wide), 1, 1), (self.threads, 1, 1), shared)

    @property
    def is_held(self) -> bool:
        """Whether numbers wait in shared memory."""
        return len(self.orders) > 1 or self.chirp > 0 or self.halved == "given"

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers(LINES=self.lines)
        numbers.divisor("INNER", self.inner)
        return numbers

    @property
    def code(self) -> Code:
        sum_type = C_TYPES[self.dtype.computed]
        text = f"using T = {C_TYPES[self.dtype]};\nusing SUM = {sum_type};\n" + self.numbers.text()
        text += constants(
            LENGTH=self.length, MIDDLE=self.middle, WIDE=self.wide, THREADS=self.threads, PITCH=self.pitch,
            COUNT=self.count, READ_SIZE=self.given.size, WRITTEN_SIZE=self.results.size, FIRST_ROOT=self.roots,
        )  # fmt: skip
        chirped = self.chirp + self.length if self.chirp else 0
        if self.chirp:
            text += constants(CHIRP=self.chirp, STAGE_ROOTS=root_places(self.orders))
        if self.halved:
            text += constants(HALF=self.count // 2, PAIR_ROOTS=root_places(self.orders) + chirped)
        across = dict(zip(("ACROSS_READ", "ACROSS_WRITTEN"), self.across))
        twice = {"TWICE_READ": self.given.twice, "TWICE_WRITTEN": self.results.twice}
        flags = {**across, **twice, "NEAR": self.given.near}
        text += "".join(f"constexpr bool {name} = {str(value).lower()};\n" for name, value in flags.items())
        text += f"#define PAIRED {int(self.is_paired)}\n#define SCALED {self._scaled}\n"
        halved = ("", "given", "results").index(self.halved)
        text += f"#define CHIRPED {int(self.chirp > 0)}\n#define HALVED {halved}\n"
        text += f"#define ORDERS {', '.join(map(str, self.orders))}\n"
        listed, read = self._reading()
        written, write = self._writing()
        text += f"#define ARGUMENTS {', '.join([*listed, 'const SUM *__restrict__ table', *written])}\n"
        text += f"#define READ(at) {read}\n#define WRITE(at, x) {write}\n"
        sign = -1 if self.chirp else self.sign
        orders = dict.fromkeys(self.orders)
        text += _COMPLEX + "".join(butterfly(order, sign, self.dtype.computed) for order in orders)
        return Code("fourier.cu", text)

    @property
    def is_paired(self) -> bool:
        """Whether a pair of reals is one word of memory, and every one is whole."""
        sides = {"given": self.given, "results": self.results}
        if self.halved not in sides or self.inner > 1:
            return False
        side = sides[self.halved]
        return side.size % 2 == 0 and not side.twice

    @property
    def _scaled(self) -> str:
        return "" if self.scale == 1.0 else f" * SUM({self.scale.hex()})"

    def _reading(self) -> tuple[list[str], str]:
        """Arguments, and the number at a place."""
        if not self.given.parts:
            return ["const Complex *__restrict__ x"], "x[at]"
        listed = [f"const T *__restrict__ x{i}" for i in range(len(self.given.parts))]
        values = [f"wide(x{i}[at])" for i in range(len(listed))]
        if len(values) == 1:
            return listed, f"Complex{{{values[0]}, SUM(0)}}"
        if self.halved == "results" and self.results.parts == (1,):  # the real parts of the same times -i
            values = [values[1], f"-{values[0]}"]
        return listed, f"Complex{{{', '.join(values)}}}"

    def _writing(self) -> tuple[list[str], str]:
        if not self.results.parts:
            return ["Complex *y"], f"y[at] = times(x, roots[{self.factors - self.roots} + number])"
        listed = [f"T *__restrict__ y{i}" for i in range(len(self.results.parts))]
        members = ("re", "re") if self.halved == "results" else ("re", "im")
        values = [f"store(y{i} + (at), x.{members[part]}{self._scaled})" for i, part in enumerate(self.results.parts)]
        return listed, ", ".join(values)
