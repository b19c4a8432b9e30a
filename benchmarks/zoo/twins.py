"""The models of the zoo in PyTorch: torchvision's and transformers' where they have them, else written here.

    python twins.py NAME FOLDER [--mode eager|compile]

Writes weights, and the prediction and gradients of one step in f64 to FOLDER, says how far f32 is from these, and then
serves commands (``steps.py``). The names of the weights of the models here are those of dslc's. Needs torch,
torchvision, transformers and safetensors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.models as vision
import transformers
from entries import ENTRIES, Entry
from safetensors.torch import save_file
from steps import answer, norm_errors, resident, serve
from torch import Tensor, nn


class Image(nn.Module):
    """A classifier of bytes in rows of pixels."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        for name, values in (("mean", [0.485, 0.456, 0.406]), ("std", [0.229, 0.224, 0.225])):
            self.register_buffer(name, torch.tensor(values).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        x = (image.permute(0, 3, 1, 2).to(self.mean.dtype) / 255 - self.mean) / self.std
        found: Tensor = self.inner(x.contiguous())
        return found


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.inner = transformers.BertForMaskedLM(config)

    def forward(self, ids: Tensor, mask: Tensor, segment: Tensor) -> Tensor:
        found: Tensor = self.inner(input_ids=ids, attention_mask=mask, token_type_ids=segment).logits
        return found


class LlamaAttention(nn.Module):
    def __init__(self, d: int, heads: int, kv: int) -> None:
        super().__init__()
        self.size = d // heads
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k, self.v = (nn.Linear(d, self.size * kv, bias=False) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (-1, self.size)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (_turned(each, cos, sin) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        found: Tensor = self.o(y.transpose(1, 2).flatten(2))
        return found


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class LlamaLayer(nn.Module):
    def __init__(self, d: int, heads: int, kv: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.attn = LlamaAttention(d, heads, kv)
        self.gate, self.up = (nn.Linear(d, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, d: int = 768, vocab: int = 32_000) -> None:
        super().__init__()
        self.tok, self.norm = nn.Embedding(vocab, d), nn.RMSNorm(d, 1e-5)
        self.h = nn.ModuleList(nn.ModuleDict({"layer": LlamaLayer(d, 12, 4, 2048)}) for _ in range(12))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x, size = self.tok(ids), self.h[0]["layer"].attn.size
        slope = 10000.0 ** (-2.0 * torch.arange(size // 2) / size)
        angle = torch.arange(ids.shape[1])[:, None] * slope
        for each in self.h:
            x = each["layer"](x, angle.cos(), angle.sin())
        found: Tensor = self.head(self.norm(x))
        return found


class DLRM(nn.Module):
    def __init__(self, rows: int = 10_000, d: int = 64) -> None:
        super().__init__()
        self.bottom1, self.bottom2, self.bottom3 = nn.Linear(13, 512), nn.Linear(512, 256), nn.Linear(256, d)
        self.table = nn.ModuleList(nn.ModuleDict({"rows": nn.Embedding(rows, d)}) for _ in range(26))
        self.top1, self.top2, self.top3 = nn.Linear(d + 351, 512), nn.Linear(512, 256), nn.Linear(256, 1)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1), persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom3(self.bottom2(self.bottom1(dense).relu()).relu()).relu()
        z = torch.stack([x, *(each["rows"](ids[:, i]) for i, each in enumerate(self.table))], 1)
        y = torch.cat([x, (z @ z.mT)[:, self.pairs[0], self.pairs[1]]], 1)
        found: Tensor = self.top3(self.top2(self.top1(y).relu()).relu())[:, 0]
        return found


def _shared(c: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"conv": nn.Conv1d(c, out, 1), "batchnorm": nn.BatchNorm1d(out)})


def _dense(c: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"linear": nn.Linear(c, out), "batchnorm": nn.BatchNorm1d(out)})


def _through(layer: Any, x: Tensor) -> Tensor:
    for each in layer.values():
        x = each(x)
    return x


class Transform(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.s1, self.s2, self.s3 = _shared(c, 64), _shared(64, 128), _shared(128, 1024)
        self.d1, self.d2, self.last = _dense(1024, 512), _dense(512, 256), nn.Linear(256, c * c)

    def forward(self, x: Tensor) -> Tensor:
        c = x.shape[1]
        for each in (self.s1, self.s2, self.s3):
            x = _through(each, x).relu()
        x = x.amax(2)
        for each in (self.d1, self.d2):
            x = _through(each, x).relu()
        return self.last(x).unflatten(1, (c, c)) + torch.eye(c)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input, self.feature = Transform(3), Transform(64)
        self.s1, self.s2, self.s3 = _shared(3, 64), _shared(64, 128), _shared(128, 1024)
        self.d1, self.d2, self.head = _dense(1024, 512), _dense(512, 256), nn.Linear(256, 40)

    def forward(self, points: Tensor) -> Tensor:
        x = _through(self.s1, self.input(points).mT @ points).relu()
        x = _through(self.s2, self.feature(x).mT @ x).relu()
        x = _through(self.d1, _through(self.s3, x).amax(2)).relu()
        found: Tensor = self.head(_through(self.d2, x).relu())
        return found


Given = dict[str, Tensor]
MADE: dict[str, Callable[[], nn.Module]] = {
    "MobileNetV2": lambda: Image(vision.mobilenet_v2(dropout=0.0)),
    "ShuffleNetV2": lambda: Image(vision.shufflenet_v2_x1_0()),
    "EfficientNet-B0": lambda: Image(vision.efficientnet_b0(dropout=0.0, stochastic_depth_prob=0.0)),
    "ConvNeXt-T": lambda: Image(vision.convnext_tiny(stochastic_depth_prob=0.0)),
    "DenseNet-121": lambda: Image(vision.densenet121()),
    "ViT-B/16": lambda: Image(vision.vit_b_16()),
    "BERT-base": Bert,
    "Llama 125M": Llama,
    "DLRM": DLRM,
    "PointNet": PointNet,
}


def stirred(model: nn.Module) -> None:
    """Scales near 1, biases, statistics and layers of zeros are drawn, so that nothing vanishes."""
    with torch.no_grad():
        for name, x in model.state_dict().items():
            if not x.is_floating_point():
                continue
            if name.endswith("running_var") or "layer_scale" in name:
                x.uniform_(0.5, 1.5)
            elif x.dim() == 1:
                x.normal_(1.0 if name.endswith("weight") else 0.0, 0.1)
            elif not x.any():
                x.normal_(0.0, 0.02)


def named(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the wrapper's name, and each tensor once."""
    tied = set(getattr(getattr(model, "inner", None), "_tied_weights_keys", None) or ())
    found = {name.removeprefix("inner."): x.detach().float().contiguous() for name, x in tensors.items()}
    return {name: x.clone() for name, x in found.items() if name not in tied and not name.endswith("batches_tracked")}


def loss_of(entry: Entry, output: Tensor, labels: dict[str, Tensor]) -> Tensor:
    """The loss of the entry's train section."""
    [label] = labels.values()
    if entry.loss.startswith("bce"):
        return F.binary_cross_entropy_with_logits(output, label)
    return F.cross_entropy(output.flatten(0, -2), label.flatten(), ignore_index=-100)


def step_of(entry: Entry, model: nn.Module, inputs: Given, labels: Given) -> tuple[Tensor, float, Given]:
    """The prediction, the loss of a training step, and its gradients by the names of all weights; 0 for statistics."""
    with torch.inference_mode():
        prediction = model.eval()(**inputs)
    model.train().zero_grad()
    loss = loss_of(entry, model(**inputs), labels)
    loss.backward()
    given = dict(model.named_parameters())
    found = {n: given[n].grad if n in given else None for n in model.state_dict()}
    zeros = {n: torch.zeros_like(x) for n, x in model.state_dict().items() if found[n] is None}
    return prediction, loss.item(), named(model, {n: zeros.get(n, x) for n, x in found.items()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[entry.name for entry in ENTRIES])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    asked = parser.parse_args()
    [entry] = [entry for entry in ENTRIES if entry.name == asked.name]
    before = resident()
    torch.manual_seed(0)
    model = MADE[entry.name]()
    stirred(model)
    inputs, labels = ({n: _known(a) for n, a in each.items()} for each in entry.drawn())
    state = {n: x.clone() for n, x in model.state_dict().items()}
    save_file(named(model, state), asked.folder / "weights.safetensors")
    wide = [{n: a.double() if a.is_floating_point() else a for n, a in each.items()} for each in (inputs, labels)]
    exact, _, gradients = step_of(entry, model.double(), *wide)
    save_file(gradients, asked.folder / "gradients.safetensors")
    np.save(asked.folder / "prediction.npy", exact.float().numpy())
    model.float().load_state_dict(state)
    prediction, loss, found = step_of(entry, model, inputs, labels)
    errors = norm_errors({n: x.numpy() for n, x in found.items()}, {n: x.numpy() for n, x in gradients.items()})
    output = float((prediction - exact).abs().max() / exact.abs().max())
    parameters = sum(p.numel() for p in model.parameters())
    answer({"output": output, "gradient": max(errors.values()), "loss": loss, "parameters": parameters})
    del gradients, found, exact, prediction, state, wide
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    called = model if asked.mode == "eager" else torch.compile(model, dynamic=False)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(entry, called(**inputs), labels).backward()
        optimizer.step()

    serve(step, before)


def _known(x: np.ndarray) -> Tensor:
    """A tensor as torch's functions want it: numbers of rows are i64."""
    return torch.from_numpy(x.astype(np.int64) if x.dtype == np.int32 else x)


if __name__ == "__main__":
    main()
