"""The op topk as GPU kernels: short lines are read once for each element taken; of longer ones, tiles are sorted, and
then what is first in each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.cuda.ops.sort.lines import Lines, Places, key_of, turned
from dslc.compiler.codegen.cuda.ops.sort.radix_sort import first_of_tiles, radix_sorted, tile_of
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.ir import Access
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, int_attr

_MAX_WARP_LINE: Final = 256  # most elements of a line that one warp handles
_MAX_HELD: Final = 16  # elements of a line that a thread holds in registers at most
_MAX_READ_LINE: Final = 1 << 14  # most elements of a line, of enough to keep a GPU busy, that is read several times
_MANY_LINES: Final = 4 * H200.multiprocessors  # that keep a GPU busy with a block each
_MAX_READS: Final = 4  # how many times, at most
_BLOCK: Final = 256
_MANY: Final = 4  # if more than one in so many elements of a tile are wanted, the whole tile is sorted


@described("TopK", "dtype before count after k largest file")
@dataclass(frozen=True)
class TopK(CppKernel):
    """``k(x, values, places)``: the first ``k`` along the middle axis of x [before, count, after], with one block per
    line.

    It goes through each line ``k`` times, so it suits small ``k``.
    """

    dtype: DType
    before: int
    count: int
    after: int
    k: int
    largest: bool
    file: str = "topk.cu"

    @property
    def threads(self) -> int:
        return 32 if self.count <= _MAX_WARP_LINE else _BLOCK

    @property
    def items(self) -> int:
        """Elements of a thread in registers; 0 if they are read again."""
        items = -(-self.count // self.threads)
        return items if items <= _MAX_HELD else 0

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.before * self.after, 1, 1), (self.threads, 1, 1))

    def head(self) -> str:
        return (
            f"using T = {C_TYPES[self.dtype]};\n"
            + key_of(self.dtype)
            + f"#define ITEMS {self.items}\n"
            + constants(THREADS=self.threads, COUNT=self.count, AFTER=self.after, K=self.k, LARGEST=int(self.largest))
        )


@lowers("topk", target="cuda")
def topk(node: Node) -> list[Launch]:
    [x], axis = node.input_types, int_attr(node.attrs, "axis")
    k, largest = int_attr(node.attrs, "k"), bool_attr(node.attrs, "largest")
    before, count, after = prod(x.ints[:axis]), x.ints[axis], prod(x.ints[axis + 1 :])
    longest = _MAX_READ_LINE if before >= _MANY_LINES else _MAX_HELD * _BLOCK
    if count <= _MAX_WARP_LINE or (after == 1 and count <= longest and k <= _MAX_READS) or not x.bytes:
        return [Launch(TopK(x.dtype, before, count, after, k, largest), node.inputs, node.outputs)]
    lines = Lines(x.dtype, count, 1, before * after, largest)
    if after == 1:
        return _first(lines, k, node.inputs, node.outputs, 0)
    source = Scratch(0, x.bytes)
    found = replace(lines, count=k).held(1)
    back = zip((x.dtype, DType.I32), found, node.outputs)
    return [
        turned(x.dtype, before, (count, after), node.inputs[0], source),
        *_first(lines, k, (source,), found, 3),
        *(turned(dtype, before, (after, k), held, out) for dtype, held, out in back),
    ]


def _first(lines: Lines, k: int, x: Places, found: Places, free: int) -> list[Launch]:
    """The first k of contiguous lines: of each tile, then of what these are, until it is one tile."""
    tile, launches = tile_of(lines), list[Launch]()
    if _MANY * k > tile and lines.count > tile:
        return _first_of_all(lines, k, x, found, free)
    while lines.count > tile:
        last = (lines.count - 1) % tile + 1
        fewer = replace(lines, count=lines.count // tile * k + (min(k, last) if last < tile else 0))
        target = fewer.held(free)
        launches.append(first_of_tiles(lines, k, x, target))
        lines, x, free = fewer, target, free + 2
        tile = tile_of(lines)
    return [*launches, first_of_tiles(lines, k, x, found)]


def _first_of_all(lines: Lines, k: int, x: Places, found: Places, free: int) -> list[Launch]:
    """Sorts all, and copies the first k of each line."""
    ordered = lines.held(free)
    launches = radix_sorted(lines, x, ordered, free + 2)
    for dtype, source, target in zip((lines.dtype, DType.I32), ordered, found):
        region = copy((lines.all, k), Access(dtype, (lines.count, 1)), Access(dtype, (k, 1)))
        launches.append(Launch(region, (source,), (target,)))
    return launches
