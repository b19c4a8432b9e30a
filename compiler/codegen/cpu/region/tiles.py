"""Pointwise regions that read an input across its lines, such as a transpose, in square tiles.

An input that is contiguous along another outer axis than the vectors' would be read element by element, each of another
line of memory. That is fast while the lines of a row of the result stay in the nearest cache until the next row reads
them. Otherwise a tile of the input is read in whole vectors, transposed in registers and kept on the stack; then the
rows of the tile read it like any other input. No result depends on this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from dslc.compiler.codegen.cpu.kernel_spec import KernelCode
from dslc.compiler.codegen.cpu.llvm.values import Values
from dslc.compiler.codegen.cpu.llvm.writer import VECTOR_BYTES, Code, Reg, memory_type, shuffle_of, wide
from dslc.compiler.codegen.cpu.region.kernel import Emitter, arguments_of
from dslc.compiler.codegen.cpu.region.row import Row
from dslc.compiler.codegen.cpu.region.schedule import Schedule
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.ir.described import described

_COLUMNS: Final = 256  # elements of a line that a task takes, of each of a tile's lines
_LINE: Final = 64  # bytes of a line of the cache
#: The nearest cache, 48 KiB of Intel's processors since 2019: sets of lines, and lines of a set. A line's address
#: chooses its set, so lines at distances of a power of two share few sets.
_SETS: Final = 64
_WAYS: Final = 12
_WHOLE: Final = 0.9  # least share of the elements in whole tiles; others are moved one by one
_NEAR: Final = 4  # strides up to this one are read in whole vectors without tiles


@described("CpuTiles", "axis lanes rest")
@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of ``lanes`` lines along the outer axis ``axis`` by ``lanes`` elements of the last outer axis, of which
    ``rest`` are left after whole vectors. A task is a row of tiles over ``_COLUMNS`` elements."""

    axis: int
    lanes: int
    rest: int

    def tasks(self, region: Region) -> int:
        """The number of tasks."""
        return self.pieces(region) * -(-region.outer[self.axis] // self.lanes) * math.prod(self.others(region))

    def pieces(self, region: Region) -> int:
        """Of the last axis."""
        return -(-region.outer[-1] // _COLUMNS)

    def others(self, region: Region) -> list[int]:
        """The sizes of the other outer axes."""
        return [n for axis, n in enumerate(region.outer[:-1]) if axis != self.axis]


def tiles_of(region: Region, schedule: Schedule) -> Tiles | None:
    """The tiles of a region; None if none of its inputs needs them, or too few would be full."""
    if not schedule.columns or region.inner or any(stage.element for stage in region.stages):
        return None
    lanes, last = schedule.lanes, len(region.outer) - 1
    if last < 1 or any(a.strides[last] != 1 or a.bits for a in region.outputs):
        return None
    found = [
        axis for axis in range(last)
        if _whole(region.outer[axis], lanes) * _whole(region.outer[last], lanes) >= _WHOLE
        and any(_is_across(a, axis) and not _stays(a, region.outer[last]) for a in region.inputs)
    ]  # fmt: skip
    return Tiles(found[-1], lanes, region.outer[last] % lanes) if found else None


def _whole(size: int, lanes: int) -> float:
    """The share of an axis in whole vectors."""
    return (size - size % lanes) / size


def _stays(access: Access, count: int) -> bool:
    """Whether the lines of ``count`` elements along the last axis fit into the nearest cache together."""
    lines, rest = divmod(abs(access.strides[-1]) * access.dtype.itemsize, _LINE)
    return count <= _WAYS * (_SETS if rest else _SETS // math.gcd(lines, _SETS))


def _is_across(access: Access, axis: int) -> bool:
    plain = access.repeat == 1 and not access.bits
    return plain and access.strides[axis] == 1 and abs(access.strides[-1]) > _NEAR


@described("CpuTiledRegion", "region tiles")
@dataclass(frozen=True, slots=True)
class TiledKernel(KernelCode):
    """As ``RegionKernel``, in tiles."""

    region: Region
    tiles: Tiles

    def emit(self, code: Code) -> None:
        TileEmitter(code, self.region, self.tiles, *arguments_of(code, self.region)).run()


class TileEmitter(Emitter):
    """``memory``: of each input that is read across, a tile on the stack. ``row``: of the tile that is computed."""

    def __init__(self, code: Code, region: Region, tiles: Tiles, pointers: list[Any], numbers: list[Any]) -> None:
        super().__init__(code, region, Schedule(True, False, tiles.lanes, 1, tiles.rest), pointers, numbers)
        self.tiles = tiles
        self.across = [n for n, a in enumerate(region.inputs) if n in self.facts.read and _is_across(a, tiles.axis)]
        size = tiles.lanes**2
        self.memory = {
            n: code.local(memory_type(region.inputs[n].dtype), size, align=VECTOR_BYTES) for n in self.across
        }
        self.row: Any = 0

    def run(self) -> None:
        code, region, tiles = self.code, self.region, self.tiles
        height, last = self.sizes[tiles.axis], region.outer[-1]
        strips = self._strips(height)
        others, pieces = tiles.others(region), tiles.pieces(region)
        with code.loop(code.last, code.first) as task:
            rest, strip = code.b.udiv(task, strips), code.b.urem(task, strips)
            point, piece = code.divmod(rest, pieces)
            index = code.unravel(point, others)
            top, start = code.mul(strip, tiles.lanes), code.mul(piece, _COLUMNS)
            outer = [*index[: tiles.axis], top, *index[tiles.axis :]]
            count = code.least(tiles.lanes, code.b.sub(code.int(height), code.int(top)))
            stop = last if pieces == 1 else code.least(code.add(start, _COLUMNS), last)

            def work(column: Any, lanes: int) -> None:
                self._tile([*outer, column], lanes, count)

            self._vectors(start, stop, last, work)

    def _strips(self, height: Any) -> Any:
        if isinstance(height, int):
            return self.code.int(-(-height // self.tiles.lanes))
        return self.code.b.udiv(self.code.add(height, self.tiles.lanes - 1), self.code.int(self.tiles.lanes))

    def _tile(self, outer: list[Any], lanes: int, count: Any) -> None:
        """``count`` rows from ``outer`` on, of ``lanes`` elements each."""
        code, axis = self.code, self.tiles.axis
        for number in self.across:
            access = self.region.inputs[number]
            begin: Any = self.offset(access)
            for at, stride in zip(outer, access.strides):
                begin = code.add(begin, code.mul(at, self.number(stride)))
            if lanes < self.tiles.lanes:
                self._piece(number, begin, lanes, count)
                continue
            full = code.b.icmp_signed("==", count, code.int(lanes))
            with code.b.if_else(full) as (then, otherwise):
                with then:
                    self._whole(number, begin)
                with otherwise:
                    self._piece(number, begin, lanes, count)
        with code.loop(count) as row:
            self.row = row
            _TileRow(self, [*outer[:axis], code.add(outer[axis], row), *outer[axis + 1 :]], lanes, lanes).run()

    def _piece(self, number: int, begin: Any, lanes: int, count: Any) -> None:
        """Keeps a part of a tile, element by element."""
        code, access, memory = self.code, self.region.inputs[number], self.memory[number]
        type = memory_type(access.dtype)
        with code.loop(lanes) as lane:
            source = code.add(begin, code.mul(lane, self.number(access.strides[-1])))
            with code.loop(count) as row:
                place = code.at(self.inputs[number], code.add(source, row), type)
                value = code.b.load(place, typ=type, align=access.dtype.itemsize)
                target = code.add(code.mul(row, self.tiles.lanes), lane)
                code.b.store(value, code.at(memory, target, type), align=access.dtype.itemsize)

    def _whole(self, number: int, begin: Any) -> None:
        """Keeps a tile: vectors along its lines are transposed by halves, quarters and so on."""
        code, access, lanes = self.code, self.region.inputs[number], self.tiles.lanes
        element = memory_type(access.dtype)
        found = []
        for lane in range(lanes):
            offset = code.add(begin, code.mul(lane, self.number(access.strides[-1])))
            place = code.at(self.inputs[number], offset, element)
            found.append(code.b.load(place, typ=wide(element, lanes), align=access.dtype.itemsize))
        for row, vector in enumerate(transposed(code, found)):
            place = code.at(self.memory[number], row * lanes, element)
            code.b.store(vector, place, align=min(VECTOR_BYTES, lanes * access.dtype.itemsize))


def transposed(code: Code, vectors: list[Any]) -> list[Any]:
    """As many vectors as each has lanes, a power of two: vector i has lane i of each."""
    found, step = list(vectors), len(vectors) // 2
    count = len(vectors)
    while step:
        for i in range(count):
            if i & step:
                continue
            low, high = found[i], found[i + step]
            lanes = range(count)
            first = shuffle_of(*[lane if not lane & step else count + lane - step for lane in lanes])
            second = shuffle_of(*[lane + step if not lane & step else count + lane for lane in lanes])
            found[i] = code.b.shuffle_vector(low, high, first)
            found[i + step] = code.b.shuffle_vector(low, high, second)
        step //= 2
    return found


class _TileRow(Row):
    """A row of a tile."""

    emitter: TileEmitter

    def _input(self, number: int) -> Reg | None:
        memory = self.emitter.memory.get(number)
        if memory is None:
            return super()._input(number)
        dtype = self.region.inputs[number].dtype
        return Values(self.code, self.lanes).load(
            memory, self.code.mul(self.emitter.row, self.emitter.tiles.lanes), 1, dtype
        )
