"""The code of a contraction. Layers and batch sizes share it: sizes and strides are arguments unless they shape it.

Register tiles and what is left of an axis after whole tiles shape the code, and so do strides of -1, 0 and 1, short
inner axes, which are unrolled, and axes that fit one tile. Many units of few products have constants only: they would
spend a noticeable part of their time on addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from dslc.compiler.codegen.cpu.contraction.axes import Axis, best_width, divisor
from dslc.compiler.codegen.cpu.contraction.kernel_code import TIMES, Emitter
from dslc.compiler.codegen.cpu.kernel_spec import ARGUMENT, KernelCode
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.llvm.writer import Code
from dslc.compiler.ir.described import described
from dslc.compiler.ir.types import DType

if TYPE_CHECKING:
    from dslc.compiler.codegen.cpu.contraction.kernel import Contraction

_UNROLL: Final = 9  # most inner indices unrolled without a loop
_COMMON: Final = 24  # tiles of a split axis divide this
_FEWEST: Final = 16384  # vector products of a unit from which on numbers are always arguments
_MANY: Final = 16  # units from which on their addresses take time, if a unit has fewer products


@described("Tile", "registers vectors lane_rows row_tile outer_tile lane_rest row_rest")
@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of the result on levels with so many ``registers``: vectors along the lanes, rows along the lane axis
    before, along the last row axis and along the one before; and the rest of both last axes after whole tiles."""

    registers: int
    vectors: int
    lane_rows: int
    row_tile: int
    outer_tile: int
    lane_rest: int
    row_rest: int


@described(
    "ContractionCode",
    "dtype batch rows lanes inner starts panel steps units row_blocks lane_block chunk flat rest tiles near given",
)
@dataclass(frozen=True)
class ContractionCode(KernelCode):
    """The code of a ``Contraction``, whose numbers from ``ARGUMENT`` on are arguments after the pointers.

    ``steps``: elements of a panel of b, and units per task. ``units``: all units, and units along each axis of the
    grid. ``lane_block``: 0 if a unit has all lanes; ``row_blocks``: the last is 0 if a unit has the whole axis.
    ``chunk``: indices of the first inner axis per block; 0: all. ``flat``: the inner axes from here on are unrolled;
    ``rest``: the innermost loop does not run a multiple of its unrolled times. ``near``: the most indices of the inner
    axis whose elements of a a unit copies for each tile of rows; 0: it copies none.
    """

    tiled: ClassVar[bool] = True
    dtype: DType
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    starts: tuple[int, ...]
    panel: int
    steps: tuple[int, int]
    units: tuple[int, ...]
    row_blocks: tuple[int, ...]
    lane_block: int
    chunk: int
    flat: int
    rest: bool
    tiles: tuple[Tile, ...]
    near: int
    given: int

    def emit(self, code: Code) -> None:
        registers = code.registers
        Emitter(code, self, next(tile for tile in self.tiles if tile.registers == registers)).run()


@dataclass
class _Numbers:
    """The numbers of a launch: arguments, or constants of its code if ``known``."""

    known: bool
    given: list[int] = field(default_factory=list)

    def take(self, number: int, known: bool = False, shaping: tuple[int, ...] = (-1, 0, 1)) -> int:
        """The number in the code; ``shaping``: numbers that always shape it."""
        if self.known or known or number in shaping:
            return number
        self.given.append(number)
        return ARGUMENT + len(self.given) - 1

    def axis(self, axis: Axis, known: bool = False, c: bool = False) -> Axis:
        """``known``: the size is part of the code; ``c``: the stride of c is."""
        take = self.take
        return Axis(take(axis.size, known), take(axis.a), take(axis.b), take(axis.c, c))


