"""Tiled attention of 16-bit floats on tensor cores: neither scores nor probabilities go to memory.

The forward pass is one kernel. The backward pass computes the sums of dy * y, then runs one kernel by queries for dq
and one by keys for dk and dv. Used as ``fits_tiles`` says: if q, k and v have the same number of features, a
multiple of 8 up to 128, and the scale is positive; ``attention/lower.py`` handles the rest. In a tile, rows have 32, 64
or 128 features, of which those that do not exist are zeros. Operands and results may be views of tensors
(``StridedAttention``). A mask is read where it lies, with strides of 0 along the axes over which it is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Access, RegionBuilder
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import View, masks, masks_of, places, whole
from dslc.compiler.ops.products.attention_terms import window_of

Mode = Literal["forward", "dq", "dkdv"]
_MODES: Final[tuple[Mode, ...]] = ("forward", "dq", "dkdv")
#: The tensors that each kernel reads and writes in rows, in the order of ``TiledAttention.layouts``.
_ROWS: Final[dict[Mode, tuple[str, ...]]] = {
    "forward": ("Q", "K", "V", "Y"), "dq": ("Q", "K", "V", "DY", "DQ"), "dkdv": ("Q", "K", "V", "DY", "DK", "DV")
}  # fmt: skip


@described("Tile", "warps tall others stages held")
@dataclass(frozen=True, slots=True)
class Tile:
    """``warps`` of ``tall`` times 16 rows, which process ``others`` other rows at a time; ``stages`` of these are in
    shared memory.

    ``held``: a warp's own rows stay in registers.
    """

    warps: int
    tall: int
    others: int
    stages: int
    held: bool

    @property
    def rows(self) -> int:
        return self.warps * self.tall * 16


_WIDTHS: Final = (32, 64, 128)  # features of the rows of a tile
#: By mode and width: the fastest tile that fits registers and shared memory, measured on an H200.
TILES: Final[dict[tuple[Mode, int], Tile]] = {
    ("forward", 32): Tile(4, 2, 64, 3, True),
    ("forward", 64): Tile(4, 2, 64, 2, True),
    ("forward", 128): Tile(4, 2, 32, 2, False),
    ("dq", 32): Tile(4, 2, 64, 2, True),
    ("dq", 64): Tile(4, 1, 64, 2, True),
    ("dq", 128): Tile(4, 1, 64, 2, False),
    ("dkdv", 32): Tile(4, 1, 64, 2, True),
    ("dkdv", 64): Tile(4, 2, 32, 2, False),
    ("dkdv", 128): Tile(4, 1, 64, 2, False),
}


@described("Tiled", "mode dtype stack inner share layouts mask own other features causal window scale tile file")
@dataclass(frozen=True)
class TiledAttention(CppKernel):
    """One kernel: processes ``own`` rows (queries, or keys for dk and dv) against ``other`` rows, for each of
    ``stack``.

    The stack has two axes, the last one of ``inner`` heads of q, ``share`` of which read one head of k. ``layouts``: of
    each of the tensors ``_ROWS``, its first element, and its strides along these axes and from row to row, in elements.
    ``mask``: the same, for queries as rows, and the stride from key to key; empty without a mask. ``window``: as of the
    op, 0 without one.
    """

    mode: Mode
    dtype: DType
    stack: int
    inner: int
    share: int
    layouts: tuple[tuple[int, ...], ...]
    mask: tuple[int, ...]
    own: int
    other: int
    features: int
    causal: bool
    window: int
    scale: float
    tile: Tile
    file: str = "attention.cu"

    @property
    def width(self) -> int:
        """Features of the rows of a tile."""
        return width_of(self.features)

    @property
    def geometry(self) -> Geometry:
        t, row = self.tile, 2 * self.width
        own = (1 if self.mode == "forward" else 2) * t.rows * row
        stage = 2 * t.others * row + (8 * t.others if self.mode == "dkdv" else 0)
        blocks = -(-self.own // t.rows) * self.stack
        return Geometry((blocks, 1, 1), (32 * t.warps, 1, 1), own + t.stages * stage)

    def head(self) -> str:
        t = self.tile
        text = f'#define MODE {_MODES.index(self.mode)}\n#define MMA_TYPE "{self.dtype.value}"\n'
        text += f"using T = {C_TYPES[self.dtype]};\nconstexpr float SCALE = (float){float(self.scale).hex()};\n"
        for name, layout in zip(_ROWS[self.mode], self.layouts, strict=True):
            text += f"#define {name} {{{', '.join(map(str, layout))}}}\n"
        text += f"#define MASKED {int(bool(self.mask))}\n"
        if self.mask:
            text += f"#define MASK {{{', '.join(map(str, self.mask))}}}\n"
        return text + constants(
            INNER=self.inner, SHARE=self.share, D=self.width, FEATURES=self.features, OWN_COUNT=self.own,
            OTHER_COUNT=self.other, CAUSAL=int(self.causal), WINDOW=self.window,
            WARPS=t.warps, TALL=t.tall, OTHERS=t.others, STAGES=t.stages, HELD=int(t.held),
        )  # fmt: skip


def _tiled(node: Node, mode: Mode, views: Sequence[View]) -> TiledAttention:
    """The kernel of a node on plain tensors. ``views``: of the tensors ``_ROWS``."""
    q, k = node.input_types[:2]
    queries, keys, features = q.ints[-2], k.ints[-2], q.ints[-1]
    own, other = (keys, queries) if mode == "dkdv" else (queries, keys)
    causal, scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
    found = places(views, [masks(node, x) for x in masks_of(node)])
    assert found is not None
    stack = prod((k if mode == "dkdv" else q).ints[:-2])
    return TiledAttention(
        mode, q.dtype, stack, found.inner, found.share, found.rows, found.mask, own, other, features, causal,
        window_of(node.attrs), scale, TILES[mode, width_of(features)],
    )  # fmt: skip


def width_of(features: int) -> int:
    """The width of the tiles for heads with so many features."""
    return next(width for width in _WIDTHS if features <= width)


def sdpa(node: Node, views: Sequence[View] = ()) -> list[Launch]:
    """``views``: of q, k, v and y."""
    views = views or [whole(t.ints) for t in (*node.input_types[:3], node.types[0])]
    return [Launch(_tiled(node, "forward", views), node.inputs, node.outputs)]


def sdpa_grad(node: Node, views: Sequence[View] = (), writes: Sequence[Value] = ()) -> list[Launch]:
    """``views``: of q, k, v, y, dy, dq, dk and dv. ``writes``: the outputs that dq, dk and dv are views of."""
    (q, k, v, y, lse, dy, *mask), (dq, dk, dv) = node.inputs, writes or node.outputs
    views = views or [whole(x.type.ints) for x in (q, k, v, y, dy, dq, dk, dv)]
    *operands, in_y, in_dy = views[:5]
    shape = in_y.shape
    delta = Scratch(0, prod(shape[:-1]) * DType.F32.itemsize)
    reads = [Access(y.type.dtype, _strides(view), view.start) for view in (in_dy, in_y)]
    sums = RegionBuilder(shape[:-1], shape[-1:], reads, [Access(DType.F32, _strides(whole((*shape[:-1], 1))))])
    sums.element()
    total = sums.reduce("sum", sums.let(sums.input(0) * sums.input(1), DType.F32))
    sums.row()
    sums.store(0, total)
    given: tuple[Value | Scratch, ...] = (q, k, v, lse, delta, dy, *mask)
    return [
        Launch(sums.region(), (dy, y), (delta,)),
        Launch(_tiled(node, "dq", [*operands, in_dy, views[5]]), given, (dq,)),
        Launch(_tiled(node, "dkdv", [*operands, in_dy, *views[6:]]), given, (dk, dv)),
    ]


def _strides(view: View) -> tuple[int, ...]:
    """Its strides, 0 for axes of size 1."""
    return tuple(stride if size != 1 else 0 for size, stride in zip(view.shape, view.strides))
