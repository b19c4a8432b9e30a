"""The division of a resident kernel among blocks and threads: what each of them computes and keeps, and where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.ir.graph import Value
from dslc.compiler.ir.sizes import ceil_div

#: Blocks that are on a device at once, one on each multiprocessor: as many as the smallest GPU for servers of compute
#: capability 9.0 or newer has, an H100 for PCIe (NVIDIA H100 Tensor Core GPU Architecture, 2022).
MOST_BLOCKS: Final = 114
PLACES: Final = 2  # buffers of a value that blocks exchange: they read one while they write the other
_MOST_EACH: Final = 4  # elements of a thread
_ALIGNED: Final = 256  # bytes
# The model of a step, for an H200. A multiprocessor reads 64 bytes a cycle from the L2 cache, all of them together 5.5
# TB/s.
_CLOCK: Final = 1.7e9  # cycles a second
_PORT: Final = 64 * _CLOCK
_CACHE: Final = 5.5e12
#: Seconds from a block's last sum to the time when others have what it wrote: what two divisions of an LSTM's loop,
#: 16 x 768, took beyond the rest (benchmarks/README.md).
_TRIP: Final = 1.65e-6


@dataclass(frozen=True, slots=True)
class Exchange:
    """The scratch memory through which blocks exchange a value: its ``PLACES`` places begin at byte ``begin``, and each
    has ``size`` bytes."""

    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Word:
    """What blocks exchange at once, 16 bytes: so many ``elements`` and the number of the step. ``threads`` fill it
    together, of which the last have no element."""

    elements: int
    threads: int


@dataclass(frozen=True)
class Division(ABC):
    """Each block has ``warps`` and owns ``columns`` of the states [rows, width]: it computes them in each step, and
    keeps the columns of the matrices that they need."""

    cell: Cell
    warps: int
    columns: int

    @property
    @abstractmethod
    def word(self) -> Word:
        """What blocks exchange."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Those of ``kernels/`` with the words and the products."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def blocks(self) -> int:
        """Blocks of the kernel."""
        return ceil_div(self.cell.width, self.columns)

    @property
    def words(self) -> int:
        """Words for the columns of a row that a block owns."""
        return ceil_div(self.columns, self.word.elements)

    @property
    def each(self) -> int:
        """Elements of a thread."""
        return ceil_div(self.cell.rows * self.word.threads * self.words, self.threads)

    def row(self, shared: Value) -> int:
        """Words of a row of a shared value."""
        return self.cell.groups(shared.type) * self.blocks * self.words

    def wide(self, product: Product) -> int:
        """Columns of a product that a block computes."""
        return product.node.types[0].ints[1] // self.cell.width * self.columns

    @property
    @abstractmethod
    def fits(self) -> bool:
        """Whether the matrices and the elements fit the registers and the shared memory."""

    @abstractmethod
    def pitch(self, shared: Value) -> int:
        """Words from row to row of a shared value."""

    @abstractmethod
    def sums_of(self, product: Product) -> int:
        """f32 elements of shared memory for the sums of a product in one step."""

    @abstractmethod
    def constants(self, product: Product) -> tuple[int, ...]:
        """The arguments of the kernel's ``Product`` after the groups of its result and its left factor."""

    @abstractmethod
    def cycles(self, product: Product) -> float:
        """Modelled cycles of a multiprocessor for a product in one step, when its left factor is there."""

    def arrival_cycles(self, product: Product) -> float:
        """Modelled cycles for which a block waits at least for words of a left factor, however few they are."""
        return 0

    @property
    def matrix_elements(self) -> list[int]:
        """Where in shared memory each product's matrix begins after the sums, and where they end, in f32 elements."""
        return [0] * (1 + len(self.cell.products))

    @property
    def has_few_elements(self) -> bool:
        """Whether a thread keeps few enough elements in registers."""
        return self.each <= _MOST_EACH

    @cached_property
    def sums(self) -> list[int]:
        """Where in shared memory the sums of each product begin, and where they end, in f32 elements."""
        return [*accumulate(map(self.sums_of, self.cell.products.values()), initial=0)]

    @property
    def matrices_at(self) -> int:
        """Where in shared memory the matrices begin, in f32 elements: after the sums of two steps."""
        return ceil_div(2 * self.sums[-1], 4) * 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * (self.matrices_at + self.matrix_elements[-1])

    def step_seconds(self, loops: int = 1) -> float:
        """Modelled time of a step: trips between blocks, and for each product the reading of its left factor and the
        work of a multiprocessor. ``loops``: so many run at once, each with blocks of its own."""
        seconds = self.cell.exchanges * _TRIP
        for product in self.cell.products.values():
            read = 16 * self.cell.rows * self.row(product.left)
            seconds += max(loops * self.blocks * read / _CACHE, read / _PORT) + self.cycles(product) / _CLOCK
            seconds += self.arrival_cycles(product) / _CLOCK
        return seconds

    @cached_property
    def exchange_memory(self) -> list[Exchange]:
        """Of each shared value."""
        sizes = [ceil_div(16 * self.cell.rows * self.pitch(value), _ALIGNED) * _ALIGNED for value in self.cell.shared]
        begins = accumulate((PLACES * size for size in sizes), initial=0)
        return [Exchange(begin, size) for begin, size in zip(begins, sizes)]

    @property
    def scratch_bytes(self) -> int:
        """All of the scratch memory; 0 in all of it before the kernel."""
        last = self.exchange_memory[-1]
        return last.begin + PLACES * last.size