def shared(spec: Contraction) -> tuple[ContractionCode, tuple[int, ...]]:
    """The code that all contractions with the same text share, and the arguments of this one, in the order of fields in
    which they are taken here."""
    tiles = tuple(_tile(spec, registers) for registers in sorted({level.registers for level in LEVELS.values()}))
    numbers = _Numbers(_is_of_many_small_units(spec))
    first = spec.inner[0].size
    chunk = max(1, spec.k_block * first // spec.depth)
    chunk = chunk if first > chunk * 3 // 2 else 0
    flat, rest = _unrolled([x.size for x in spec.inner], bool(chunk))
    code = ContractionCode(
        dtype=spec.dtype,
        batch=tuple(numbers.axis(x) for x in spec.batch),
        rows=_rows(spec, tiles, numbers),
        lanes=_lanes(spec, tiles, numbers),
        inner=_inner(spec, flat, numbers),
        starts=tuple(numbers.take(x) for x in spec.starts),
        panel=spec.panel,
        steps=(numbers.take((spec.panel_depth or spec.depth) * spec.panel), numbers.take(spec.group)),
        units=_units(spec, numbers),
        row_blocks=_row_blocks(spec, tiles, numbers),
        lane_block=numbers.take(spec.lane_block) if spec.lane_block < spec.lanes[-1].size else 0,
        chunk=numbers.take(chunk),
        flat=flat,
        rest=rest,
        tiles=tiles,
        near=spec.k_block * 3 // 2 if spec.near else 0,
        given=len(numbers.given),
    )
    return code, tuple(numbers.given)


def _is_of_many_small_units(spec: Contraction) -> bool:
    """Whether addresses would take a noticeable part of the time of each of many units."""
    vectors = -(-min(spec.lane_block, spec.lanes[-1].size) // spec.vector)
    lanes = math.prod(x.size for x in spec.lanes[:-1]) * vectors
    return math.prod(spec.row_blocks) * lanes * spec.depth < _FEWEST and math.prod(spec.grid) >= _MANY


def _rows(spec: Contraction, tiles: Sequence[Tile], numbers: _Numbers) -> tuple[Axis, ...]:
    """The last axis is part of the code if it fits a tile; so is c's stride along the axis before it, if tiles have
    several rows along that."""
    last, outer = len(spec.rows) - 1, len(spec.rows) - 2
    fits = spec.rows[last].size <= max(tile.row_tile for tile in tiles)
    return tuple(
        numbers.axis(x, known=i == last and fits, c=i == outer and _outer_tile(tiles) > 1)
        for i, x in enumerate(spec.rows)
    )


def _lanes(spec: Contraction, tiles: Sequence[Tile], numbers: _Numbers) -> tuple[Axis, ...]:
    """An axis is part of the code if it fits a tile."""
    last = spec.lanes[-1]
    widths = [max(_width(spec, tile) if x is last else tile.lane_rows for tile in tiles) for x in spec.lanes]
    return tuple(numbers.axis(x, known=x.size <= width) for x, width in zip(spec.lanes, widths))


def _inner(spec: Contraction, flat: int, numbers: _Numbers) -> tuple[Axis, ...]:
    """Unrolled axes are part of the code, and so is the distance of neighbours in a panel of b."""
    return tuple(
        Axis(
            numbers.take(x.size, i >= flat),
            numbers.take(x.a),
            numbers.take(x.b, spec.panel > 0 and x.b == spec.panel),
        )
        for i, x in enumerate(spec.inner)
    )


def _units(spec: Contraction, numbers: _Numbers) -> tuple[int, ...]:
    """All units, then those along each axis of the grid. If the last axis of lanes or of rows is in one unit, the code
    has no loop over it."""
    lanes, rows = len(spec.batch), len(spec.grid) - 1
    every = numbers.take(math.prod(spec.grid), shaping=())
    return every, *(numbers.take(x, i in (lanes, rows) and x == 1, shaping=()) for i, x in enumerate(spec.grid))


def _row_blocks(spec: Contraction, tiles: Sequence[Tile], numbers: _Numbers) -> tuple[int, ...]:
    """The last is 0 if a unit has the whole axis; the one before is part of the code if it fits a tile."""
    last, outer = len(spec.rows) - 1, len(spec.rows) - 2
    return tuple(
        0
        if i == last and block == axis.size
        else numbers.take(block, i == outer and 1 < block <= _outer_tile(tiles), shaping=())
        for i, (block, axis) in enumerate(zip(spec.row_blocks, spec.rows))
    )


def _outer_tile(tiles: Sequence[Tile]) -> int:
    return max(tile.outer_tile for tile in tiles)


def _width(spec: Contraction, tile: Tile) -> int:
    return tile.vectors * spec.vector


def _tile(spec: Contraction, registers: int) -> Tile:
    """The tile for so many registers, of which a quarter is left for operands."""
    lanes = spec.lanes[-1].size
    budget = registers * 3 // 4
    most = max(1, math.isqrt(budget) - (0 if registers > 8 else 1))
    if spec.panel:
        vectors = divisor(spec.panel // spec.vector, most)
    else:
        vectors = min(best_width(lanes, spec.vector), most)
    whole = len(spec.lanes) == 2 and vectors * spec.vector >= lanes
    lane_rows = divisor(spec.lanes[0].size, most // vectors) if whole else 1
    rows = max(1, budget // (vectors * lane_rows))
    block, size = spec.row_blocks[-1], spec.rows[-1].size
    if block == size:
        even = -(-size // -(-size // rows))
        exact = divisor(size, rows)
        row_tile = exact if 3 * exact >= 2 * even else even
    else:
        row_tile = divisor(_COMMON, rows)
    outer_tile = 1
    if row_tile == size and len(spec.rows) > 1:
        outer_tile = divisor(spec.row_blocks[-2], rows // size)
    return Tile(registers, vectors, lane_rows, row_tile, outer_tile, lanes % (vectors * spec.vector), size % row_tile)


def _unrolled(sizes: Sequence[int], blocked: bool) -> tuple[int, bool]:
    """The first of the innermost axes that are unrolled completely, since they are short; and whether the loop around
    them leaves a rest. The first axis is not unrolled if it is summed in blocks."""
    flat, least = len(sizes), int(blocked)
    while flat > least and math.prod(sizes[flat - 1 :]) <= _UNROLL:
        flat -= 1
    return flat, flat > 0 and (sizes[flat - 1] % TIMES > 0 or (blocked and flat == 1))
