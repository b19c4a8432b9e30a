"""predict of a model whose results depend on the number of rows, or on a row's number: never cut into pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from states.recurrent import opened

from dslc.base.errors import InputError

MODEL = """nn 1
dim B in 1..64 = 4

model Net(x: [B, 2]) -> [B, 2] {{
  return {0}
}}
"""
SIZES = {"predict": {"B": (4,)}}
NUMBERS = np.arange(4, dtype=np.float32)[:, None]


@pytest.mark.parametrize(
    ("result", "offset"), [('x + reshape(arange(B, dtype="float"), [B, 1])', NUMBERS), ("x + B", np.float32(4))]
)
def test_a_call_is_not_cut(tmp_path: Path, result: str, offset: np.ndarray) -> None:
    with opened(tmp_path, MODEL.format(result), sizes=SIZES) as session:
        x = np.ones((10, 2), np.float32)
        assert np.array_equal(session.predict(x=x[:4]), x[:4] + offset)
        for rows in (3, 8, 10):  # whole batches of the built size, too
            with pytest.raises(InputError, match="depend on the number of rows") as caught:
                session.predict(x=x[:rows])
            assert caught.value.code == "R105" and "B = 4" in str(caught.value.help)


@pytest.mark.parametrize(
    "result",
    [
        'x + arange(2, dtype="float")',
        "concat([x[:, 0:1], zeros([B, 1])], axis=1)",
        "stack([x[arange(B), argmax(x, axis=1)], 2 * x[arange(B), argmin(x, axis=1)]], axis=1)",
        "lstm(reshape(x, [B, 2, 1]), 2)[0][:, -1]",
        "sdpa(ones([B, 1, 2]), reshape(x, [B, 1, 2]), reshape(x, [B, 1, 2]))[:, 0]",
    ],
)
def test_rows_that_are_apart_are_cut_and_filled_up(tmp_path: Path, result: str) -> None:
    with opened(tmp_path, MODEL.format(result), sizes=SIZES) as session:
        x = np.arange(20, dtype=np.float32).reshape(10, 2)
        whole = session.predict(x=x)
        for rows in (slice(0, 3), slice(3, 10)):
            assert np.array_equal(session.predict(x=x[rows]), whole[rows])


def test_random_numbers_of_a_row_are_those_of_its_number(tmp_path: Path) -> None:
    with opened(tmp_path, MODEL.format("x + rand([B, 2])"), sizes=SIZES) as session:
        x = np.zeros((10, 2), np.float32)
        whole = session.predict(x=x)
        assert np.array_equal(session.predict(x=x[3:], row=3), whole[3:])
