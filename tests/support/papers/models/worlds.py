"""Models of what happens next and of what views share, with PyTorch: a function for each paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, conv2d, layernorm, linear


def lejepa(p: Params, x: Tensor, noise: Tensor, directions: Tensor) -> Any:
    views = (x + 0.5 * noise).flatten(0, 1)
    for i in range(2):
        n = f"encoder.stage.{i}."
        y = conv2d(views, p, n + "conv", stride=2, padding=1)
        y = F.silu(F.group_norm(y, 2, p[n + "gn.weight"], p[n + "gn.bias"]))
        y = y + conv2d(F.gelu(conv2d(y, p, n + "dw", padding=1, groups=y.shape[1])), p, n + "pw")
        views = y
    h = linear(views.mean((2, 3)), p, "encoder.up")
    z = linear(F.gelu(layernorm(h, p, "encoder.ln")), p, "encoder.down").unflatten(0, (3, -1))
    t = torch.linspace(0, 3, 17, dtype=directions.dtype)
    density = torch.exp(-0.5 * t**2)
    turn = (z @ (directions / directions.norm(dim=0)))[..., None] * t
    apart = (turn.cos().mean(1) - density) ** 2 + turn.sin().mean(1) ** 2
    regular = 2 * torch.trapezoid(apart * density, t, dim=-1).mean() * z.shape[1]
    return z, ((z - z.mean(0)) ** 2).mean(), regular


def _lejepa(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    z, predicted, regular = output
    probe = linear(z.mean(0).detach(), p, "train.probe")
    return 0.95 * predicted + 0.05 * regular + F.cross_entropy(probe, y["y"].long())


def _normed(x: Tensor, p: Params, n: str) -> Tensor:
    return F.mish(layernorm(linear(x, p, n + ".fc"), p, n + ".ln"))


def _latent(x: Tensor, p: Params, n: str) -> Tensor:
    y = layernorm(linear(_normed(x, p, n + "a"), p, n + "fc"), p, n + "ln")
    return y.unflatten(1, (2, 4)).softmax(-1).flatten(1)


def _values(x: Tensor, p: Params, n: str) -> Tensor:
    return torch.stack([
        F.mish(layernorm(x @ p[n + "w1"][i] + p[n + "b1"][i], p, n + "ln")) @ p[n + "w2"][i] for i in range(2)
    ])  # fmt: skip


def _number(logits: Tensor) -> Tensor:
    x = (logits.softmax(-1) * torch.linspace(-3, 3, 7, dtype=logits.dtype)).sum(-1)
    return x.sign() * x.abs().expm1()


def tdmpc2(p: Params, seen: Tensor, actions: Tensor, ahead: Tensor) -> Any:
    wanted = torch.stack([_latent(seen[:, t], p, "encode.") for t in range(1, 4)])
    aims = [_number(_values(torch.cat([wanted[t], ahead[:, t]], 1), p, "slow.")).amin(0) for t in range(3)]
    z, zs, rewards, values = _latent(seen[:, 0], p, "encode."), [], [], []
    for t in range(3):
        x = torch.cat([z, actions[:, t]], 1)
        z = _latent(x, p, "next.")
        zs.append(z)
        rewards.append(linear(_normed(_normed(x, p, "gain.a"), p, "gain.b"), p, "gain.last"))
        values.append(_values(x, p, "q."))
    each = (torch.stack(u) for u in (zs, rewards, values))
    z, reward, value = each
    return z, wanted.detach(), reward, value, torch.stack(aims).detach()


def _tdmpc2(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    def two_hot(x: Tensor) -> Tensor:
        at = (x.sign() * x.abs().log1p() + 3).clamp(0, 6 - 1e-3)
        share = (at - at.floor())[..., None]
        k = at.long()
        return F.one_hot(k, 7) * (1 - share) + F.one_hot(k + 1, 7) * share

    z, wanted, reward, value, target = output
    gained = y["r"].T
    near = ((z - wanted) ** 2).mean(2)
    rewards = -(two_hot(gained) * reward.log_softmax(-1)).sum(-1)
    values = -(two_hot(gained + 0.9 * target)[:, None] * value.log_softmax(-1)).sum(-1).mean(1)
    weight = 0.5 ** torch.arange(3, dtype=gained.dtype)[:, None]
    return (weight * (20 * near + 0.1 * rewards + 0.1 * values)).sum(0).mean()


def hnn(params: Params, q: Tensor, p: Tensor) -> Any:
    def part(u: Tensor, n: str) -> Tensor:
        hidden = torch.tanh(linear(F.softplus(linear(u, params, n + ".a")), params, n + ".b"))
        return linear(hidden, params, n + ".c")[:, 0]

    def slope(u: Tensor, n: str) -> Tensor:
        with torch.enable_grad():
            u = u if u.requires_grad else u.clone().requires_grad_()
            return torch.autograd.grad(part(u, n).sum(), u, create_graph=True)[0]

    steps = []
    for _ in range(6):
        p = p - 0.05 * slope(q, "potential")
        q = q + 0.1 * slope(p, "kinetic")
        p = p - 0.05 * slope(q, "potential")
        steps.append((q, p, part(p, "kinetic") + part(q, "potential")))
    return tuple(torch.stack(each, 1) for each in zip(*steps, strict=True))


def _hnn(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    place, moved, energy = output
    drift = ((energy - energy.mean(1, keepdim=True)) ** 2).mean()
    return F.mse_loss(place, y["path"]) + F.mse_loss(moved, y["moved"]) + 0.1 * drift


def _noisy(x: Tensor, p: Params, n: str, drawn: Tensor) -> Tensor:
    out, size = p[n + ".weight"].shape
    f = drawn.sign() * drawn.abs().sqrt()
    spread = p[n + ".spread"] * torch.outer(f[size : size + out], f[:size])
    return F.linear(x, p[n + ".weight"] + spread, p[n + ".bias"] + p[n + ".bias_spread"] * f[size : size + out])


def _returns(x: Tensor, p: Params, n: str, drawn: Tensor) -> Tensor:
    x = F.relu(conv2d(F.relu(conv2d(x, p, n + ".c1", stride=2)), p, n + ".c2")).flatten(1)
    v, a = (_noisy(F.relu(_noisy(x, p, f"{n}.{i}1", drawn)), p, f"{n}.{i}2", drawn) for i in "va")
    a = a.view(-1, 3, 11)
    return v[:, None] + a - a.mean(1, keepdim=True)


def rainbow(p: Params, seen: Tensor, then: Tensor, drawn: Tensor) -> Any:
    z = torch.linspace(-2, 2, 11, dtype=seen.dtype)
    logits = _returns(seen, p, "online", drawn[0])
    choice = (_returns(then, p, "online", drawn[1]).softmax(-1) * z).sum(2).argmax(1)
    target = _returns(then, p, "slow", drawn[2]).softmax(-1)
    return (logits.softmax(-1) * z).sum(2), logits, choice, target.detach()


def _rainbow(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    _, logits, choice, target = output
    rows = torch.arange(len(logits))
    z = torch.linspace(-2, 2, 11, dtype=logits.dtype)
    at = (y["reward"][:, None] + 0.97 * y["alive"].sigmoid()[:, None] * z).clamp(-2, 2)
    near = (1 - ((at + 2) / 0.4 - torch.arange(11)[:, None, None]).abs()).clamp(0)  # [atom of the aim, row, atom]
    aim = (near * target[rows, choice]).sum(2).T
    each = -(aim * logits[rows, y["y"].long()].log_softmax(-1)).sum(1)
    return (each * y["weight"].sigmoid()).mean()


LOSSES = {"hnn": _hnn, "rainbow": _rainbow, "lejepa": _lejepa, "tdmpc2": _tdmpc2}
