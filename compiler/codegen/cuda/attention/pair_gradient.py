"""The gradient of attention by blocks that keep a tile of pairs for many heads: of a bias, and all of it for few rows.

A bias [..., Tq, Tk] is broadcast over one or both axes of the stack of heads. A block takes a tile of one of its
matrices, and the heads that share the matrix one after the other, so that the sum stays in registers; parts of these
heads go to several blocks, and a region adds the parts in order. Of at most ``_ROWS`` queries and keys a tile has all,
and then the same kernel computes dq, dk and dv, with or without a bias that needs a gradient: it reads each operand
once, where the kernels of ``tiled.py`` read q, k, v and dy twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.attention.placed import head_of, terms_at
from dslc.compiler.codegen.cuda.attention.sums import Along, summed
from dslc.compiler.codegen.cuda.attention.tiles import width_of
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import bool_attr, float_attr
from dslc.compiler.ops.compound.strided_attention import View, bias_of, pairs, places, terms_of, whole
from dslc.compiler.ops.products.attention_terms import window_of

_WARPS: Final = 4
_ROWS: Final = 16 * _WARPS
_MOST_WHOLE: Final = 64  # features of which registers hold the gradients of q, k and v
_TILES: Final = ((64, 2), (64, 1), (32, 1))  # keys of a tile, and stages: the first that fit shared memory
_BLOCKS: Final = 8 * H200.multiprocessors  # that share the work
_IN_A_ROW: Final = 4  # heads of a block, at least, if there are so many
#: Blocks that registers of a multiprocessor shall hold, of 16-bit floats and so many features: on an H200 the
#: attention of Swin-T takes 1.18 ms with three and 1.26 with two; in TF32 the same (``benchmarks/results/zoo.md``).
_RESIDENT: Final = (3, 32)
#: Queries and keys of a head, and heads, from which on one kernel takes 0.63 to 0.84 of the time of separate ones
#: without a bias; with 16 to 32 rows it took 0.8 to 1.2, with 8 to 192 heads 1.4 to 2.3
#: (``benchmarks/results/ops.md``).
_FASTER: Final = (49, 4 * H200.multiprocessors)
_NAMES: Final = ("Q", "K", "V", "DY", "DQ", "DK", "DV")


@described("Walk", "units unit_step members member_step parts")
@dataclass(frozen=True, slots=True)
class Walk:
    """Which heads share a matrix: unit u has the heads ``u * unit_step + n * member_step``, n below ``members``, of
    which each of ``parts`` blocks has ``each``."""

    units: int
    unit_step: int
    members: int
    member_step: int
    parts: int

    @property
    def each(self) -> int:
        return -(-self.members // self.parts)


@described(
    "PairGradient",
    "dtype inner share layouts mask bias queries keys features causal window scale whole result walk file",
)
@dataclass(frozen=True)
class PairGradient(CppKernel):
    """``k(q, k, v, lse, [delta,] dy, [mask,] [bias,] [dq, dk, dv,] [slopes])``: with ``whole``, dq, dk and dv and no
    delta. ``layouts``, ``mask`` and ``bias`` as of ``TiledAttention``. ``result``: the dtype of the sums of a bias, f32
    if they are parts; None if it needs no gradient."""

    dtype: DType
    inner: int
    share: int
    layouts: tuple[tuple[int, ...], ...]
    mask: tuple[int, ...]
    bias: tuple[int, ...]
    queries: int
    keys: int
    features: int
    causal: bool
    window: int
    scale: float
    whole: bool
    result: DType | None
    walk: Walk
    file: str = "pair_gradient.cu"

    @property
    def tile(self) -> tuple[int, int]:
        """The keys of a tile, and its stages."""
        return next(each for each in _TILES if self._bytes(*each) <= BLOCK_SHARED_BYTES)

    @property
    def geometry(self) -> Geometry:
        others, stages = self.tile
        tiles = -(-self.queries // _ROWS) * -(-self.keys // others)
        blocks = tiles * self.walk.units * self.walk.parts
        return Geometry((blocks, 1, 1), (32 * _WARPS, 1, 1), self._bytes(others, stages))

    def _bytes(self, others: int, stages: int) -> int:
        return stages * (2 * (_ROWS + others) * width_of(self.features) * self.dtype.itemsize + 8 * _ROWS)

    def head(self) -> str:
        others, stages = self.tile
        text = "#define MODE 1\n#define MASK_CHUNK 0\n"
        layouts = dict(zip(_NAMES, self.layouts))
        text += head_of(self.dtype, self.scale, self.features, layouts, self.mask, self.bias)
        text += f"#define WHOLE {int(self.whole)}\n#define SLOPES {int(self.result is not None)}\n"
        text += f"using RESULT = {C_TYPES[self.result or DType.F32]};\n"
        walk, (resident, features) = self.walk, _RESIDENT
        few = self.whole and self.dtype.is_half and self.features <= features
        return text + constants(
            RESIDENT=resident if few else 1,
            INNER=self.inner, SHARE=self.share, D=width_of(self.features), FEATURES=self.features,
            OWN_COUNT=self.queries, OTHER_COUNT=self.keys, CAUSAL=int(self.causal), WINDOW=self.window,
            WARPS=_WARPS, TALL=1, OTHERS=others, STAGES=stages, HELD=0, UNITS=walk.units, UNIT_STEP=walk.unit_step,
            MEMBERS=walk.members, MEMBER_STEP=walk.member_step, PARTS=walk.parts, EACH_PART=walk.each,
        )  # fmt: skip


def fits_whole(node: Node) -> bool:
    """Whether one kernel computes all gradients of an ``sdpa_grad`` that fits tiles: a tile has all queries and keys of
    a head, and there is a bias, or so many heads that it is faster than separate kernels."""
    q, k = node.input_types[:2]
    *lead, queries, features = q.ints
    if max(queries, k.ints[-2]) > _ROWS or features > _MOST_WHOLE or lead != [*k.ints[:-2]]:
        return False
    least_rows, least_heads = _FASTER
    return bias_of(node) is not None or (min(queries, k.ints[-2]) >= least_rows and prod(lead) >= least_heads)


def whole_gradient(node: Node, views: Sequence[View], given: Sequence[Value], results: Sequence[Value]) -> list[Launch]:
    """All gradients of a node that ``fits_whole``. ``views``: of q, k, v, dy, dq, dk and dv."""
    return _launches(node, views, tuple(given), results[:3], results[3] if len(results) > 3 else None, 0)


def bias_gradient(
    node: Node, views: Sequence[View], given: Sequence[Value | Scratch], slope: Value, block: int
) -> list[Launch]:
    """That of the bias. ``views``: of q, k, v and dy; ``given``: these, lse, delta and terms in the order of
    ``tiled.py``; ``block``: the number of a free scratch block."""
    return _launches(node, views, tuple(given), (), slope, block)


def _launches(
    node: Node, views: Sequence[View], given: tuple[Value | Scratch, ...], rows: Sequence[Value], slope: Value | None,
    block: int,
) -> list[Launch]:  # fmt: skip
    q, k = node.input_types[:2]
    found = places(views, [pairs(node, x) for x in terms_of(node)])
    assert found is not None, "it fits tiles"
    mask, bias = terms_at(node, found)
    queries, keys, stack = q.ints[-2], k.ints[-2], prod(q.ints[:-2])
    walk = _walk(stack, found.inner, bias if slope is not None else (0,) * 5)
    at_once = walk.parts == 1 and slope is not None and slope.type.ints[-2:] == (queries, keys)
    result = None if slope is None else q.dtype if at_once else DType.F32
    causal, scale = bool_attr(node.attrs, "causal"), float_attr(node.attrs, "scale")
    spec = PairGradient(
        q.dtype, found.inner, found.share, found.rows, mask, bias, queries, keys, q.ints[-1], causal,
        window_of(node.attrs), scale, bool(rows), result, walk,
    )  # fmt: skip
    if slope is None or at_once:
        return [Launch(spec, given, (*rows, *(() if slope is None else (slope,))))]
    sums = Scratch(block, walk.parts * walk.units * queries * keys * DType.F32.itemsize)
    return [
        Launch(spec, given, (*rows, sums)),
        Launch(_summed(walk, queries, keys, slope), (sums,), (slope,)),
    ]


def _walk(stack: int, inner: int, bias: Sequence[int]) -> Walk:
    """``bias``: where it lies; strides of 0 say along which axes of the stack heads share it."""
    _, outer_step, inner_step, *_ = bias
    alone = (outer_step == 0, inner_step == 0)
    units, unit_step, members, member_step = {
        (True, True): (1, 0, stack, 1), (True, False): (inner, 1, stack // inner, inner),
        (False, True): (stack // inner, inner, inner, 1), (False, False): (stack, 1, 1, 0),
    }[alone]  # fmt: skip
    most = max(1, -(-members // _IN_A_ROW))
    wanted = min(most, max(1, -(-_BLOCKS // units)))
    return Walk(units, unit_step, members, member_step, -(-members // -(-members // wanted)))


def _summed(walk: Walk, queries: int, keys: int, slope: Value) -> Region:
    """The region that adds parts ``[parts, units, Tq, Tk]`` in f32, and along queries and keys where the bias is
    broadcast."""
    kept = (1, 1, *slope.type.ints)[-2:]
    parts, units, query, key = whole((walk.parts, walk.units, queries, keys)).strides
    to_unit, to_query, to_key = whole((walk.units, *kept)).strides
    axes = [
        Along(walk.units, units, to_unit), Along(walk.parts, parts, None),
        Along(queries, query, to_query if kept[0] == queries else None),
        Along(keys, key, to_key if kept[1] == keys else None),
    ]  # fmt: skip
    return summed(axes, DType.F32, slope.type.dtype)
