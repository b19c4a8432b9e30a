"""The example on every page compiles, and what functions build has the values that their pages promise."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from op_laws.language import check, evaluate

from dslc.compiler.ops.registry import functions
from dslc.dsl.diagnostics import CompileError

A_NAME_IS_SET = re.compile(r"\w+(, *\w+)* = ")


def example_of(page: str) -> tuple[str, str]:
    """The tensors and the statements of a page's example."""
    [given] = [line.removeprefix("given:").strip() for line in page.splitlines() if line.startswith("given:")]
    lines = [line.removeprefix(">>> ") for line in page.splitlines() if line.startswith(">>> ")]
    return given, "\n".join(f"  {'' if A_NAME_IS_SET.match(e) else f'y{i} = '}{e}" for i, e in enumerate(lines))


@pytest.mark.parametrize("name", sorted(functions()))
def test_the_example_of_the_page_compiles(name: str, tmp_path: Path) -> None:
    page = inspect.getdoc(functions()[name]) or ""
    given, statements = example_of(page)
    assert page.startswith((f"{name}(", f"{name}:"))
    check(tmp_path, given, f"{statements}\n  return zeros([B])")


def test_an_example_that_does_not_compile_is_seen(tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        check(tmp_path, "x: [B, 8]", "  y = reshape(x, [3])\n  return zeros([B])")


RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (4, 8))
Y = RNG.uniform(-2, 2, (4, 2, 4))
W = RNG.uniform(-1, 1, (3, 8))
BIAS = RNG.uniform(-1, 1, 3)
T = np.array([0, 2, 1, 2], "i4")
XS, YS, TS = "x: [B, 8]", "y: [B, 2, 4]", "t: i32[B]"

