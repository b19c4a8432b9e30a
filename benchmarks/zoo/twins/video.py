"""Twins that read videos: R(2+1)D and RAFT."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torchvision.models.optical_flow as optical_flow
import torchvision.models.video as video
from torch import Tensor, nn


class R2Plus1D(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = video.r2plus1d_18(weights=None, num_classes=400)

    def forward(self, clip: Tensor) -> Tensor:
        found: Tensor = self.inner(clip)
        return found


class Raft(nn.Module):
    """torchvision's RAFT-small; places are made on the model's device, so that a CUDA graph can hold a step."""

    def __init__(self, steps: int, radius: int = 3) -> None:
        super().__init__()
        self.inner, self.steps = optical_flow.raft_small(weights=None), steps
        step = torch.arange(-radius, radius + 1.0)
        around = torch.stack(torch.meshgrid(step, step, indexing="ij"), -1)
        self.register_buffer("around", around, persistent=False)

    def near(self, volumes: list[Tensor], at: Tensor) -> Tensor:
        """How well the pixels around each place fit, at four scales."""
        place, found = at.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2), []
        for volume in volumes:
            x, y = (2 * (place + self.around)).unbind(-1)
            grid = torch.stack([x / (volume.shape[3] - 1) - 1, y / (volume.shape[2] - 1) - 1], -1)
            y = F.grid_sample(volume, grid, align_corners=True)
            found.append(y.view(len(at), *at.shape[2:], -1))
            place = place / 2
        return torch.cat(found, -1).permute(0, 3, 1, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        one, two = self.inner.feature_encoder(torch.cat([a, b])).chunk(2)
        count, c, height, width = one.shape
        volume = (one.flatten(2).mT @ two.flatten(2)) / c**0.5
        volumes = [volume.reshape(-1, 1, height, width)]
        for _ in range(3):
            volumes.append(F.avg_pool2d(volumes[-1], 2))
        state, context = self.inner.context_encoder(a).split([96, 64], 1)
        state, context = state.tanh(), context.relu()
        y, x = (torch.arange(size, device=a.device, dtype=a.dtype) for size in (height, width))
        start = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1]).expand(count, -1, -1, -1)
        at, flows = start, []
        for _ in range(self.steps):
            at = at.detach()
            state, delta = self.inner.update_block(state, context, self.near(volumes, at), at - start)
            at = at + delta
            flows.append(8 * F.interpolate(at - start, scale_factor=8, mode="bilinear", align_corners=True))
        return torch.stack(flows, 1)


class VideoSwin(nn.Module):
    def __init__(self, t: int) -> None:
        super().__init__()
        self.inner = video.swin_transformer.SwinTransformer3d(
            patch_size=[2, 4, 4], embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=[t, 7, 7],
            stochastic_depth_prob=0.0, norm_layer=nn.LayerNorm,
        )  # fmt: skip

    def forward(self, clip: Tensor) -> Tensor:
        found: Tensor = self.inner(clip)
        return found
