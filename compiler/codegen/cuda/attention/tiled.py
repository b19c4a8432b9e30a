"""Tiled attention of 16-bit floats or in TF32 on tensor cores: neither scores nor probabilities go to memory.

The forward pass is one kernel. The backward pass computes the sums of dy * y, then runs one kernel by queries for dq
and one by keys for dk and dv; of more than 128 features, registers hold only one of these, and each has a kernel. Used
as ``fits_tiles`` says: if q, k and v have the same number of features, up to 256, and the scale is
positive; ``attention/lower.py`` handles the rest. In a tile, rows have 32, 64, 128, 192 or 256 features, of which those
that do not exist are zeros. Operands and results may be views of tensors (``StridedAttention``). A mask lies where it
is, with strides of 0 along the axes over which it is broadcast; its part of a tile is copied to shared memory next to
the tile if there is room and its lines are multiples of 4 bytes, else threads read their bytes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.attention.pair_gradient import bias_gradient, fits_whole, whole_gradient
from dslc.compiler.codegen.cuda.attention.placed import head_of, terms_at
from dslc.compiler.codegen.cuda.attention.sums import Along, summed
from dslc.compiler.codegen.cuda.attention.tiles import Mode, Tile, tile_of, tiles_of, width_of
from dslc.compiler.codegen.cuda.cuda_cpp import CppKernel, constants
from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.device_model import GPU_ROW_SPLITS
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import View, pairs, places, terms_of, whole
from dslc.compiler.ops.products.attention_terms import share_of_heads, window_of

_MODES: Final[tuple[Mode, ...]] = ("forward", "dq", "dkdv", "dk", "dv")
_COPIED: Final = (16, 8, 4)  # bytes that an asynchronous copy may have
_APART: Final = 16  # bytes from the end of a line of a mask in shared memory to the next one
_BY_KEYS: Final = ("dkdv", "dk", "dv")
#: The tensors that each kernel reads and writes in rows, in the order of ``TiledAttention.layouts``.
_ROWS: Final[dict[Mode, tuple[str, ...]]] = {
    "forward": ("Q", "K", "V", "Y"), "dq": ("Q", "K", "V", "DY", "DQ"), "dkdv": ("Q", "K", "V", "DY", "DK", "DV"),
    "dk": ("Q", "K", "V", "DY", "DK"), "dv": ("Q", "K", "V", "DY", "DV"),
}  # fmt: skip
_BOTH: Final = 128  # features up to which one kernel computes dk and dv


@described(
    "Tiled", "mode dtype stack inner share parts layouts mask bias own other features causal window scale tile file"
)
@dataclass(frozen=True)
class TiledAttention(CppKernel):
    """One kernel: processes ``own`` rows (queries, or keys for dk and dv) against ``other`` rows, for each of
    ``stack``.

    The stack has two axes, the last one of ``inner`` heads of q, ``share`` of which read one head of k. ``parts``: so
    many blocks share the gradient of a head of k, each a result for some of these heads of q. ``layouts``: of
    each of the tensors ``_ROWS``, its first element, and its strides along these axes and from row to row, in elements.
    ``mask`` and ``bias``: the same, for queries as rows, and the stride from key to key; empty without one.
    ``window``: as of the op, 0 without one.
    """

    mode: Mode
    dtype: DType
    stack: int
    inner: int
    share: int
    parts: int
    layouts: tuple[tuple[int, ...], ...]
    mask: tuple[int, ...]
    bias: tuple[int, ...]
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
    def by_keys(self) -> bool:
        """Whether its own rows are keys."""
        return self.mode in _BY_KEYS

    @property
    def geometry(self) -> Geometry:
        t = self.tile
        blocks = -(-self.own // t.rows) * self.stack
        more = t.stages * self._mask_bytes if self.mask_chunk else 0
        return Geometry((blocks, 1, 1), (32 * t.warps, 1, 1), self._tile_bytes + more)

    @property
    def mask_chunk(self) -> int:
        """Bytes of a mask that are copied to shared memory at once with a tile; 0 if threads read it where it lies."""
        if not self.mask or self._tile_bytes + self.tile.stages * self._mask_bytes > BLOCK_SHARED_BYTES:
            return 0
        *lead, key = self.mask
        keys = self.own if self.by_keys else self.other
        fitting = (n for n in _COPIED if key == 1 and not any(each % n for each in (*lead, keys)))
        return next(fitting, 0)

    @property
    def _tile_bytes(self) -> int:
        """Shared memory without that of a mask."""
        t, row = self.tile, self.dtype.itemsize * self.width
        own = (1 if self.mode in ("forward", "dv") else 2) * t.rows * row
        return own + t.stages * (2 * t.others * row + (8 * t.others if self.by_keys else 0))

    @property
    def _mask_bytes(self) -> int:
        """Shared memory of a tile's mask."""
        t = self.tile
        queries, keys = (t.others, t.rows) if self.by_keys else (t.rows, t.others)
        return (queries if self.mask[3] else 1) * (keys + _APART)

    def head(self) -> str:
        t = self.tile
        text = f"#define MODE {_MODES.index(self.mode)}\n#define MASK_CHUNK {self.mask_chunk}\n"
        layouts = dict(zip(_ROWS[self.mode], self.layouts, strict=True))
        text += head_of(self.dtype, self.scale, self.features, layouts, self.mask, self.bias)
        return text + constants(
            INNER=self.inner, SHARE=self.share, PARTS=self.parts, D=self.width, FEATURES=self.features,
            OWN_COUNT=self.own, OTHER_COUNT=self.other, CAUSAL=int(self.causal), WINDOW=self.window,
            WARPS=t.warps, TALL=t.tall, OTHERS=t.others, STAGES=t.stages, HELD=int(t.held),
        )  # fmt: skip


