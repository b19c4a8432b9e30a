"""The variants of contractions: their tilings, by names such as ``tile=128x64x64/64x32 stages=3 slices=1 split=4``.

That is a tile of rows x columns x depth, of which a thread (a warp on tensor cores) computes the second pair; stages
and slices as in ``Tile``; and the number of parts of the sum. A convolution of few channels has all tilings next to its
own kernels, or these as the variant ``few channels``. Bits differ between variants, as the order of sums does.
"""

from __future__ import annotations

import re
from typing import Final

from dslc.compiler.codegen.cuda.contraction.direct import few_channels_kernel, packed_taps_kernel, prefers_direct
from dslc.compiler.codegen.cuda.contraction.lower import FEW_CHANNELS, contraction, first_of, product, tiled_problem
from dslc.compiler.codegen.cuda.contraction.tile_tables import Tile
from dslc.compiler.codegen.cuda.contraction.tiles import Tiling, blocks_of, can_tile, tilings, used_parts
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.ir.graph import Node

_MOST: Final = 12  # variants of a node
_SPLIT_FACTORS: Final = ((2, 1), (1, 2), (4, 1))  # of the number of parts that the model prefers
_MANY_BLOCKS: Final = 4 * H200.multiprocessors  # blocks of which more by a split gain nothing
_SIZE: Final = "([1-9][0-9]{0,3})"
_NAME: Final = re.compile(f"tile={_SIZE}x{_SIZE}x{_SIZE}/{_SIZE}x{_SIZE} stages={_SIZE} slices={_SIZE} split={_SIZE}")


def names(node: Node) -> list[str]:
    """The names of the tilings of a contraction, the model's best first, without the one that it takes by itself."""
    decided_by = tiled_problem(node)
    if decided_by is None:
        return []
    problem, cores = decided_by
    modelled = tilings(problem, cores)
    best = {tiling.tile: tiling for tiling in reversed(modelled)}  # the best split of each tile
    first = [tiling for tiling in modelled if best[tiling.tile] is tiling]
    others = [
        Tiling(each.tile, used_parts(problem, each.tile, max(1, each.split * more // less)))
        for more, less in _SPLIT_FACTORS
        for each in first
        if more < less or blocks_of(problem, each.tile) * each.split < _MANY_BLOCKS
    ]
    kept = [tiling for tiling in dict.fromkeys((*first, *others)) if can_tile(problem, cores, tiling)]
    has_no_tiles = prefers_direct(first_of(node)) or packed_taps_kernel(first_of(node)) is not None  # without a choice
    more = [FEW_CHANNELS] if not has_no_tiles and few_channels_kernel(first_of(node)) is not None else []
    return [*more, *(name_of(tiling) for tiling in kept if has_no_tiles or tiling != modelled[0])][:_MOST]


def lowered(node: Node, name: str) -> list[Launch] | None:
    """The launches of a node with the tiling of this name; None if it has none."""
    decided_by, tiling = tiled_problem(node), _tiling(name)
    lowering = contraction if node.op.name == "contraction" else product
    if name == FEW_CHANNELS:
        is_known = decided_by is not None and few_channels_kernel(first_of(node)) is not None
        return lowering(node, FEW_CHANNELS) if is_known else None
    if decided_by is None or tiling is None or not can_tile(*decided_by, tiling):
        return None
    return lowering(node, tiling)


def name_of(tiling: Tiling) -> str:
    """The name of a variant."""
    t = tiling.tile
    shape = f"{t.rows}x{t.cols}x{t.depth}/{t.tall}x{t.wide}"
    return f"tile={shape} stages={t.stages} slices={t.slices} split={tiling.split}"


def _tiling(name: str) -> Tiling | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    rows, cols, depth, tall, wide, stages, slices, split = map(int, match.groups())
    return Tiling(Tile(rows, cols, tall, wide, depth, stages, slices), split)
