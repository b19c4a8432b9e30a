"""Random numbers in a loop: of each step and row their own, those of one draw for all steps before the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loops import opened

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.scan import Loop, scan
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

B, T = 4, 3
HEAD = f"nn 1\ndim B in 1..8 = {B}\nconst T = {T}\n"
TRAIN = "train Net(t: [B, T, 4]) {\n  loss = mean((y * 1 - t)^2)\n  optimizer = sgd(lr=0.5)\n}\n"


def text(body: str) -> str:
    head = "model Net(x: [B, T, 4]) -> (y: [B, T, 4]) {\n  param w: [4] = uniform(0.9)\n"
    return f"{HEAD}{head}{body}  return y\n}}\n{TRAIN}"


LOOP = (
    "  h = zeros([B, 4])\n  scan xt{0} in x{1} along 1 carry h into y {{\n"
    "    h = tanh(h * w + xt) {2}\n    yield h\n  }}\n"
)


@pytest.mark.parametrize("provider", ["reference", pytest.param("own", marks=pytest.mark.slow)])
@pytest.mark.parametrize("nested", [False, True])
def test_dropout_has_the_bits_of_one_before_the_loop(provider: str, nested: bool, tmp_path: Path) -> None:
    inside = LOOP.format("", "", "|> dropout(0.5) as drop")
    before = "  kept = ones([B, T, 4]) |> dropout(0.5) as drop\n" + LOOP.format(", kt", ", kept", "* kt")
    if nested:
        once = (
            "  scan one in reshape(x, [1, B, T, 4]) along 0 into z {{\n    x = one\n{}    yield y\n  }}\n  y = z[0]\n"
        )
        inside = once.format(inside).replace("x = one\n", "").replace("in x along 1", "in one along 1")
    one, other = (opened(text(b), tmp_path / n, provider=provider) for n, b in (("in", inside), ("out", before)))
    x, t = np.random.default_rng(0).standard_normal((2, B, T, 4)).astype("f4")
    assert np.array_equal(one.predict(x=x), other.predict(x=x))  # outside of training it is the identity
    for _ in range(2):
        assert one.train_step(x=x, t=t).loss == other.train_step(x=x, t=t).loss
    assert np.array_equal(one.weights["w"], other.weights["w"])


def test_each_step_and_row_has_its_own_numbers(tmp_path: Path) -> None:
    body = "  scan xt in x along 1 into y { yield xt * 0 + rand([B, 4]) + w * 0 }\n"
    session = opened(text(body), tmp_path, provider="reference")
    x = np.zeros((B, T, 4), "f4")
    found = np.asarray(session.predict(x=x))
    assert len(np.unique(found)) > 0.9 * found.size and found.min() >= 0 and found.max() < 1


def test_rows_of_a_batch_draw_what_they_draw_alone(tmp_path: Path) -> None:
    """In two shards, each of which draws by the row's index in the whole batch."""
    body = LOOP.format("", "", "|> dropout(0.5) as drop")
    x, t = np.random.default_rng(1).standard_normal((2, B, T, 4)).astype("f4")
    losses = []
    for shards in (1, 2):
        mesh = "mesh { shards = 2 }\n" if shards > 1 else ""
        session = opened(text(body) + mesh, tmp_path / str(shards), provider="reference")
        losses.append(float(session.train_step(x=x, t=t).loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("provider", ["reference", pytest.param("own", marks=pytest.mark.slow)])
def test_what_is_dropped_is_0_whatever_it_was(provider: str, tmp_path: Path) -> None:
    """As of a dropout outside of loops: the log of a negative number and an overflow where all is dropped."""
    body = (
        "  scan xt in x along 1 into y {\n"
        "    yield (log(xt) |> dropout(1.0)) + (xt * 1e38 * w * 1e38 |> dropout(1.0)) + w\n  }\n"
    )
    session = opened(text(body), tmp_path, provider=provider)
    x, before = np.full((B, T, 4), -1.0, "f4"), np.array(session.weights["w"])
    loss = session.train_step(x=x, t=np.zeros((B, T, 4), "f4")).loss
    assert loss == pytest.approx(float((before**2).mean()), rel=1e-6)
    np.testing.assert_allclose(session.weights["w"], before - 0.5 * 2 * before / 4, rtol=1e-6)


def test_evaluation_draws_and_multiplies_nothing(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(text(LOOP.format("", "", "|> dropout(0.5) as drop")))
    program, _ = compile_entry(check_file(tmp_path / "net.nn"), "predict", {"B": B}, Options(), after="simplify")
    [loop] = [Loop.of(node) for node in program.graph.nodes if node.op is scan]
    assert len(loop.sequences) == 1
    assert sorted(node.op.name for node in loop.graph.nodes) == ["add", "mul", "tanh"]
