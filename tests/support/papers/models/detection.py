"""Detectors that assign truths to places, with PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, conv2d


def _cells(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The centres [20, 2] of the cells, and their sizes [20]."""
    parts = []
    for count, size in ((4, 4), (2, 8)):
        row, column = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
        parts.append(torch.stack([column.flatten(), row.flatten()], 1) * size + size // 2)
    return torch.cat(parts).to(dtype), torch.tensor([4] * 16 + [8] * 4, dtype=dtype)


def rtmdet(p: Params, image: Tensor, train: bool = False) -> Any:
    def normed(x: Tensor, n: str) -> Tensor:
        y = conv2d(x, p, n + ".conv", padding=p[n + ".conv.weight"].shape[-1] // 2)
        return F.silu(batchnorm(y, p, n + ".bn", train))

    fine = F.max_pool2d(normed(F.max_pool2d(normed(image, "s1"), 2), "s2"), 2)
    coarse = F.max_pool2d(normed(fine, "s3"), 2)
    fine = normed(torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1), "lateral")
    scores, sides = [], []
    for i, x in enumerate((fine, coarse)):
        y = F.silu(batchnorm(conv2d(x, p, "stack_conv", padding=1), p, f"levels.{i}.bn", train))
        scores.append(conv2d(y, p, "class_conv").flatten(2).transpose(1, 2))
        sides.append(torch.exp(p[f"levels.{i}.scale"] * conv2d(y, p, "box_conv")).flatten(2).transpose(1, 2))
    places, sizes = _cells(image.dtype)
    a, b = (torch.cat(sides, 1) * sizes[:, None]).chunk(2, -1)
    return torch.cat(scores, 1), torch.cat([places - a, places + b], -1)


def _overlap(a: Tensor, b: Tensor, general: bool) -> Tensor:
    (a1, a2), (b1, b2) = a.chunk(2, -1), b.chunk(2, -1)
    both = (torch.minimum(a2, b2) - torch.maximum(a1, b1)).clamp(0).prod(-1)
    union = (a2 - a1).prod(-1) + (b2 - b1).prod(-1) - both
    iou = both / union.clamp(min=1e-6)
    if not general:
        return iou
    hull = (torch.maximum(a2, b2) - torch.minimum(a1, b1)).prod(-1)
    return iou - (hull - union) / hull.clamp(min=1e-6)


@torch.no_grad()
def _assigned(scores: Tensor, boxes: Tensor, truth: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
    places, sizes = _cells(boxes.dtype)
    t = truth[:, None]
    inside = ((places[:, None] > t[..., :2]) & (places[:, None] < t[..., 2:])).all(-1)
    iou = _overlap(boxes[:, :, None], t, False)
    far = (places[:, None] - (t[..., :2] + t[..., 2:]) / 2).norm(dim=-1) / sizes[:, None]
    s = scores.gather(2, kind[:, None].long().expand_as(iou))
    quality = F.binary_cross_entropy_with_logits(s, iou.to(s.dtype), reduction="none") * (iou - s.sigmoid()).abs() ** 2
    cost = torch.where(inside, quality - 3 * torch.log(iou + 1e-7) + 10 ** (far - 3), 1e8)
    k = torch.where(inside, iou, 0).topk(5, 1)[0].sum(1, keepdim=True).int().clamp(1, 5)
    taken = (cost.argsort(dim=1, stable=True).argsort(1) < k) & inside
    owner = torch.where(taken, cost, torch.inf).argmin(2)
    return torch.where(taken.any(2), owner, -1), iou.gather(2, owner[..., None])[..., 0]


def rtmdet_loss(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    scores, boxes = output
    centre, extent = 4 + 8 * y["at"][..., :2].sigmoid(), 3 + 5 * y["at"][..., 2:].sigmoid()
    truth = torch.cat([centre - extent, centre + extent], -1)
    owner, q = _assigned(scores, boxes, truth, y["y"])
    own, weight = owner.clamp(min=0), torch.where(owner >= 0, q, 0)
    label = F.one_hot(y["y"].long().gather(1, own), 3) * weight[..., None]
    each = F.binary_cross_entropy_with_logits(scores, label.to(scores.dtype), reduction="none")
    each = each * (label - scores.sigmoid()).abs() ** 2
    wanted = truth.gather(1, own[..., None].expand_as(boxes))
    total = weight.sum().clamp(min=1)
    return each.sum() / total + 2 * ((1 - _overlap(boxes, wanted, True)) * weight).sum() / total


LOSSES = {"rtmdet": rtmdet_loss}
