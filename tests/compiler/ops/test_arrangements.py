"""Functions that repeat, cut and place parts of tensors, against numpy; and a convolution with pads of one side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from op_laws.language import check, evaluate

from dslc.dsl.diagnostics import CompileError

RNG = np.random.default_rng(17)
X = RNG.uniform(-2, 2, (4, 8))
Q = RNG.uniform(-2, 2, (4, 3, 8))
U = RNG.uniform(-2, 2, (4, 1, 3, 1))
IMAGE = RNG.uniform(-2, 2, (4, 2, 6, 6))
WEIGHT = RNG.uniform(-2, 2, (2, 1, 3, 2))
I, J = np.array([2, 0, 2], "i4"), np.array([7, 1, 7], "i4")
SRC = RNG.uniform(-2, 2, 3)
XS, QS, US, IS = "x: [B, 8]", "q: [4, 3, 8]", "u: [B, 1, 3, 1]", "i: [B, 2, 6, 6]"
AT = "x: [4, 8], i: i32[3], j: i32[3], s: [3]"
PLACED = {"x": X, "i": I, "j": J, "s": SRC}


def placed(x: np.ndarray, at: Any, src: Any, ufunc: np.ufunc | None) -> np.ndarray:
    y = x.copy()
    if ufunc is None:
        y[at] = src
    else:
        ufunc.at(y, at, src)
    return y


def slid(x: np.ndarray, low: tuple[int, int], high: tuple[int, int], stride: int) -> np.ndarray:
    """The windows of each channel of x, with zeros around it, times its kernel."""
    wide = np.pad(x, ((0, 0), (0, 0), *zip(low, high)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, WEIGHT.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bchwij,cij->bchw", windows, WEIGHT[:, 0])


VALUES: list[tuple[str, str, str, dict[str, np.ndarray], Callable[[], Any]]] = [
    (XS, "tile(x, [1, 3])", "[B, 24]", {"x": X}, lambda: np.tile(X, (1, 3))),
    (XS, "tile(x, 2)", "[B, 16]", {"x": X}, lambda: np.tile(X, 2)),
    (XS, "tile(x, [3, 2, 1])", "[3, 2*B, 8]", {"x": X}, lambda: np.tile(X, (3, 2, 1))),
    (US, "tile(u, [5, 2, 1])", "[B, 5, 6, 1]", {"u": U}, lambda: np.tile(U, (5, 2, 1))),
    (XS, "tile(x[0], [B, 1])", "[B, 8]", {"x": X}, lambda: np.tile(X[0], (4, 1))),
    (XS, "tile(x, 0)", "[B, 0]", {"x": X}, lambda: np.tile(X, 0)),
    (XS, "tile(sum(x), 3)", "[3]", {"x": X}, lambda: np.tile(X.sum(), 3)),
    (XS, "repeat_interleave(x, 3)", "[B, 24]", {"x": X}, lambda: np.repeat(X, 3, 1)),
    (QS, "repeat_interleave(q, 2, axis=0)", "[8, 3, 8]", {"q": Q}, lambda: np.repeat(Q, 2, 0)),
    (QS, "repeat_interleave(q, 1, axis=1)", "[4, 3, 8]", {"q": Q}, lambda: Q),
    (XS, "repeat_interleave(x[0], B, axis=0)", "[8*B]", {"x": X}, lambda: np.repeat(X[0], 4)),
    (US, "squeeze(u)", "[B, 3]", {"u": U}, lambda: U[:, 0, :, 0]),
    (US, "squeeze(u, -1)", "[B, 1, 3]", {"u": U}, lambda: U[..., 0]),
    (US, "squeeze(u, [1, 3])", "[B, 3]", {"u": U}, lambda: U[:, 0, :, 0]),
    (XS, "unsqueeze(x, 1)", "[B, 1, 8]", {"x": X}, lambda: X[:, None]),
    (XS, "unsqueeze(x, [-1, 0])", "[1, B, 8, 1]", {"x": X}, lambda: X[None, :, :, None]),
    (XS, "unsqueeze(sum(x), 0)", "[1]", {"x": X}, lambda: X.sum()[None]),
    (XS, "split(x, sizes=[5, 1, 2])[2]", "[B, 2]", {"x": X}, lambda: X[:, 6:]),
    (QS, "split(q, axis=1, sizes=[1, 0, 2])[1]", "[4, 0, 8]", {"q": Q}, lambda: Q[:, :0]),
    ("x: [B, 2*B + 1]", "split(x, sizes=[B, 1, B])[1]", "[B, 1]", {"x": Q[0, :, :3].repeat(3, 1)},
     lambda: Q[0, :, :3].repeat(3, 1)[:, 3:4]),
    (XS, "argmax(x, keep=true)", "i32[B, 1]", {"x": X}, lambda: X.argmax(1)[:, None]),
    (XS, "argmin(x, axis=0, keep=true)", "i32[1, 8]", {"x": X}, lambda: X.argmin(0)[None]),
    (AT, "index_put(x, [i, j], s)", "[4, 8]", PLACED, lambda: placed(X, (I, J), SRC, None)),
    (AT, 'index_put(x, [i, j], s, mode="add")', "[4, 8]", PLACED, lambda: placed(X, (I, J), SRC, np.add)),
    (AT, 'index_put(x, [i, j], s, mode="mul")', "[4, 8]", PLACED, lambda: placed(X, (I, J), SRC, np.multiply)),
    ("x: [4, 8], i: i32[3], s: [3]", 'index_put(x, [i], s[0:1], mode="max")', "[4, 8]", {"x": X, "i": I, "s": SRC},
     lambda: placed(X, (I,), SRC[0], np.maximum)),
    (AT, 'index_put(x, [i, j], s, mode="add", include_self=false)', "[4, 8]", PLACED,
     lambda: placed(placed(X, (I, J), 0.0, None), (I, J), SRC, np.add)),
    ("q: [4, 3, 8], i: i32[3], j: i64[2, 1], s: [2, 3, 8]", "index_put(q, [i, j], s)", "[4, 3, 8]",
     {"q": Q, "i": I, "j": np.array([[0], [2]]), "s": np.broadcast_to(SRC[None, :, None], (2, 3, 8)).copy()},
     lambda: placed(Q, (I, np.array([[0], [2]])), SRC[None, :, None], None)),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w, groups=2, pad=[0, 1, 1, 2])", "[B, 2, 5, 8]",
     {"i": IMAGE, "w": WEIGHT}, lambda: slid(IMAGE, (0, 1), (1, 2), 1)),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w, groups=2, stride=2, pad=[2, 0, 1, 0])", "[B, 2, 4, 3]",
     {"i": IMAGE, "w": WEIGHT}, lambda: slid(IMAGE, (2, 0), (1, 0), 2)),
    (f"{IS}, w: [2, 1, 3, 2]", "conv(i, weight=w, groups=2, pad=[1, 1, 1, 1])", "[B, 2, 6, 7]",
     {"i": IMAGE, "w": WEIGHT}, lambda: slid(IMAGE, (1, 1), (1, 1), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "result", "arrays", "expected"), VALUES, ids=[v[1] for v in VALUES])
def test_functions_have_these_values(
    given: str, expression: str, result: str, arrays: dict[str, Any], expected: Callable[[], Any], tmp_path: Path
) -> None:
    reference = expected()
    got = evaluate(check(tmp_path, given, f"  return {expression}", result), arrays, B=len(arrays[given[0]]))
    assert got.shape == np.shape(reference)
    np.testing.assert_allclose(got, reference, rtol=1e-12, atol=1e-12)


REFUSED = [
    (XS, "tile(x, [1, -1])", "E0209", "`tile` of -1 times"),
    (XS, "tile(x, [1, B - 2])", "E0209", "times"),
    (XS, "repeat_interleave(x, -2)", "E0209", "-2 times"),
    (XS, "repeat_interleave(sum(x), 2)", "E0306", "no axes"),
    (US, "squeeze(u, 2)", "E0302", "whose size is 3"),
    (US, "squeeze(u, 0)", "E0302", "whose size is B"),
    (US, "squeeze(u, 4)", "E0306", "axis 4"),
    (XS, "unsqueeze(x, 3)", "E0306", "a result that has 3"),
    (XS, "unsqueeze(x, [1, -3])", "E0306", "a result that has 4"),
    (XS, "split(x)", "E0201", "`sizes`"),
    (XS, "split(x, 2, sizes=[4, 4])", "E0201", "`sizes`"),
    (XS, "split(x, sizes=[4, 3])", "E0303", "sizes [4, 3] along axis 1"),
    (XS, "split(x, sizes=[9, -1])", "E0303", "[9, -1]"),
    (XS, "split(sum(x), sizes=[1])", "E0303", "[1]"),
    (AT, "index_put(x, [i, j, i], s)", "E0209", "3 indices"),
    (XS, "index_put(x, [x], x)", "E0203", "integer"),
    ("x: [4, 8], i: i32[3], s: [3]", "index_put(x, [i], s)", "E0301", "`index_put`"),
    (AT, 'index_put(x, [i, j], s, mode="sum")', "E0209", '"sum"'),
    (IS, "conv(i, 2, 3, pad=[0, 0, 1])", "E0209", "3 numbers"),
    (IS, "conv(i, 2, 3, pad=[0, 0, 1, -1])", "E0209", "`pad` is -1"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "code", "text"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_does_not_fit_is_refused(given: str, expression: str, code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        check(tmp_path, given, f"  y = {expression}\n  return zeros([3])", "[3]")
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert text in str(caught.value)
