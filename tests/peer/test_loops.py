"""Loops at run time, compared with PyTorch in f64: random programs, recurrent layers over rows of unequal lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loops import opened
from random_loops import ROWS, WIDTH, random_loops
from thinning import thinned

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
from torch_source import TorchSource  # noqa: E402

F64 = "precision { compute = f64; params = f64 }\n"
STEPS = (0, 1, 3, 7)
WITHIN = 1e-9  # of the greatest gradient of the tensor, or of 1


def wide(array: Any) -> Any:
    return torch.tensor(np.array(array), dtype=torch.float64)


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    """The greatest difference, of the greatest number or of 1."""
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max(initial=0) / max(1.0, np.abs(wanted).max(initial=0)))


def error_of(seed: int, folder: Path, provider: str = "reference", text: str | None = None) -> float:
    """How far the loss and the gradients of a random program lie from PyTorch's."""
    steps, rng = STEPS[seed % 4], np.random.default_rng(seed)
    text = text or random_loops(seed, steps, 1 + seed % 3 // 2, F64)[0]
    shapes = {"x": (ROWS, steps, WIDTH), "u": (ROWS, steps, WIDTH), "z": (ROWS, WIDTH), "t": (ROWS, WIDTH)}
    given = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    with opened(text, folder, provider=provider) as session:
        before = {name: np.array(value) for name, value in session.weights.items()}
        loss = session.train_step(**given).loss
        gradients = {name: (before[name] - np.array(session.weights[name])) / 0.5 for name in before}
    weights = {name: wide(value).requires_grad_() for name, value in before.items()}
    inputs = {name: wide(value) for name, value in given.items()}
    theirs = torch.nn.functional.mse_loss(
        TorchSource(text, weights)("Net", **{name: inputs[name] for name in "xuz"}), inputs["t"]
    )
    theirs.backward()
    wanted = {name: np.zeros(w.shape) if w.grad is None else w.grad.numpy() for name, w in weights.items()}
    return max(apart(np.array(loss), theirs.detach().numpy()), *(apart(gradients[n], wanted[n]) for n in wanted))


@pytest.mark.parametrize("part", range(8))
def test_gradients_of_random_loops_are_autograds(part: int, fuzz_seed: int, tmp_path: Path) -> None:
    for seed in range(fuzz_seed + 8 * part, fuzz_seed + 8 * part + 8):
        assert error_of(seed, tmp_path / str(seed)) < WITHIN, seed


LENGTHS = (5, 1, 3)
LAYERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def packed(name: str, layers: int, ways: int) -> str:
    """A recurrent layer over rows of given lengths; its first states are inputs."""
    states = ["h", "c"] if name == "lstm" else ["h"]
    shape = f"[{layers * ways}, B, 2]"
    results = ", ".join(f"{s}: {shape}" for s in states)
    return (
        f"nn 1\nconst B = 3\nmodel Net(x: [B, 5, 4], n: i32[B], {', '.join(f'{s}0: {shape}' for s in states)})"
        f" -> (y: [B, 5, {2 * ways}], {results}) {{\n"
        f"  y, {', '.join(states)} = {name}(x, 2, layers={layers}, bidirectional={str(ways == 2).lower()}, "
        f"{', '.join(f'{s}={s}0' for s in states)}, lengths=n) as net\n  return y, {', '.join(states)}\n}}\n"
        f"train Net(t: [B, 5, {2 * ways}]) {{\n"
        f"  loss = mean(y * t) + {' + '.join(f'sum({s} * {s})' for s in states)}\n  optimizer = sgd(lr=0.5)\n}}\n" + F64
    )


@pytest.mark.parametrize(("layers", "ways"), thinned([(1, 1), (1, 2), (2, 1), (2, 2)], 1))
@pytest.mark.parametrize("name", LAYERS)
def test_lengths_are_packed_sequences(name: str, layers: int, ways: int, fuzz_seed: int, tmp_path: Path) -> None:
    """Results, last states, loss and gradients are those of `pack_padded_sequence`; padding has no part in them."""
    rng, states = np.random.default_rng(fuzz_seed), "hc" if name == "lstm" else "h"
    x, t = rng.standard_normal((3, 5, 4)), rng.standard_normal((3, 5, 2 * ways))
    for row, length in enumerate(LENGTHS):
        x[row, length:] = 1e3  # what no result may see
    first = {f"{s}0": rng.standard_normal((layers * ways, 3, 2)) for s in states}
    given = {"x": x, "n": np.array(LENGTHS, np.int32), **first}
    with opened(packed(name, layers, ways), tmp_path, provider="reference") as session:
        before = {leaf: np.array(value) for leaf, value in session.weights.items()}
        found = [np.array(each) for each in session.predict(**given)]
        loss = session.train_step(**given, t=t).loss
        gradients = {leaf: (before[leaf] - np.array(session.weights[leaf])) / 0.5 for leaf in before}
    theirs = LAYERS[name](4, 2, layers, bidirectional=ways == 2, batch_first=True).double()
    theirs.load_state_dict({leaf.removeprefix("net."): wide(value) for leaf, value in before.items()})
    rows = torch.nn.utils.rnn.pack_padded_sequence(
        wide(x), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    start = [wide(value) for value in first.values()]
    y, last = theirs(rows, tuple(start) if name == "lstm" else start[0])
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    last = [*last] if name == "lstm" else [last]
    wanted = (y * wide(t)).mean() + sum((s * s).sum() for s in last)
    wanted.backward()
    for one, other in zip(found, [y, *last], strict=True):
        assert apart(one, other.detach().numpy()) < WITHIN
    assert apart(np.array(loss), wanted.detach().numpy()) < WITHIN
    for leaf, weight in theirs.named_parameters():
        assert apart(gradients[f"net.{leaf}"], weight.grad.numpy()) < WITHIN, leaf
