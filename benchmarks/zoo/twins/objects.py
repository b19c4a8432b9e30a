"""The twin of DETR, with its loss for given matches."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twins.images import Image
from twins.latent import heads_of, joined


class Frozen(nn.Module):
    """A batchnorm of another training, which stays as it is."""

    def __init__(self, c: int) -> None:
        super().__init__()
        for name, start in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((c,), start))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


class Bottleneck(nn.Module):
    def __init__(self, c: int, out: int, s: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, out, 1, bias=False), Frozen(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, s, 1, bias=False), Frozen(out)
        self.conv3, self.bn3 = nn.Conv2d(out, 4 * out, 1, bias=False), Frozen(4 * out)
        if c != 4 * out or s != 1:
            self.proj, self.bn4 = nn.Conv2d(c, 4 * out, 1, s, bias=False), Frozen(4 * out)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        found: Tensor = (self.bn3(self.conv3(y)) + (self.bn4(self.proj(x)) if hasattr(self, "proj") else x)).relu()
        return found


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, now = nn.Conv2d(3, 64, 7, 2, 3, bias=False), Frozen(64), 64
        self.stage = nn.ModuleList()
        for out, count, s in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            units = nn.ModuleList()
            for i in range(count):
                units.append(nn.ModuleDict({"body": Bottleneck(now, out, s if i == 0 else 1)}))
                now = 4 * out
            self.stage.append(nn.ModuleDict({"unit": units}))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in self.stage:
            for unit in stage["unit"]:
                x = unit["body"](x)
        return x


class Attention(nn.Module):
    def __init__(self, d: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, *given: Tensor) -> Tensor:
        q, k, v = (heads_of(f(x), self.heads) for f, x in zip((self.q, self.k, self.v), given))
        found: Tensor = self.o(joined(F.scaled_dot_product_attention(q, k, v)))
        return found


class Feed(nn.Module):
    def __init__(self, d: int, wide: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, wide), nn.Linear(wide, d)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.fc2(self.fc1(x).relu())
        return found


class Encode(nn.Module):
    def __init__(self, d: int, wide: int) -> None:
        super().__init__()
        self.attn, self.feed = Attention(d), Feed(d, wide)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        found: Tensor = self.norm2(self.feed(self.norm1(x + self.attn(x + at, x + at, x))))
        return found


class Decode(nn.Module):
    def __init__(self, d: int, wide: int) -> None:
        super().__init__()
        self.attn, self.cross, self.feed = Attention(d), Attention(d), Feed(d, wide)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x: Tensor, seen: Tensor, asked: Tensor, at: Tensor) -> Tensor:
        x = self.norm1(x + self.attn(x + asked, x + asked, x))
        x = self.norm2(x + self.cross(x + asked, seen + at, seen))
        found: Tensor = self.norm3(self.feed(x))
        return found


def places(h: int, w: int, d: int, like: Tensor) -> Tensor:
    """Sines and cosines of the row, then of the column."""
    slope = 10000.0 ** ((torch.arange(d // 2, device=like.device, dtype=like.dtype) / 2).floor() * (-4 / d))
    parts = []
    for size in (h, w):
        at = (torch.arange(size, device=like.device, dtype=like.dtype) + 1) * (2 * math.pi / (size + 1e-6))
        angle = at[:, None] * slope
        parts.append(torch.stack([angle[:, ::2].sin(), angle[:, 1::2].cos()], 2).flatten(1))
    return torch.cat([parts[0][:, None].expand(h, w, -1), parts[1].expand(h, w, -1)], -1).flatten(0, 1)


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """The generalised intersection over union of boxes that are given by centre and size."""
    (a, b) = (torch.cat([x[..., :2] - x[..., 2:] / 2, x[..., :2] + x[..., 2:] / 2], -1) for x in (a, b))
    shared = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).relu().prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return shared / union - (hull - union) / hull


class DETR(nn.Module):
    """For a Detector."""

    def __init__(self, layers: int, d: int = 256, wide: int = 2048, queries: int = 100) -> None:
        super().__init__()
        self.backbone, self.narrow = Backbone(), nn.Conv2d(2048, d, 1)
        self.encoder = nn.ModuleList(nn.ModuleDict({"layer": Encode(d, wide)}) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.ModuleDict({"layer": Decode(d, wide)}) for _ in range(layers))
        self.asked, self.norm = nn.Parameter(torch.randn(queries, d)), nn.LayerNorm(d)
        self.box1, self.box2, self.box3 = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 4)
        self.kind = nn.Linear(d, 92)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.narrow(self.backbone(x))
        at = places(x.shape[2], x.shape[3], x.shape[1], x)
        x = x.flatten(2).mT
        for each in self.encoder:
            x = each["layer"](x, at)
        y, found = torch.zeros_like(self.asked).expand(len(x), -1, -1), []
        for each in self.decoder:
            y = each["layer"](y, x, self.asked, at)
            found.append(self.norm(y))
        all = torch.stack(found, 1)
        return self.kind(all), self.box3(self.box2(self.box1(all).relu()).relu()).sigmoid()


def set_loss(logits: Tensor, boxes: Tensor, kind: Tensor, box: Tensor) -> Tensor:
    """Of every layer's answers: classes (91 is none) and boxes for each query."""
    weight = torch.ones(92, device=logits.device, dtype=logits.dtype)
    weight[-1] = 0.1
    matched = (kind < 91).to(logits.dtype)
    total = torch.zeros((), device=logits.device, dtype=logits.dtype)
    for i in range(logits.shape[1]):
        apart = 5 * (boxes[:, i] - box).abs().sum(-1) + 2 * (1 - overlap(boxes[:, i], box))
        kinds = F.cross_entropy(logits[:, i].flatten(0, 1), kind.flatten(), weight)
        total = total + kinds + (matched * apart).sum() / matched.sum().clamp(min=1)
    return total


class Detector(Image):
    """It has a loss of its own, since it has several results."""

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.all(image)[0]
        return found

    def all(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits, boxes = super().forward(image)
        return logits, boxes

    def loss(self, image: Tensor, kind: Tensor, box: Tensor) -> Tensor:
        logits, boxes = (x.float() if x.dtype == torch.bfloat16 else x for x in self.all(image))
        return set_loss(logits, boxes, kind, box.sigmoid())