VALUES: list[tuple[str, str, str, dict[str, np.ndarray], Callable[[], np.ndarray]]] = [
    (XS, "x^2 + x^-1 + 2^x", "[B, 8]", {"x": X}, lambda: X * X + 1 / X + np.exp2(X)),
    (XS, "abs(x)^0.5", "[B, 8]", {"x": X}, lambda: np.sqrt(np.abs(X))),
    (XS, "where(x > 0, x, -1)", "[B, 8]", {"x": X}, lambda: np.where(X > 0, X, -1.0)),
    (XS, "mean(where(x > 0, 1, 0), over=1)", "[B]", {"x": X}, lambda: (X > 0).mean(1)),
    (XS, "clip(x, low=-1, high=0.5)", "[B, 8]", {"x": X}, lambda: np.clip(X, -1, 0.5)),
    (TS, "cast(clip(t, high=1), \"float\")", "[B]", {"t": T}, lambda: np.minimum(T, 1) * 1.0),
    (XS, "var(x, over=1)", "[B]", {"x": X}, lambda: X.var(1)),
    (XS, "var(x, over=1, correction=1)", "[B]", {"x": X}, lambda: X.var(1, ddof=1)),
    (XS, "max(x, over=1) - min(x, over=1)", "[B]", {"x": X}, lambda: np.ptp(X, axis=1)),
    (XS, "sum(x, over=[0, 1], keep=true)", "[1, 1]", {"x": X}, lambda: X.sum(keepdims=True)),
    (XS, "logsumexp(x, over=-1)", "[B]", {"x": X}, lambda: np.log(np.exp(X).sum(1))),
    (XS, "x / B", "[B, 8]", {"x": X}, lambda: X / 4),
    (YS, "flatten(y)", "[B, 8]", {"y": Y}, lambda: Y.reshape(4, 8)),
    (YS, "reshape(y, [-1, 2])", "[4*B, 2]", {"y": Y}, lambda: Y.reshape(16, 2)),
    (YS, "transpose(y)", "[B, 4, 2]", {"y": Y}, lambda: Y.swapaxes(1, 2)),
    (YS, "transpose(y, [2, 0, 1])", "[4, B, 2]", {"y": Y}, lambda: Y.transpose(2, 0, 1)),
    (XS, 'rearrange(x, "B (h d) -> h B d", h=2)', "[2, B, 4]", {"x": X}, lambda: np.stack([X[:, :4], X[:, 4:]])),
    *((XS, f'rearrange(x, "B ({n} d) -> {n} B d", {n}=2)', "[2, B, 4]", {"x": X},
       lambda: X.reshape(4, 2, 4).swapaxes(0, 1))
      for n in ("x", "pattern", "call", "self", "cls")),
    (YS, 'rearrange(y, "B h d -> (d B) 1 h")', "[4*B, 1, 2]", {"y": Y}, lambda: Y.transpose(2, 0, 1).reshape(16, 1, 2)),
    (XS, "stack([x, 2 * x], axis=1)", "[B, 2, 8]", {"x": X}, lambda: np.stack([X, 2 * X], axis=1)),
    (XS, "concat([x, x[:, 1:3]])", "[B, 10]", {"x": X}, lambda: np.hstack([X, X[:, 1:3]])),
    (XS, "split(x, 4)[1]", "[B, 2]", {"x": X}, lambda: X[:, 2:4]),
    (XS, "pad(x, [0, 1], [0, 2])", "[B, 11]", {"x": X}, lambda: np.pad(X, ((0, 0), (1, 2)))),
    (XS, "pad(x, [1, 0], value=-1)[0]", "[8]", {"x": X}, lambda: np.full(8, -1.0)),
    (XS, "x[:, 1:8:3]", "[B, 3]", {"x": X}, lambda: X[:, 1:8:3]),
    (XS, "x[:, 2]", "[B]", {"x": X}, lambda: X[:, 2]),
    (XS, "broadcast_to(sum(x, over=0), [2, 8])", "[2, 8]", {"x": X}, lambda: np.tile(X.sum(0), (2, 1))),
    (XS, "full([B], 0.5) * ones([1]) + zeros([B]) + sum(x)", "[B]", {"x": X}, lambda: np.full(4, 0.5 + X.sum())),
    (XS, "x @ x.T", "[B, B]", {"x": X}, lambda: X @ X.T),
    (XS, "x[0] @ x[0]", "[]", {"x": X}, lambda: X[0] @ X[0]),
    (YS, "y @ y[0, 0]", "[B, 2]", {"y": Y}, lambda: Y @ Y[0, 0]),
    (YS, "y[0, :, 0] @ y", "[B, 4]", {"y": Y}, lambda: np.einsum("h,bhd->bd", Y[0, :, 0], Y)),
    (XS, "linear(x, 3) as f", "[B, 3]", {"x": X, "f.weight": W, "f.bias": BIAS}, lambda: X @ W.T + BIAS),
    (XS, "linear(x[0], 3, bias=false) as f", "[3]", {"x": X, "f.weight": W}, lambda: W @ X[0]),
    (TS, "embedding(t, 3, 8) as e", "[B, 8]", {"t": T, "e.weight": W}, lambda: W[T]),
    (TS, "one_hot(t, 3)", "[B, 3]", {"t": T}, lambda: np.eye(3)[T]),
    (XS, "one_hot(argmax(x), 8)", "[B, 8]", {"x": X}, lambda: np.eye(8)[X.argmax(1)]),
    (XS, "softmax(x, axis=0)", "[B, 8]", {"x": X}, lambda: np.exp(X) / np.exp(X).sum(0)),
    (XS, 'floor(100 * abs(gelu(x, approximate="tanh") - gelu(x)))', "[B, 8]", {"x": X}, lambda: np.zeros((4, 8))),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "result", "arrays", "expected"), VALUES, ids=[v[1] for v in VALUES])
def test_functions_have_these_values(
    given: str,
    expression: str,
    result: str,
    arrays: dict[str, np.ndarray],
    expected: Callable[[], np.ndarray],
    tmp_path: Path,
) -> None:
    reference = expected()
    checked = check(tmp_path, given, f"  return {expression}", result)
    got = evaluate(checked, arrays, B=4)
    assert got.shape == np.shape(reference)
    np.testing.assert_allclose(got, reference, rtol=1e-12, atol=1e-12)


