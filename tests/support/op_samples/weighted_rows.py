"""Samples of weighted sums of rows, one row at a time."""

from __future__ import annotations

import numpy as np
from op_samples.sample import Sample, Spec


def summed(table: np.ndarray, ids: np.ndarray, weight: np.ndarray, lead: int) -> np.ndarray:
    y = np.zeros((*ids.shape[:-1], table.shape[-1]))
    for at in np.ndindex(ids.shape):
        if weight[at] != 0:
            y[at[:-1]] += weight[at] * table[(*at[:lead], ids[at])]
    return y


def products(table: np.ndarray, ids: np.ndarray, dy: np.ndarray, lead: int) -> np.ndarray:
    y = np.zeros(ids.shape)
    for at in np.ndindex(ids.shape):
        y[at] = table[(*at[:lead], ids[at])] @ dy[at[:-1]]
    return y


#: table, ids, number of shared axes
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5, 3), (4, 2), 0), ((3, 7), (2, 3, 1), 0), ((2, 4, 3), (2, 5, 4), 1), ((2, 3, 2, 1), (2, 3, 2, 3), 2),
    ((6, 9), (0, 2), 0),
]  # fmt: skip
#: A row of weight 0 is not read: neither an infinity nor an id that does not exist counts.
UNREAD = Sample(
    [np.array([[1.0, 2.0], [np.inf, np.nan]]), np.array([[0, 1], [7, 0]]), np.array([[0.5, 0.0], [0.0, 2.0]])],
    {"lead": 0}, differentiable=(), reference=summed,
)  # fmt: skip


def _ids(table: tuple[int, ...], ids: tuple[int, ...], lead: int) -> Spec:
    return Spec(ids, "int32", 0, table[lead] - 1)


SAMPLES: dict[str, list[Sample]] = {
    "weighted_rows": [
        *(
            Sample([Spec(table), _ids(table, ids, lead), Spec(ids)], {"lead": lead}, reference=summed)
            for table, ids, lead in SHAPES
        ),
        UNREAD,
    ],
    "weighted_rows_dot": [
        Sample(
            [Spec(table), _ids(table, ids, lead), Spec((*ids[:-1], table[-1]))],
            {"lead": lead},
            reference=products,
        )
        for table, ids, lead in SHAPES
    ],
}
