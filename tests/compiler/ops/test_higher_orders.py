"""Derivatives of first, second and third order by ``gradient``, where an op has a composition of its own for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from op_laws.language import check, evaluate

from dslc.compiler.check.model import Checked

#: Rows of ctc: an ordinary one; repeated labels, which need a blank between; no target; one that the sequence is too
#: short for; a sequence that ends before T; none at all, with a target and without; as many times as the target needs.
TARGETS = [[1, 2, 3], [2, 2, 1], [1, 1, 1], [1, 1, 3], [3, 1, 2], [1, 2, 3], [0, 0, 0], [2, 2, 3]]
TIMES = [6, 6, 5, 3, 4, 0, 0, 4]
LENGTHS = [3, 3, 0, 3, 2, 1, 0, 3]
ENDLESS = [3, 5]


def _orders(folder: Path, given: str, setup: str, shape: str) -> list[Checked]:
    """Models of the gradients of first to third order of ``y`` in the direction of ``v``."""
    bodies, body = [], f"{setup}\n  y = gradient(y, x)\n"
    for _ in range(3):
        bodies.append(f"{body}  return y + 0 * stop_gradient(v)")
        body += "  y = gradient(sum(y * v), x)\n"
    return [check(folder, f"x: {shape}, v: {shape}, {given}", body, shape) for body in bodies]


def _compare(models: list[Checked], x: np.ndarray, feeds: dict[str, np.ndarray], **sizes: int) -> list[np.ndarray]:
    """Each order is the difference of the one before along ``v``, since derivatives commute; returns all of them."""
    feeds = {name: np.asarray(a, np.int32) if a.dtype.kind == "i" else a for name, a in feeds.items()}
    v, found = feeds["v"], []
    for order, model in enumerate(models):
        found.append(evaluate(model, {"x": x, **feeds}, **sizes))
        if order:
            above, below = (evaluate(models[order - 1], {"x": x + e * v, **feeds}, **sizes) for e in (1e-5, -1e-5))
            np.testing.assert_allclose(found[-1], (above - below) / 2e-5, rtol=1e-6, atol=1e-7)
    return found


@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("softmax", [True, False])
def test_ctc(blank: int, softmax: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng([blank, softmax])
    x, v = rng.normal(size=(2, 8, 6, 4))
    x[4, 4:] = np.nan  # times that do not count
    targets = np.array(TARGETS)
    targets[targets == blank] = 3 - blank  # the others that do not count may be blanks
    x_of = "log_softmax(x)" if softmax else "x"
    loss = f'ctc({x_of}, t, n, m, blank={blank}, reduce="none")'
    models = _orders(tmp_path, "t: i32[B, 3], n: i32[B], m: i32[B]", f"  y = {loss}", "[B, 6, 4]")
    feeds = {"v": v, "t": targets, "n": np.array(TIMES), "m": np.array(LENGTHS)}
    x = np.nan_to_num(x) if softmax else x
    found = _compare(models, np.where(np.isnan(x), 0.0, x), feeds, B=8)
    for order, slopes in enumerate(found):
        assert not np.any(slopes[[*ENDLESS, 6]]) and not np.any(slopes[4, 4:])
        assert all(np.any(slopes[row]) for row in (0, 1, 4)) or (order and not softmax)
        if not softmax:  # scores of times that do not count change nothing, whatever they are
            ints = {name: a.astype(np.int32) for name, a in feeds.items() if name != "v"}
            again = evaluate(models[order], {"x": x, "v": v, **ints}, B=8)
            np.testing.assert_array_equal(again, slopes)


@pytest.mark.parametrize("include", ["true", "false"])
@pytest.mark.parametrize("shape", ["rows", "elements"])
def test_a_scattered_product_with_zeros(shape: str, include: str, tmp_path: Path) -> None:
    """Two and three zeros at one index: the derivatives of second and third order are not 0 there."""
    rng = np.random.default_rng(3)
    x, v = rng.uniform(0.5, 1.5, (2, 4, 9))
    x[0, [1, 4]] = 0
    x[1, [1, 4, 5]] = 0
    x[2, [4, 5]] = 0
    x[3, 1] = 0
    ids = np.array([1, 0, 1, 2, 1]) if shape == "rows" else rng.integers(0, 3, (4, 5))
    given = "i: i32[5]" if shape == "rows" else "i: i32[B, 5]"
    setup = f'  y = scatter(x[:, :4], i, x[:, 4:], axis=1, mode="mul", include_self={include})'
    models = _orders(tmp_path, given, setup, "[B, 9]")
    found = _compare(models, x, {"v": v, "i": ids}, B=4)
    assert all(np.any(each) for each in found)
    if shape == "rows" and include == "true":
        # y[:, 1] is the product of the columns 1, 4, 6 and 8
        np.testing.assert_allclose(found[0][:, 6], x[:, 1] * x[:, 4] * x[:, 8])
        np.testing.assert_allclose(found[1][0, 6], v[0, 1] * 0 + v[0, 4] * 0)
        np.testing.assert_allclose(found[2][0, 6], 2 * v[0, 1] * v[0, 4] * x[0, 8], rtol=1e-12)
