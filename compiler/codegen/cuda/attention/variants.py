"""The variants of tiled attention: other tiles of one of its kernels, such as ``dq: tall=1 others=32 stages=2 held=1``.

Bits differ between variants with other numbers of ``others``, as the order of sums does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dslc.compiler.codegen.cuda.attention.tiled import TiledAttention
from dslc.compiler.codegen.cuda.attention.tiles import Tile
from dslc.compiler.codegen.cuda.hardware import BLOCK_SHARED_BYTES
from dslc.compiler.codegen.launch import Launch

_OTHERS: Final = (32, 64)
_STAGES: Final = (2, 3)


def names(launches: Sequence[Launch]) -> list[str]:
    """The names of the tiles that one of the kernels may have instead of its own."""
    return list(_changed(launches))


def lowered(launches: Sequence[Launch], name: str) -> list[Launch] | None:
    """The launches with the tile of this name, which may be the one that they have; None if they cannot have it."""
    if any(isinstance(each.spec, TiledAttention) and _name_in(each.spec, each.spec.tile) == name for each in launches):
        return [*launches]
    return _changed(launches).get(name)


def _changed(launches: Sequence[Launch]) -> dict[str, list[Launch]]:
    found: dict[str, list[Launch]] = {}
    for at, launch in enumerate(launches):
        if isinstance(spec := launch.spec, TiledAttention):
            for tile in _others(spec.tile):
                changed = replace(spec, tile=tile)
                if changed.geometry.shared_bytes <= max(BLOCK_SHARED_BYTES, spec.geometry.shared_bytes):
                    made = [*launches[:at], launch.with_spec(changed), *launches[at + 1 :]]
                    found[_name_in(spec, tile)] = made
    return found


def _others(own: Tile) -> Iterator[Tile]:
    """Tiles that differ from a kernel's own one in one number."""
    yield replace(own, tall=3 - own.tall)
    yield from (replace(own, others=n) for n in _OTHERS if n != own.others)
    yield from (replace(own, stages=n) for n in _STAGES if n != own.stages)
    yield replace(own, held=not own.held)


def _name_in(spec: TiledAttention, tile: Tile) -> str:
    return f"{spec.mode}: tall={tile.tall} others={tile.others} stages={tile.stages} held={int(tile.held)}"