REFUSED = [
    (XS, "rearrange(x, \"B (h d) -> h B d\")", "E0203", "`h` and `d` are unknown"),
    (XS, 'rearrange(x, "B (h d) -> h B d", h=2, h=2)', "E0201", "gets `h` twice"),
    (XS, 'rearrange(x=x, pattern="B (h d) -> h B", h=2)', "E0203", "`d` occurs on one side"),
    (XS, 'rearrange(x, "B (h d) -> h B", h=2)', "E0203", "`d` occurs on one side"),
    (XS, 'rearrange(x, "B (h d -> h B d", h=2)', "E0203", "not closed"),
    (XS, 'rearrange(x, "B h) d -> h B d", h=2)', "E0203", "extra parenthesis"),
    (XS, 'rearrange(x, "B ... -> ... B")', "E0203", "not allowed in a pattern"),
    (XS, 'rearrange(x, "B B -> B")', "E0203", "occurs twice"),
    (XS, 'rearrange(x, "B d")', "E0203", "needs one `->`"),
    (XS, 'rearrange(x, "B (h d) -> h B d", h=3)', "E0303", "an axis of 8"),
    (XS, 'rearrange(x, "B d -> d B", q=3)', "E0201", "does not occur in the pattern"),
    (XS, 'rearrange(x, "a b c -> c b a")', "E0302", "names 3 axes"),
    (XS, "reshape(x, [B, 7])", "E0302", "has 8*B elements"),
    (XS, "reshape(x, [-1, 3])", "E0303", "are not divisible by 3"),
    (XS, "reshape(x, [-1, -1])", "E0303", "two sizes are -1"),
    (XS, "split(x, 3)", "E0303", "is not divisible by 3"),
    (XS, "concat([x, x[:, 0:2]], axis=0)", "E0302", "differ in more than axis 0"),
    (XS, "stack([x, x[:, 0:2]])", "E0302", "two shapes"),
    (XS, "x @ x", "E0203", "left has 8 columns, right has B rows"),
    (XS, "linear(transpose(x), 3)", "E0307", "depends on a dim"),
    (f"{XS}, {TS}", "exp(x) + t", "E0204", "mixes integers and floats"),
    (TS, "exp(t)", "E0203", "needs a float tensor"),
    (TS, "t / t", "E0203", "needs float tensors"),
    (TS, "mean(t)", "E0203", "needs a float tensor"),
    (TS, "clip(t, high=0.5)", "E0204", "limit 0.5"),
    (TS, 'cast(t, "f8e4m3")', "E0209", "has no dtype"),
    (XS, "clip(x)", "E0201", "without a limit"),
    (XS, "clip(x, 2, 1)", "E0209", "from 2"),
    (XS, "dropout(x, 1.5)", "E0209", "probability 1.5"),
    (XS, "gelu(x, approximate=\"erf\")", "E0209", "no approximation"),
    (XS, "where(x, x, 0)", "E0203", "not b1"),
    (XS, "var(x, over=0, correction=1)", "E0308", "correction 1"),
    (XS, "max(x[:, 0:0], over=1)", "E0308", "over 0 elements"),
    (XS, "softmax(sum(x))", "E0306", "without axes"),
    (XS, "embedding(x, 3, 4)", "E0203", "needs an integer tensor"),
    (TS, "one_hot(t, 0)", "E0308", "0 classes"),
    (TS, "-cast(t, \"u8\")", "E0203", "no negative numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expression", "code", "text"), REFUSED, ids=[r[1] for r in REFUSED])
def test_functions_refuse_what_does_not_fit(given: str, expression: str, code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        check(tmp_path, given, f"  y = {expression}\n  return zeros([B])")
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert text in str(caught.value)
