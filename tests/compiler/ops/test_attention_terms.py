"""Arguments of sdpa against the explicit formula in f64: values, and gradients against differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs.random_training import training_of
from op_laws.evaluation import run, type_of
from op_laws.language import check
from op_laws.recorder import Recorder, value_of

from dslc.base.errors import CODES
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Mismatch
from dslc.compiler.ir.types import DType
from dslc.dsl.diagnostics import CompileError

RNG = np.random.default_rng(16)
HEADS, T, D, E = 4, 5, 3, 2
LENGTHS = np.array([-2, 1, 3, 9], "i4")  # none, some, all of 5
Q = RNG.uniform(-2, 2, (4, HEADS, T, D))
SHAPES = [(5, 5), (4, 1, 5), (4, 5, 5), (4, 1, 1, 5), (4, 4, 5, 5), (1, 5, 1)]
OPTIONS: list[dict[str, Any]] = [
    {}, {"causal": True}, {"window": 2}, {"causal": True, "window": 2}, {"lengths": True},
    {"causal": True, "lengths": True}, {"mask": True}, {"mask": True, "causal": True}, {"bias": True}, {"softcap": 0.7},
    {"bias": True, "mask": True, "causal": True, "window": 3, "lengths": True, "softcap": 2.0, "scale": 0.9},
]  # fmt: skip


def attention(k: Any, v: Any, b: Any, m: Any, **o: Any) -> np.ndarray:
    """Each query of each head on its own, over the keys that it may see."""
    y = np.zeros((4, HEADS, T, E))
    b, m = (np.broadcast_to(x, (4, HEADS, T, T)) for x in (b, m))
    for r, h, i in np.ndindex(4, HEADS, T):
        at = h // (HEADS // k.shape[1])
        seen = [
            j for j in range(T)
            if not (o.get("causal") and j > i) and abs(i - j) < o.get("window", T)
            and not (o.get("lengths") and j >= LENGTHS[r]) and (m[r, h, i, j] or not o.get("mask"))
        ]  # fmt: skip
        s = k[r, at, seen] @ Q[r, h, i] * o.get("scale", D**-0.5)
        if "softcap" in o:
            s = o["softcap"] * np.tanh(s / o["softcap"])
        e = np.exp(s + b[r, h, i, seen] if o.get("bias") else s)
        y[r, h, i] = (e / e.sum()) @ v[r, at, seen] if seen else 0
    return y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("heads", [4, 2, 1])
def test_every_argument_has_the_value_of_the_formula(heads: int, shape: tuple[int, ...]) -> None:
    k, v = RNG.uniform(-2, 2, (4, heads, T, D)), RNG.uniform(-2, 2, (4, heads, T, E))
    b, m = RNG.uniform(-2, 2, shape), RNG.uniform(size=shape) < 0.6
    for o in OPTIONS:
        call = Recorder(DType.F64)
        feeds = {value_of(x): x for x in (Q, k, v, LENGTHS, b, m)}
        tensors = dict(zip("qkvnbm", feeds))
        given = o | {n: tensors[n[0] if n != "lengths" else "n"] for n in ("bias", "mask", "lengths") if n in o}
        y = call.build("sdpa", tensors["q"], tensors["k"], tensors["v"], **given)
        np.testing.assert_allclose(run([y], feeds)[0], attention(k, v, b, m, **o), rtol=1e-12, atol=1e-12)


def test_no_key_is_repeated_and_no_scores_are_made_without_need() -> None:
    call = Recorder(DType.F64)
    q, k, n = call.tensor(2, 4, 5, 3), call.tensor(2, 2, 5, 3), call.tensor(2, dtype=DType.I32)
    y = call.build("sdpa", q, k, k, True, lengths=n, window=2)
    nodes = [y.producer]
    for node in nodes:
        nodes += [v.producer for v in node.inputs if hasattr(v.producer, "op")]
    assert "sdpa" in {node.op.name for node in nodes}
    assert all(t.dtype is DType.B1 or t.shape != (2, 4, 5, 5) for node in nodes for t in node.types)
    [fused] = {node for node in nodes if node.op.name == "sdpa"}
    assert fused.inputs[1] is k and fused.inputs[2] is k


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"window": 0}, "E0209"), ({"softcap": 0.0}, "E0209"), ({"dropout": 1.0}, "E0209"),
        ({"lengths": (2, 3)}, "E0302"), ({"bias": (3, 5)}, "E0301"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(named: dict[str, Any], code: str) -> None:
    call = Recorder()
    q = call.tensor(2, 4, 5, 3)
    made = {
        k: call.tensor(*v, dtype=DType.I32 if k == "lengths" else None) if isinstance(v, tuple) else v
        for k, v in named.items()
    }
    with pytest.raises(Mismatch) as caught:
        call.build("sdpa", q, q, q, **made)
    assert caught.value.code == code and code in CODES


def test_dropout_keeps_the_result_outside_of_training(tmp_path: Path) -> None:
    given = "q: [B, 4, 5, 3]"
    both = [check(tmp_path, given, f"  return sdpa(q, q, q{o})", "[B, 4, 5, 3]") for o in ("", ", dropout=0.3")]
    with pytest.raises(CompileError):
        check(tmp_path, given, "  return sdpa(q, q, q, dropout=1.5)", "[B, 4, 5, 3]")
    assert any(node.op.name == "dropout" for node in both[1].graph.nodes)
    assert not any(node.op.name == "dropout" for node in both[0].graph.nodes)


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_the_gradients_are_those_of_differences(option: dict[str, Any]) -> None:
    """Along a random direction in q, k, v and bias; the first row may see no key, or has a bias of minus infinity."""
    shapes = {"q": (4, HEADS, T, D), "k": (4, 2, T, D), "v": (4, 2, T, E), "b": (HEADS, T, T)}
    rng = np.random.default_rng(5)
    arrays = {n: rng.uniform(-1, 1, s) for n, s in shapes.items()}
    arrays["b"][:, 1, 2:] = -np.inf
    ways = {n: rng.uniform(-1, 1, s) for n, s in shapes.items()}
    params = {n: Input(n, Kind.PARAM, type_of(x)) for n, x in arrays.items()}
    others = {"n": LENGTHS, "m": rng.uniform(size=(T, T)) < 0.6}
    data = {n: Input(n, Kind.DATA, type_of(x)) for n, x in others.items()}
    inputs = [*params.values(), *data.values()]
    tensors = {i.name: i.value for i in inputs}
    given = option | {n: tensors[at] for n, at in (("bias", "b"), ("mask", "m"), ("lengths", "n")) if n in option}
    y = Recorder(DType.F64).build("sdpa", tensors["q"], tensors["k"], tensors["v"], **given)
    outputs = training_of(inputs, y, [p for n, p in params.items() if n != "b" or "bias" in option]).outputs

    def at(step: float) -> list[np.ndarray]:
        feeds = {tensors[n]: x + step * ways[n] for n, x in arrays.items()} | {tensors[n]: x for n, x in others.items()}
        return run(list(outputs.values()), feeds)

    slope = (at(1e-5)[0] - at(-1e-5)[0]) / 2e-5
    found = sum(np.sum(g * ways[name[-1]]) for name, g in zip(list(outputs)[1:], at(0.0)[1:], strict=True))
    np.testing.assert_allclose(found, slope, rtol=1e-7, atol=1e-10)
