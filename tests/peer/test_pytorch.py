"""Side by side with PyTorch: the same weights and data give the same curves and predictions.

Skipped, with a counted reason, where torch is not installed; it is never a dependency.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import EXAMPLES

import dslc
from dslc.base.errors import DslcWarning
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import ops
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional

STEPS = 50
TOLERANCE = {"f64": 1e-9, "f32": 1e-4}


def session(folder: Path, model: str, precision: str, sizes: dict[str, Any] | None = None) -> dslc.Session:
    """The model built and loaded with initial weights of seed 3."""
    result = build(check_file(model), Options(provider="reference", precision=precision, sizes=sizes or {}))
    path = folder / f"{result.name}.dslc"
    path.write_bytes(result.artifact)
    return dslc.load(path, weights="init", seed=3)


def weights_of(running: dslc.Session, precision: str) -> dict[str, Any]:
    dtype = torch.float64 if precision == "f64" else torch.float32
    return {n: torch.tensor(v, dtype=dtype) for n, v in running.weights.items()}


def digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(EXAMPLES / "digits" / "digits.npz", allow_pickle=False) as data:
        return data["train_x"], data["train_y"].astype(np.int32)


def lenet(w: dict[str, Any], x: Any) -> Any:
    x = F.max_pool2d(F.relu(F.conv2d(x, w["c1.weight"], w["c1.bias"], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w["c2.weight"], w["c2.bias"])), 2).flatten(1)
    x = F.relu(F.linear(x, w["f1.weight"], w["f1.bias"]))
    x = F.relu(F.linear(x, w["f2.weight"], w["f2.bias"]))
    return F.linear(x, w["head.weight"], w["head.bias"])


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_lenet_curve(tmp_path: Path, precision: str) -> None:
    dtype = np.float64 if precision == "f64" else np.float32
    x, y = digits()
    with session(tmp_path, str(EXAMPLES / "digits" / "lenet.nn"), precision) as ours:
        w = {n: t.requires_grad_() for n, t in weights_of(ours, precision).items()}
        optimizer = torch.optim.SGD(w.values(), lr=0.02, momentum=0.9)
        rng = np.random.default_rng(5)
        for step in range(STEPS):
            rows = rng.permutation(len(x))[:64]
            loss = F.cross_entropy(lenet(w, torch.tensor(x[rows].astype(dtype))), torch.tensor(y[rows]).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            got = ours.train_step(image=x[rows].astype(dtype), label=y[rows], lr=0.02).loss
            assert got == pytest.approx(loss.item(), rel=TOLERANCE[precision]), f"step {step}"
    assert loss.item() < 2.3, "fifty steps must have learnt something, or the curve proves little"


def vae_noise(model: str, precision: str, seed: int, step: int, rows: int) -> np.ndarray:
    """The draws that our training step makes, from the node of its own graph."""
    program, _ = compile_entry(
        check_file(model), "train_step", {"B": rows}, Options(provider="reference", precision=precision)
    )
    [node] = [n for n in program.graph.nodes if n.op.name == "randn"]
    attrs = {k: getattr(v, "value", v) for k, v in node.attrs.items()}
    scalars = [np.array(v, np.int64) for v in (seed, step, step * rows)]
    return np.asarray(ops()["randn"].meaning(scalars, attrs)[0])


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_vae_curve(tmp_path: Path, precision: str) -> None:
    dtype = np.float64 if precision == "f64" else np.float32
    model = str(EXAMPLES / "vae" / "vae.nn")
    x = digits()[0].reshape(-1, 784).astype(dtype)
    rows = 128
    with session(tmp_path, model, precision, {"train": {"B": (rows,)}}) as ours:
        w = {n: t.requires_grad_() for n, t in weights_of(ours, precision).items()}
        optimizer = torch.optim.Adam(w.values(), lr=1e-3)
        rng = np.random.default_rng(5)
        first = None
        for step in range(STEPS):
            batch = x[rng.permutation(len(x))[:rows]]
            image = torch.tensor(batch)
            noise = torch.tensor(vae_noise(model, precision, 3, step, rows))
            h = F.relu(F.linear(image, w["enc.fc.weight"], w["enc.fc.bias"]))
            mu = F.linear(h, w["enc.mu.weight"], w["enc.mu.bias"])
            logvar = F.linear(h, w["enc.logvar.weight"], w["enc.logvar.bias"])
            z = mu + torch.exp(0.5 * logvar) * noise
            h = F.relu(F.linear(z, w["dec.fc.weight"], w["dec.fc.bias"]))
            recon = F.linear(h, w["dec.logits.weight"], w["dec.logits.bias"])
            rec = F.binary_cross_entropy_with_logits(recon, image, reduction="none").sum(1)
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)
            loss = (rec + kl).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            got = ours.train_step(image=batch)
            first = first or got.loss
            assert got.loss == pytest.approx(loss.item(), rel=TOLERANCE[precision]), f"step {step}"
            assert got.metrics["kl"] == pytest.approx(kl.mean().item(), rel=1e-3, abs=1e-6)
        assert got.loss < 0.7 * first


SHARED = """nn 1
dim B in 1..64 = 8
block tower(x: [N, D], d: int) -> [N, d] {
  return x |> linear(d) as fc |> batchnorm(momentum=0.2) as bn |> relu
}
model Pair(a: [B, 5], b: [B, 5]) -> [B, 4] {
  layer enc = tower(4)
  layer bn = batchnorm()
  u = bn(enc(a))
  for i in 0..2 { u = u + bn(u * enc(b)) }
  return u
}
train Pair() {
  loss = mean((output - 1)^2)
  optimizer = sgd(lr=0.05, momentum=0.9)
}
"""


def test_shared_layers_train_as_pytorchs(tmp_path: Path) -> None:
    """Weights that several calls share get all their gradients, and running statistics move with each call."""
    (tmp_path / "pair.nn").write_text(SHARED)
    with session(tmp_path, str(tmp_path / "pair.nn"), "f64") as ours:
        fc = torch.nn.Linear(5, 4, dtype=torch.float64)
        inner, outer = (torch.nn.BatchNorm1d(4, momentum=m, dtype=torch.float64) for m in (0.2, 0.1))
        theirs = torch.nn.ModuleDict({"enc": torch.nn.ModuleDict({"fc": fc, "bn": inner}), "bn": outer})
        theirs.load_state_dict(weights_of(ours, "f64"), strict=False)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)

        def forward(a: np.ndarray, b: np.ndarray) -> Any:
            def enc(x: np.ndarray) -> Any:
                return F.relu(inner(fc(torch.tensor(x))))

            u = outer(enc(a))
            for _ in range(2):
                u = u + outer(u * enc(b))
            return u

        rng = np.random.default_rng(4)
        for _ in range(STEPS):
            a, b = rng.normal(size=(2, 8, 5))
            loss = ((forward(a, b) - 1) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert ours.train_step(a=a, b=b).loss == pytest.approx(loss.item(), rel=1e-9)
        for name, tensor in theirs.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                np.testing.assert_allclose(ours.weights[name], tensor.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)
        theirs.eval()
        np.testing.assert_allclose(ours.predict(a=a, b=b), forward(a, b).detach().numpy(), rtol=1e-8, atol=1e-10)


def test_lenet_predicts_as_pytorch(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    with session(tmp_path, str(EXAMPLES / "digits" / "lenet.nn"), "f32") as ours:
        w = {n: 0.2 * torch.randn(v.shape, generator=generator) for n, v in ours.weights.items()}
        save(tmp_path / "torch.safetensors", w)
        with pytest.warns(DslcWarning, match="no digests"):
            ours.weights.load(tmp_path / "torch.safetensors")
        x = digits()[0][:70]
        expected = lenet(w, torch.tensor(x)).numpy()
        assert np.abs(ours.predict(image=x) - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


def resnet18(w: dict[str, Any], image: Any) -> Any:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = ((image.float() / 255 - mean) / std).permute(0, 3, 1, 2)

    def cbr(x: Any, name: str, stride: int, pad: int, act: bool = True) -> Any:
        x = F.conv2d(x, w[f"{name}.conv.weight"], stride=stride, padding=pad)
        bn = f"{name}.batchnorm"
        x = F.batch_norm(
            x, w[f"{bn}.running_mean"], w[f"{bn}.running_var"], w[f"{bn}.weight"], w[f"{bn}.bias"], False, 0.1, 1e-5
        )
        return F.relu(x) if act else x

    x = F.max_pool2d(cbr(x, "stem.conv1", 2, 3), 3, 2, 1)
    for stage, stride in enumerate([1, 2, 2, 2]):
        for unit in range(2):
            name, s = f"stage.{stage}.unit.{unit}", stride if unit == 0 else 1
            y = cbr(cbr(x, f"{name}.a", s, 1), f"{name}.b", 1, 1, act=False)
            skip = cbr(x, f"{name}.proj", s, 0, act=False) if f"{name}.proj.conv.weight" in w else x
            x = F.relu(y + skip)
    return F.linear(x.mean((2, 3)), w["head.weight"], w["head.bias"])


def save(path: Path, weights: dict[str, Any]) -> None:
    """As PyTorch's users do."""
    from safetensors.torch import save_file

    save_file({n: t.contiguous() for n, t in weights.items()}, str(path))


def test_resnet18_predicts_as_pytorch(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    model = f"{EXAMPLES}/resnet/resnet.nn:ResNet18"
    with session(tmp_path, model, "f32", {"train": {"B": (2,)}, "predict": {"B": (1, 2)}}) as ours:
        w = {}
        for name, value in ours.weights.items():
            draw = torch.randn(value.shape, generator=generator)
            if name.endswith("running_var"):
                w[name] = 1 + 0.1 * draw.abs()
            elif value.ndim > 1:
                w[name] = draw * float(np.sqrt(2 / np.prod(value.shape[1:])))
            else:
                w[name] = (1 if name.endswith("batchnorm.weight") else 0) + 0.1 * draw
        save(tmp_path / "torch.safetensors", w)
        with pytest.warns(DslcWarning, match="no digests"):
            ours.weights.load(tmp_path / "torch.safetensors")
        image = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
        expected = resnet18(w, torch.tensor(image)).numpy()
        got = ours.predict(image=image)
        assert np.abs(got - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())
