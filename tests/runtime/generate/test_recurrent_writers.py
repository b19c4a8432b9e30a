"""Cells of a user's own write text: step by step their logits are those of the whole sequence, and so is the text."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.runtime.session.load import load

V, B = 20, 2
PROMPT = [3, 1, 4, 1, 5]

#: the states, and a block's step from ``xt`` [B, D] to ``y`` [B, D]
CELLS = {
    "lstm": "  state h: [2, B, D] = 0\n  state c: [2, B, D] = 0\n  y, h, c = lstm(x, D, layers=2, h=h, c=c) as rnn\n",
    # Beck et al. 2024: exponential gates, held in range by m
    "slstm": (
        "  layer gates = linear(4*D)\n  state h: [B, D] = 0\n  state c: [B, D] = 0\n  state n: [B, D] = 0\n"
        "  state m: [B, D] = 0\n  scan xt in x along 1 carry h, c, n, m into y {\n"
        "    i, f, z, o = split(gates(concat([xt, h], axis=1)), 4)\n    k = maximum(f + m, i)\n"
        "    c = exp(f + m - k) * c + exp(i - k) * tanh(z)\n    n = exp(f + m - k) * n + exp(i - k)\n    m = k\n"
        "    h = sigmoid(o) * c / maximum(n, 1)\n    yield h\n  }\n"
    ),
    # Peng et al. 2023: a decayed sum of values, weighted by the exponentials of keys, and the token before
    "rwkv": (
        "  param decay: [D] = uniform(0.5)\n  param bonus: [D] = uniform(0.5)\n  layer kvr = linear(3*D)\n"
        "  state a: [B, D] = 0\n  state b: [B, D] = 0\n  state last: [B, D] = 0\n"
        "  scan xt in x along 1 carry a, b, last into y {\n    k, v, r = split(kvr(0.5 * (xt + last)), 3)\n"
        "    e = exp(bonus + k)\n    yield sigmoid(r) * (a + e * v) / (b + e)\n"
        "    a = exp(-exp(decay)) * a + exp(k) * v\n    b = exp(-exp(decay)) * b + exp(k)\n    last = xt\n  }\n"
    ),
    # Gu and Dao 2023: a state for each feature, whose step depends on the element
    "selective": (
        "  param pole: [D, 4] = uniform(0.5)\n  layer read = linear(D + 8)\n  state s: [B, D, 4] = 0\n"
        "  scan xt in x along 1 carry s into y {\n    p = read(xt)\n"
        "    size = reshape(softplus(p[:, 0:D]), [B, D, 1])\n"
        "    put = reshape(p[:, D:D + 4], [B, 1, 4])\n    take = reshape(p[:, D + 4:D + 8], [B, 1, 4])\n"
        "    s = exp(-size * exp(pole)) * s + size * put * reshape(xt, [B, D, 1])\n"
        "    yield sum(s * take, over=2)\n  }\n"
    ),
}  # fmt: skip


def text(cell: str) -> str:
    return (
        f"nn 1\ndim B in 1..4 = {B}\ndim T in 1..32 = 12\nconst V = {V}\n"
        f"block cell(x: [B, T, D]) -> [B, T, D] {{\n{CELLS[cell]}  return y\n}}\n"
        "model Net(ids: i32[B, T]) -> [B, T, V] {\n"
        "  return ids |> embedding(V, 8) as tok |> cell as cell |> linear(V) as head\n}\n"
    )


@pytest.mark.parametrize("cell", CELLS)
def test_steps_give_the_logits_and_the_text_of_the_whole(cell: str, tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(text(cell))
    options = Options(provider="reference", sizes={"predict": {"B": (1, B), "T": (1, 4, 12)}})
    (tmp_path / "net.dslc").write_bytes(pipeline.build(check_file(tmp_path / "net.nn"), options).artifact)
    with load(tmp_path / "net.dslc", weights="init", seed=2, device="cpu", meanings=meanings) as session:
        ids = np.random.default_rng(0).integers(0, V, (B, 12)).astype(np.int32)
        whole, stream = session.predict(ids=ids), session.stream()
        parts = [stream.predict(ids=ids[:, a:b]) for a, b in pairwise([0, 4, 8, 9, 10, 11, 12])]
        assert np.abs(np.concatenate(parts, axis=1) - whole).max() < 1e-5

        [found] = session.generate([PROMPT], 7, temperature=0)
        tokens = [*PROMPT, *found]
        logits = session.predict(ids=np.array([tokens], np.int32))
        assert list(logits[0, len(PROMPT) - 1 : -1].argmax(axis=1)) == list(found)
