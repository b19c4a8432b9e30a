"""Several processes share the pieces of an evaluation.

Piece p belongs to rank p mod G. After each round of G pieces, the processes exchange their partial results. So each has
those of all pieces, and combines them in the order of the pieces, as one process does: the result has the same bits for
every G.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dslc.runtime.artifact.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.session.backend import Outputs
    from dslc.runtime.session.batches import Cut
    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.context import Loaded

#: A program and the rows on which it runs; None: all.
Piece: TypeAlias = "tuple[Loaded, Cut | None]"


def own_pieces(pieces: Sequence[Piece], group: Exchange | None) -> Sequence[Piece]:
    """The pieces that this process computes."""
    return pieces if group is None else pieces[group.rank :: group.size]


def own_spans(pieces: Sequence[Piece], group: Exchange | None, rows: int) -> list[tuple[int, int]]:
    """The first row and the end row of each of these, of ``rows`` rows."""
    own = own_pieces(pieces, group)
    return [(0, rows) if piece is None else (piece.start, piece.start + piece.rows) for _, piece in own]


def of_all(own: Iterator[Outputs], plan: Plan, count: int, group: Exchange) -> Iterator[Outputs]:
    """The partial results of all ``count`` pieces in their order, from those that this process computes.

    ``plan``: that of a piece; the partial results of all pieces have the same shapes."""
    for first in range(0, count, group.size):
        mine = bytearray(sum(plan.buffers[port.buffer].bytes for port in plan.outputs))
        if first + group.rank < count:
            mine[:] = b"".join(np.ascontiguousarray(view).tobytes() for _, _, view in next(own))
        rows = group.gathered(np.frombuffer(mine, np.uint8))
        for row in rows[: count - first]:
            yield _unpacked(row.tobytes(), plan)


def _unpacked(row: bytes, plan: Plan) -> Outputs:
    found: list[tuple[str, str, NDArray[Any]]] = []
    at = 0
    for port in plan.outputs:
        buffer = plan.buffers[port.buffer]
        count = int(np.prod(buffer.shape, dtype=np.int64))
        array = np.frombuffer(row, numpy_dtype(buffer.dtype), count, at).reshape(buffer.shape)
        found.append((port.name, port.kind, array))
        at += array.nbytes
    return found
