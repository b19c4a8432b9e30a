"""Data with an index outside of its axis is refused, also if the axis has a dim, and if a loop reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states.recurrent import opened

from dslc.base.errors import InputError
from dslc.runtime.session.measure import random_inputs

GRAPH = """nn 1
dim N in 1..64 = 5
dim E in 1..64 = 4

model Net(x: [N, 2], source: i32[E], sink: i32[E], kind: i32[E], chain: i32[E]) -> [N, 2] {
  layer rel = embedding(3, 2)
  m = x[source] + rel(kind)
  h = zeros([2])
  scan at in reshape(chain, [E]) along 0 carry h { h = 0.5 * h + x[at] }
  return scatter_add(x, sink, m, axis=0) + h
}
train Net(node: i32[E]) {
  loss      = mean(output[node]^2)
  optimizer = sgd(lr=0.1)
}
"""


def given(**other: list[int]) -> dict[str, Any]:
    right = {key: [0, 4, 2, 1] for key in ("source", "sink", "chain", "node")} | {"kind": [2, 0, 1, 2]}
    return {"x": np.ones((5, 2), np.float32), **{n: np.array(v, np.int32) for n, v in {**right, **other}.items()}}


@pytest.mark.parametrize("name", ["source", "sink", "chain", "node", "kind"])
@pytest.mark.parametrize("value", [-1, 5])
def test_an_index_outside_of_an_axis_is_refused(name: str, value: int, tmp_path: Path) -> None:
    with opened(tmp_path, GRAPH, sizes={}) as session:
        for call in (session.train_step, session.evaluate, session.predict):
            fits, wrong = given(), given(**{name: [0, value, 1, 2]})
            if call == session.predict:
                if name == "node":
                    continue
                del fits["node"], wrong["node"]
            call(**fits)
            for _ in range(2):  # after a call that was taken, too
                with pytest.raises(InputError, match=f"`{name}` holds {value} in row 1"):
                    call(**wrong)


def test_indices_to_measure_with_cover_their_axis(tmp_path: Path) -> None:
    with opened(tmp_path, GRAPH.replace("dim E in 1..64 = 4", "dim E in 1..64 = 64"), sizes={}) as session:
        inputs = random_inputs(session, session._programs["train_step"][0])
    assert set(inputs["source"]) == set(inputs["chain"]) == set(range(5)) and set(inputs["kind"]) == set(range(3))


POOLED = """nn 1
dim G in 1..16 = 3
dim N in 1..64 = 5

model Pooled(x: [N, 2], graph: i32[N]) -> (sums: [G, 2]) {
  return index_put(zeros([G, 2]), [graph], x, mode="add")
}
"""


def test_a_size_that_no_input_has_is_that_of_the_program(tmp_path: Path) -> None:
    """The number of graphs of a batch: it is the size of the result, and the range of an input."""
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    with opened(tmp_path, POOLED, sizes={}) as session:
        for _ in range(2):
            sums = session.predict(x=x, graph=np.array([0, 2, 2, 0, 2], np.int32))
            np.testing.assert_array_equal(sums, [x[0] + x[3], [0, 0], x[1] + x[2] + x[4]])
            with pytest.raises(InputError, match="`graph` holds 3 in row 1"):
                session.predict(x=x, graph=np.array([0, 3, 2, 0, 2], np.int32))


def test_a_size_that_no_input_has_must_be_the_only_one_built(tmp_path: Path) -> None:
    given = {"x": np.zeros((5, 2), np.float32), "graph": np.zeros(5, np.int32)}
    several = pytest.raises(InputError, match="G = 2 and 3, and no input has an axis G")
    with opened(tmp_path, POOLED, sizes={"predict": {"G": (2, 3)}}) as session, several:
        session.predict(**given)
