"""Twenty steps of each optimizer next to ``torch.optim`` in f64: three models, weight decay, a schedule.

Skipped, with a counted reason, where torch is not installed; it is never a dependency.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional

STEPS, ROWS = 20, 16
TRAIN = "train Net(label: i32[B]) {{ loss = cross_entropy(output, label); optimizer = {optimizer} }}\n"
DENSE = "model Net(x: [B, 12]) -> [B, 3] { return x |> linear(8) as a |> tanh |> linear(3) as b }\n"
IMAGES = """model Net(x: [B, 12]) -> [B, 3] {
  return reshape(x, [B, 1, 3, 4]) |> conv(4, 3, pad=1) as a |> silu |> flatten |> linear(3) as b
}
"""
NORMALISED = """model Net(x: [B, 12]) -> [B, 3] {
  h = x |> linear(9) as a |> layernorm as n |> gelu
  return h |> linear(9) as c |> gelu |> add(h) |> linear(3, bias=false) as b
}
"""


def dense(w: dict[str, Any], x: Any) -> Any:
    h = F.linear(x, w["a.weight"], w["a.bias"]).tanh()
    return F.linear(h, w["b.weight"], w["b.bias"])


def images(w: dict[str, Any], x: Any) -> Any:
    h = F.silu(F.conv2d(x.reshape(-1, 1, 3, 4), w["a.weight"], w["a.bias"], padding=1))
    return F.linear(h.flatten(1), w["b.weight"], w["b.bias"])


def normalised(w: dict[str, Any], x: Any) -> Any:
    h = F.gelu(F.layer_norm(F.linear(x, w["a.weight"], w["a.bias"]), (9,), w["n.weight"], w["n.bias"]))
    return F.linear(F.gelu(F.linear(h, w["c.weight"], w["c.bias"])) + h, w["b.weight"])


MODELS = {"dense": (DENSE, dense), "images": (IMAGES, images), "normalised": (NORMALISED, normalised)}


def newton_schulz(x: Any, coefficients: Any, steps: int, eps: float) -> Any:
    """As in ``torch.optim``, but not in bf16."""
    a, b, c = coefficients
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Both:
    """Muon for matrices but the last one, AdamW for the rest."""

    def __init__(self, params: list[Any]) -> None:
        import torch.optim._muon as of_torch

        of_torch._zeropower_via_newtonschulz = newton_schulz
        inner = [p for p in params if p.ndim == 2 and len(p) != 3]
        rest = [p for p in params if not any(p is q for q in inner)]
        self.each = [torch.optim.Muon(inner, 0.02, weight_decay=0.2)] if inner else []
        self.each.append(torch.optim.AdamW(rest, 0.003, (0.9, 0.95), weight_decay=0.2))
        self.param_groups = [group for one in self.each for group in one.param_groups]

    def zero_grad(self) -> None:
        for one in self.each:
            one.zero_grad()

    def step(self) -> None:
        for one in self.each:
            one.step()


Made = Callable[[list[Any]], Any]
#: our call, and PyTorch's; and the relative error
CASES: list[tuple[str, Made, float]] = [
    ("sgd(lr=0.1, momentum=0.9, weight_decay=0.1)", lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.1), 1e-11),
    ("adam(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1), 1e-10),
    ("adamw(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1), 1e-10),
    ("rmsprop(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.1), 1e-10),
    ("adagrad(lr=0.1, lr_decay=0.1, weight_decay=0.1)",
     lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.1), 1e-10),
    ("adadelta(weight_decay=0.1)", lambda p: torch.optim.Adadelta(p, weight_decay=0.1), 1e-10),
    ("adamax(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.Adamax(p, 0.01, weight_decay=0.1), 1e-10),
    ("radam(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.RAdam(p, 0.01, weight_decay=0.1), 1e-10),
    ("radam(lr=0.01, weight_decay=0.1, decoupled_weight_decay=true)",
     lambda p: torch.optim.RAdam(p, 0.01, weight_decay=0.1, decoupled_weight_decay=True), 1e-10),
    # PyTorch keeps the product of momenta in f32
    ("nadam(lr=0.01, weight_decay=0.1)", lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.1), 1e-6),
    ("nadam(lr=0.01, weight_decay=0.1, decoupled_weight_decay=true)",
     lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.1, decoupled_weight_decay=True), 1e-6),
    ('muon(lr=0.02, weight_decay=0.2, adamw_lr=0.003, adamw="b")', Both, 1e-10),
    ("adafactor(lr=0.1, weight_decay=0.1)",
     lambda p: torch.optim.Adafactor(p, 0.1, eps=(2.0**-23, 1e-3), weight_decay=0.1), 1e-10),
    ("rprop(lr=0.01)", torch.optim.Rprop, 1e-10),
]  # fmt: skip


def rate(step: int) -> float:
    """The factor of the learning rate: a warm-up and a decay."""
    return min((step + 1) / 5, 5 / (step + 1))


#: PyTorch's Muon takes no weights of convolutions
PAIRS = [(model, *case) for case in CASES for model in MODELS if (model, case[1]) != ("images", Both)]


@pytest.mark.parametrize(("model", "call", "peer", "error"), PAIRS, ids=[f"{p[0]}-{p[1]}" for p in PAIRS])
def test_twenty_steps_next_to_torch(tmp_path: Path, model: str, call: str, peer: Made, error: float) -> None:
    source, forward = MODELS[model]
    text = f"nn 1\ndim B in 1..64 = {ROWS}\n" + source + TRAIN.format(optimizer=call)
    (tmp_path / "net.nn").write_text(text)
    result = build(check_file(tmp_path / "net.nn"), Options(provider="auto", precision="f64"))
    (tmp_path / "net.dslc").write_bytes(result.artifact)
    rng = np.random.default_rng(7)
    with dslc.load(tmp_path / "net.dslc", weights="init", seed=3) as ours:
        w = {n: torch.nn.Parameter(torch.tensor(v, dtype=torch.float64)) for n, v in ours.weights.items()}
        stepper = peer(list(w.values()))
        bases = [group["lr"] for group in stepper.param_groups]
        for step in range(STEPS):
            x, label = rng.normal(size=(ROWS, 12)), rng.integers(0, 3, ROWS).astype(np.int32)
            for group, base in zip(stepper.param_groups, bases):
                group["lr"] = base * rate(step)
            stepper.zero_grad()
            loss = F.cross_entropy(forward(w, torch.tensor(x)), torch.tensor(label).long())
            loss.backward()
            stepper.step()
            got = ours.train_step(x=x, label=label, lr=bases[0] * rate(step)).loss
            assert got == pytest.approx(loss.item(), rel=error), f"step {step}"
        for name, value in ours.weights.items():
            np.testing.assert_allclose(value, w[name].detach().numpy(), rtol=error, atol=error)
