"""lstm, gru and rnn against the formulas of PyTorch's documentation, in f64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from loops import opened

from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry
from dslc.dsl.diagnostics import CompileError

B, T, D, H = 3, 5, 4, 2
STATES = {"lstm": 2, "gru": 1, "rnn": 1}
Weights = Mapping[str, np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(x: np.ndarray, s: list[np.ndarray], w: Callable[[str], np.ndarray]) -> list[np.ndarray]:
    i, f, g, o = np.split(x @ w("weight_ih").T + w("bias_ih") + s[0] @ w("weight_hh").T + w("bias_hh"), 4, axis=1)
    c = sigmoid(f) * s[1] + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru(x: np.ndarray, s: list[np.ndarray], w: Callable[[str], np.ndarray]) -> list[np.ndarray]:
    a, b = x @ w("weight_ih").T + w("bias_ih"), s[0] @ w("weight_hh").T + w("bias_hh")
    (ar, az, an), (br, bz, bn) = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
    z = sigmoid(az + bz)
    return [(1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * s[0]]


def rnn(x: np.ndarray, s: list[np.ndarray], w: Callable[[str], np.ndarray]) -> list[np.ndarray]:
    return [np.tanh(x @ w("weight_ih").T + w("bias_ih") + s[0] @ w("weight_hh").T + w("bias_hh"))]


STEPS = {"lstm": lstm, "gru": gru, "rnn": rnn}


def expected(
    name: str, x: np.ndarray, weights: Weights, first: list[np.ndarray], layers: int, ways: int, lengths: np.ndarray
) -> list[np.ndarray]:
    """The results and the last states, row by row."""
    ends = [np.zeros((layers * ways, B, H)) for _ in first]
    for layer in range(layers):
        results = np.zeros((B, T, ways * H))
        for row in range(B):
            for way in range(ways):
                suffix = f"l{layer}" + ("_reverse" if way else "")
                at = layer * ways + way
                states = [s[at, row : row + 1] for s in first]
                steps = range(lengths[row])
                for t in reversed(steps) if way else steps:
                    states = STEPS[name](
                        x[row : row + 1, t],
                        states,
                        lambda leaf: weights[f"net.{leaf}_{suffix}"],  # noqa: B023
                    )
                    results[row, t, way * H : (way + 1) * H] = states[0]
                for end, state in zip(ends, states):
                    end[at, row] = state
        x = results
    return [x, *ends]


def source(name: str, layers: int, ways: int, more: str = "") -> str:
    names = ["h", "c"][: STATES[name]]
    shape = f"[{layers * ways}, B, {H}]"
    given = ", ".join(f"{s}={s}0" for s in names)
    inputs = ", ".join(f"{s}0: {shape}" for s in names)
    results = ", ".join(f"{s}: {shape}" for s in names)
    head = f"model Net(x: [B, {T}, {D}], n: i32[B], {inputs}) -> (y: [B, {T}, {ways * H}], {results})"
    both = str(ways == 2).lower()
    call = f"{name}(x, {H}, layers={layers}, bidirectional={both}, {given}, lengths=n{more}) as net"
    return (
        f"nn 1\nconst B = {B}\n{head} {{\n"
        f"  y, {', '.join(names)} = {call}\n  return y, {', '.join(names)}\n}}\n"
        f"train Net(t: [B, {T}, {ways * H}]) {{\n  loss = mean(y * t) + sum(h)\n  optimizer = sgd(lr=1.0)\n}}\n"
        "precision { compute = f64; params = f64 }\n"
    )


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("provider", ["reference", "auto"])
def test_a_length_outside_of_the_steps_is_all_or_none(name: str, provider: str, tmp_path: Path) -> None:
    session = opened(source(name, 2, 2), tmp_path, provider=provider)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((B, T, D))}
    given |= {f"{s}0": rng.standard_normal((4, B, H)) for s in ("h", "c")[: STATES[name]]}
    wanted = session.predict(**given, n=np.array([T, 0, 2], np.int32))
    for beyond, below in ((T + 1, -1), (2**31 - 1, -(2**31))):
        found = session.predict(**given, n=np.array([beyond, below, 2], np.int32))
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("layers", "ways"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("name", STEPS)
def test_results_and_gradients_are_those_of_the_formula(
    name: str, layers: int, ways: int, tmp_path: Path, fuzz_seed: int
) -> None:
    session = opened(source(name, layers, ways), tmp_path, provider="reference")
    rng = np.random.default_rng(fuzz_seed)
    x, t = rng.standard_normal((B, T, D)), rng.standard_normal((B, T, ways * H))
    first = [rng.standard_normal((layers * ways, B, H)) for _ in range(STATES[name])]
    n = np.array([T, 1, 3], np.int32)
    weights = {key: np.array(session.weights[key]) for key in session.weights}
    leaves = [f"{a}_{b}h_l{i}{way}" for i in range(layers) for way in ("", "_reverse")[:ways]
              for a in ("weight", "bias") for b in "ih"]  # fmt: skip
    assert sorted(weights) == sorted(f"net.{leaf}" for leaf in leaves)
    given = {"x": x, "n": n, **{f"{s}0": value for s, value in zip("hc", first)}}
    found = session.predict(**given)
    for one, other in zip(found, expected(name, x, weights, first, layers, ways, n), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)

    def loss() -> float:
        y, h, *_ = expected(name, x, weights, first, layers, ways, n)
        return float((y * t).mean() + h.sum())

    assert session.train_step(**given, t=t).loss == pytest.approx(loss(), rel=1e-12)
    for key, value in weights.items():
        at = tuple(rng.integers(0, size) for size in value.shape)
        kept, sides = value[at], []
        for step in (1e-5, -1e-5):
            value[at] = kept + step
            sides.append(loss())
        value[at] = kept
        assert kept - session.weights[key][at] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-8), key


def test_dropout_is_between_layers_and_bias_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(source("lstm", 3, 1, ", dropout=0.5, bias=false"))
    checked = check_file(tmp_path / "net.nn")
    assert not [name for name in checked.params if "bias" in name]
    program, _ = compile_entry(checked, "train_step", {}, Options(), after="precision")
    assert sum(node.op.name == "dropout" for node in program.graph.nodes) >= 2
    program, _ = compile_entry(checked, "predict", {}, Options(), after="precision")
    assert not [node for node in program.graph.nodes if node.op.name == "dropout"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("lstm(x[:, 0], 4)", "runs over [B, T, D]"),
        ("gru(x, 0)", "hidden=0"),
        ("rnn(x, 4, layers=0)", "layers=0"),
        ("lstm(x, 4, dropout=1.5)", "dropout=1.5"),
        ("gru(x, 4, h=zeros([2, 2, 4]))", "first state"),
        ("gru(x, 4, lengths=tensor([1, 2, 3]))", "`lengths` is i32[3]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: str, said: str, tmp_path: Path) -> None:
    text = f"nn 1\nmodel Net(x: [2, 3, 4]) -> [2, 3, 4] {{\n  r = {call}\n  return r[0]\n}}\n"
    (tmp_path / "net.nn").write_text(text)
    with pytest.raises(CompileError, match=r"E0\d+") as caught:
        check_file(tmp_path / "net.nn")
    assert any(said in d.title + d.label.text for d in caught.value.diagnostics), str(caught.value)
