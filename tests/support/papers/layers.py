"""Layers with PyTorch, of parameters by name."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Params: TypeAlias = dict[str, Tensor]


def linear(x: Tensor, p: Params, name: str) -> Tensor:
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def conv2d(x: Tensor, p: Params, name: str, **more: object) -> Tensor:
    return F.conv2d(x, p[f"{name}.weight"], p.get(f"{name}.bias"), **more)


def layernorm(x: Tensor, p: Params, name: str, eps: float = 1e-5) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], p.get(f"{name}.weight"), p.get(f"{name}.bias"), eps)


def rmsnorm(x: Tensor, p: Params | None = None, name: str = "", eps: float = 1e-6) -> Tensor:
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if p is None else y * p[f"{name}.weight"]


def batchnorm(x: Tensor, p: Params, name: str, train: bool, eps: float = 1e-5) -> Tensor:
    mean, var = (p[f"{name}.running_{each}"].clone() for each in ("mean", "var"))
    return F.batch_norm(x, mean, var, p[f"{name}.weight"], p[f"{name}.bias"], train, eps=eps)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, D] -> [B, heads, T, D/heads]."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """The inverse of ``split_heads``."""
    return x.transpose(1, 2).flatten(2)


def rotated(x: Tensor) -> Tensor:
    """Rotary position embedding of [B, H, T, N]: pairs are (i, i + N/2)."""
    time, size = x.shape[-2:]
    frequency = 10000.0 ** (-2.0 * torch.arange(size // 2, dtype=x.dtype) / size)
    angle = torch.arange(time, dtype=x.dtype)[:, None] * frequency
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)