def _tiled(node: Node, mode: Mode, views: Sequence[View], parts: int = 1) -> TiledAttention:
    """The kernel of a node on plain tensors. ``views``: of the tensors ``_ROWS``. With several ``parts``, dk and dv are
    ``[..., heads, parts, keys, features]``."""
    results = len(_ROWS[mode]) - 4  # those of a kernel by keys
    q, k = node.input_types[:2]
    queries, keys, features = q.ints[-2], k.ints[-2], q.ints[-1]
    own, other = (keys, queries) if mode in _BY_KEYS else (queries, keys)
    causal, scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
    window = window_of(node.attrs)
    if parts > 1:
        steps = whole((*k.ints[:-2], parts, keys, features)).strides
        views = [*views[:-results], *[View(k.ints, (*steps[:-3], *steps[-2:]))] * results]
    found = places(views, [pairs(node, x) for x in terms_of(node)])
    assert found is not None
    rows = found.rows
    mask, bias = terms_at(node, found)
    if parts > 1:
        of_parts = ((start, outer, inner // parts, row) for start, outer, inner, row in rows[-results:])
        rows = (*rows[:-results], *of_parts)
    stack = prod(k.ints[:-2]) * parts if mode in _BY_KEYS else prod(q.ints[:-2])
    return TiledAttention(
        mode, q.dtype, stack, found.inner, found.share, parts, rows, mask, bias, own, other, features, causal,
        window, scale, tile_of(q.dtype, mode, features, own, other, stack, window),
    )  # fmt: skip


def sdpa(node: Node, views: Sequence[View] = ()) -> list[Launch]:
    """``views``: of q, k, v and y."""
    views = views or [whole(t.ints) for t in (*node.input_types[:3], node.types[0])]
    return [Launch(_tiled(node, "forward", views), node.inputs, node.outputs)]


def sdpa_grad(node: Node, views: Sequence[View] = (), writes: Sequence[Value] = ()) -> list[Launch]:
    """``views``: of q, k, v, y, dy, dq, dk and dv. ``writes``: the outputs that dq, dk and dv are views of, and the
    gradient of a bias."""
    (q, k, v, y, lse, dy, *terms), (dq, dk, dv, *slopes) = node.inputs, writes or node.outputs
    views = views or [whole(x.type.ints) for x in (q, k, v, y, dy, dq, dk, dv)]
    *operands, in_y, in_dy = views[:5]
    if fits_whole(node):
        return whole_gradient(node, [*operands, in_dy, *views[5:8]], (q, k, v, lse, dy, *terms), (dq, dk, dv, *slopes))
    shape = in_y.shape
    delta = Scratch(0, prod(shape[:-1]) * DType.F32.itemsize)
    reads = [Access(y.type.dtype, _strides(view), view.start) for view in (in_dy, in_y)]
    sums = RegionBuilder(shape[:-1], shape[-1:], reads, [Access(DType.F32, _strides(whole((*shape[:-1], 1))))])
    sums.element()
    total = sums.reduce("sum", sums.let(sums.input(0) * sums.input(1), DType.F32))
    sums.row()
    sums.store(0, total)
    given: tuple[Value | Scratch, ...] = (q, k, v, lse, delta, dy, *terms)
    parts, results = _parts(node), (dk, dv)
    blocks = [Scratch(number, parts * k.type.bytes) for number in (1, 2)]
    found = [
        Launch(sums.region(), (dy, y), (delta,)),
        Launch(_tiled(node, "dq", [*operands, in_dy, views[5]]), given, (dq,)),
    ]
    for mode, numbers in _modes_by_keys(operands[0].shape[-1]).items():
        kernel = _tiled(node, mode, [*operands, in_dy, *(views[6 + n] for n in numbers)], parts)
        found.append(Launch(kernel, given, tuple((results if parts == 1 else blocks)[n] for n in numbers)))
    if parts > 1:
        each = zip(views[6:], blocks, results)
        found += [Launch(_summed(k.type, parts, view), (block,), (to,)) for view, block, to in each]
    if slopes:
        found += bias_gradient(node, [*operands, in_dy], given, slopes[0], 1 if parts == 1 else 3)
    return found


def _modes_by_keys(features: int) -> dict[Mode, tuple[int, ...]]:
    """The kernels by keys, each with what it computes: dk is number 0, dv number 1."""
    return {"dkdv": (0, 1)} if features <= _BOTH else {"dk": (0,), "dv": (1,)}


def _parts(node: Node) -> int:
    """In how many parts the gradient of a head of k is computed: more than one if there are fewer blocks of keys than
    keep the device busy. A divisor of the heads of q that read it."""
    q, k = node.input_types[:2]
    share, features = share_of_heads(q, k), q.ints[-1]
    tiles = tiles_of(q.dtype)
    rows = min(tiles[mode, width_of(features)].rows for mode in _modes_by_keys(features))
    blocks = prod(k.ints[:-2]) * -(-k.ints[-2] // rows)
    enough = (n for n in range(1, share + 1) if share % n == 0 and blocks * n >= GPU_ROW_SPLITS.busy)
    return next(enough, share)


def _summed(of: TensorType, parts: int, view: View) -> Region:
    """The region that adds up parts ``[..., heads, parts, rows, features]`` in f32, and writes a view."""
    *lead, rows, features = of.ints
    each = whole((*lead, parts, rows, features)).strides
    read = (*each[: len(lead)], *each[-2:])
    axes = [Along(*axis) for axis in zip(of.ints, read, _strides(view), strict=True)]
    return summed([*axes, Along(parts, each[len(lead)], None)], of.dtype, of.dtype, view.start)


def _strides(view: View) -> tuple[int, ...]:
    """Its strides, 0 for axes of size 1."""
    return tuple(stride if size != 1 else 0 for size, stride in zip(view.shape, view.strides))
