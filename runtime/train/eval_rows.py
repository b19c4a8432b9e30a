"""The rows of an evaluation, and whether the built batch sizes cover them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DataError
from dslc.runtime.session.batches import cut

if TYPE_CHECKING:
    from dslc.runtime.train.data import Dataset
    from dslc.runtime.train.trainable import Declared


def in_streams(order: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
    """The rows of a model that carries states: row i of a batch continues row i of the batch before.

    The rows are ``batch`` streams of consecutive rows; batch j takes row j of each. Rows that fill no batch are left
    out."""
    steps = len(order) // batch
    return order[: steps * batch].reshape(batch, steps).T.reshape(-1)


def eval_order(session: Declared, data: Dataset) -> NDArray[np.int64]:
    """The rows in the order of their evaluation; for a model that carries states, in batches of the largest built size
    that they fill. DataError R106 if they fill none."""
    batch = session.interface.batch
    if batch is None or not session.interface.states:
        return data.index
    sizes = _sizes(session, batch)
    fitting = [size for size in sizes if size <= data.rows]
    if not fitting:
        cause = f"{data.rows} rows do not fill a batch of {min(sizes)}"
        raise DataError("R106", cause, place=data.section, help=f"build for a smaller one: --size eval:{batch}=1")
    return in_streams(data.index, max(fitting))


def require_batches(session: Declared, data: Dataset) -> Dataset:
    """The evaluation data, whose rows the built batch sizes cover; else DataError R106, before anything is built."""
    batch = session.interface.batch
    if batch is None or not session.interface.cuttable(session.interface.train_inputs):
        return data
    rows, sizes = len(eval_order(session, data)), _sizes(session, batch)
    if cut(rows, sizes, pad=False) is None:
        low = next(dim.low for dim in session.interface.dims if dim.batch)
        wanted = sorted({low, *sizes})
        raise DataError(
            "R106",
            f"{rows} rows do not divide into batches of {' and '.join(map(str, sorted(sizes)))}",
            place=data.section,
            help=f"build for batches of {low} too: `build: {{sizes: {{eval: {{{batch}: {wanted}}}}}}}`, or "
            f"--size eval:{batch}={','.join(map(str, wanted))}",
        )
    return data


def _sizes(session: Declared, batch: str) -> list[int]:
    """The batch sizes of evaluation."""
    return sorted({program.sizes[batch] for program in session.artifact.programs("eval_step")})
