"""Twins that change or invent images: CycleGAN's generator, StyleGAN2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ReflectedResidual(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3), nn.Conv2d(c, c, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.instance_norm(self.a(F.pad(x, [1] * 4, "reflect"))).relu()
        return x + F.instance_norm(self.b(F.pad(y, [1] * 4, "reflect")))


class CycleGAN(nn.Module):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 7), nn.Conv2d(width, 3, 7)
        self.down = nn.ModuleList(
            nn.ModuleDict({"conv": nn.Conv2d(width << i, width << i + 1, 3, 2, 1)}) for i in range(2)
        )
        self.unit = nn.ModuleList(nn.ModuleDict({"body": ReflectedResidual(4 * width)}) for _ in range(count))
        self.up = nn.ModuleList(
            nn.ModuleDict({"grow": nn.ConvTranspose2d(width << i + 1, width << i, 3, 2, 1, 1)}) for i in (1, 0)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = F.instance_norm(self.first(F.pad(image, [3] * 4, "reflect"))).relu()
        for each in self.down:
            x = F.instance_norm(each["conv"](x)).relu()
        for each in self.unit:
            x = each["body"](x)
        for each in self.up:
            x = F.instance_norm(each["grow"](x)).relu()
        found: Tensor = self.last(F.pad(x, [3] * 4, "reflect")).tanh()
        return found


class Weighted(nn.Module):
    """A weight that is drawn with variance 1, and perhaps a bias, for a linear map or a convolution."""

    def __init__(self, *shape: int, bias: float | None = None, rate: float = 1.0) -> None:
        super().__init__()
        self.weight, self.rate = nn.Parameter(torch.empty(shape).normal_(0.0, 1 / rate)), rate
        self.bias = None if bias is None else nn.Parameter(torch.full((shape[0],), bias / rate))

    def scaled(self) -> Tensor:
        return self.weight * (self.rate * math.prod(self.weight.shape[1:]) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 4:
            return F.conv2d(x, self.scaled(), padding=self.weight.shape[-1] // 2)
        assert self.bias is not None
        return x @ self.scaled().T + self.bias * self.rate


class Active(nn.Module):
    def __init__(self, c: int, gain: float = 2**0.5) -> None:
        super().__init__()
        self.bias, self.gain = nn.Parameter(torch.zeros(c)), gain

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x + self.bias[:, None, None], 0.2) * self.gain


def blurred(x: Tensor, before: int, after: int, gain: float) -> Tensor:
    one = torch.tensor([1.0, 3.0, 3.0, 1.0], device=x.device, dtype=x.dtype) / 8
    kernel = (gain * one[:, None] * one).expand(x.shape[1], 1, 4, 4)
    return F.conv2d(F.pad(x, [before, after] * 2), kernel, groups=x.shape[1])


class Modulated(nn.Module):
    def __init__(self, c: int, out: int, k: int, grows: bool, normed: bool, size: int) -> None:
        super().__init__()
        self.weight, self.style = nn.Parameter(torch.randn(out, c, k, k)), Weighted(c, size, bias=1.0)
        self.grows, self.normed = grows, normed

    def forward(self, x: Tensor, s: Tensor) -> Tensor:
        w = self.weight * math.prod(self.weight.shape[1:]) ** -0.5
        style = self.style(s)
        y = x * style[:, :, None, None]
        if self.grows:
            y = blurred(F.conv_transpose2d(y, w.transpose(0, 1), stride=2), 1, 1, 4.0)
        else:
            y = F.conv2d(y, w, padding=w.shape[-1] // 2)
        if not self.normed:
            return y
        return y * (style.square() @ w.square().sum((2, 3)).T + 1e-8).rsqrt()[:, :, None, None]


class Styled(nn.Module):
    def __init__(self, c: int, out: int, grows: bool, size: int) -> None:
        super().__init__()
        self.conv, self.act = Modulated(c, out, 3, grows, True, size), Active(out)

    def forward(self, x: Tensor, s: Tensor) -> Tensor:
        found: Tensor = self.act(self.conv(x, s))
        return found


class Picture(nn.Module):
    def __init__(self, c: int, size: int) -> None:
        super().__init__()
        self.conv, self.bias = Modulated(c, 3, 1, False, False, size), nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor, s: Tensor) -> Tensor:
        found: Tensor = self.conv(x, s) + self.bias[:, None, None]
        return found


class StyleGenerator(nn.Module):
    def __init__(self, S: int, base: int, size: int = 512) -> None:
        super().__init__()
        self.mapping = nn.ModuleList(nn.ModuleDict({"fc": Weighted(size, size, bias=0.0, rate=0.01)}) for _ in range(8))
        wide = min(512, base // 4)
        self.first = nn.Parameter(torch.randn(1, wide, 4, 4))
        self.start, self.picture, self.up = Styled(wide, wide, False, size), Picture(wide, size), nn.ModuleList()
        for i in range(3, int(math.log2(S)) + 1):
            before, wide = wide, min(512, base >> i)
            self.up.append(nn.ModuleDict({
                "grow": Styled(before, wide, True, size), "same": Styled(wide, wide, False, size),
                "picture": Picture(wide, size),
            }))  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        s = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        for each in self.mapping:
            s = F.leaky_relu(each["fc"](s), 0.2) * 2**0.5
        x = self.start(self.first.expand(len(z), -1, -1, -1), s)
        image: Tensor = self.picture(x, s)
        for each in self.up:
            x = each["same"](each["grow"](x, s), s)
            large = F.pad(image[:, :, :, None, :, None], [0, 1, 0, 0, 0, 1]).flatten(4, 5).flatten(2, 3)
            image = blurred(large, 2, 1, 4.0) + each["picture"](x, s)
        return image


class StyleStage(nn.Module):
    def __init__(self, c: int, wide: int) -> None:
        super().__init__()
        self.thin, self.weight = (nn.Parameter(torch.randn(wide, c, k, k)) for k in (1, 3))
        self.same, self.act1, self.act2 = Weighted(c, c, 3, 3), Active(c), Active(wide, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        c = x.shape[1]
        skip = F.conv2d(blurred(x, 1, 1, 1.0), self.thin * c**-0.5, stride=2)
        y = blurred(self.act1(self.same(x)), 2, 2, 1.0)
        found: Tensor = self.act2(F.conv2d(y, self.weight * (9 * c) ** -0.5, stride=2)) + skip * 0.5**0.5
        return found


class StyleCritic(nn.Module):
    def __init__(self, S: int, base: int) -> None:
        super().__init__()
        now = min(512, base // S)
        self.first, self.act, self.down = Weighted(now, 3, 1, 1), Active(now), nn.ModuleList()
        for i in range(int(math.log2(S)) - 2):
            wide = min(512, 2 ** (i + 1) * base // S)
            self.down.append(StyleStage(now, wide))
            now = wide
        wide = min(512, base // 4)
        self.last, self.act2 = Weighted(wide, now + 1, 3, 3), Active(wide)
        self.fc, self.head = Weighted(wide, 16 * wide, bias=0.0), Weighted(1, wide, bias=0.0)

    def forward(self, image: Tensor) -> Tensor:
        x = self.act(self.first(image))
        for each in self.down:
            x = each(x)
        spread = (x.var(0, correction=0) + 1e-8).sqrt().mean().expand(len(x), 1, 4, 4)
        x = self.act2(self.last(torch.cat([x, spread], 1))).flatten(1)
        found: Tensor = self.head(F.leaky_relu(self.fc(x), 0.2) * 2**0.5).flatten()
        return found


class StyleGAN2(nn.Module):
    """``parts``: the losses of a step in order, each with the layer whose parameters it trains."""

    parts = (("judge", "critic_loss"), ("make", "generator_loss"))

    def __init__(self, S: int, base: int) -> None:
        super().__init__()
        self.judge, self.make = StyleCritic(S, base), StyleGenerator(S, base)

    def forward(self, z: Tensor, real: Tensor | None = None) -> Tensor:
        found: Tensor = self.make(z)
        return found

    def critic_loss(self, real: Tensor, z: Tensor) -> Tensor:
        fake = self.make(z).detach()
        return F.softplus(-self.judge(real).float()).mean() + F.softplus(self.judge(fake).float()).mean()

    def generator_loss(self, real: Tensor, z: Tensor) -> Tensor:
        return F.softplus(-self.judge(self.make(z)).float()).mean()
