"""Models of 2024 and 2025: attention, text without an order, teachers, tables, series, answers with rewards."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, conv2d, layernorm, linear, merged, rmsnorm, rotated, split_heads


def _delta(x: Tensor, p: Params, n: str) -> Tensor:
    time, heads, size = x.shape[1], 2, 4
    qkv = F.conv1d(F.pad(linear(x, p, n + ".qkv").transpose(1, 2), (3, 0)), p[n + ".short.weight"], groups=24)
    q, k, v = F.silu(qkv).transpose(1, 2).unflatten(2, (3, heads, size)).unbind(2)
    q, k = (u * torch.rsqrt((u * u).sum(-1, keepdim=True) + 1e-6) for u in (q, k))
    low = linear(linear(x, p, n + ".f1"), p, n + ".f2").unflatten(2, (heads, size))
    log_decay = -p[n + ".a"].exp() * F.softplus(low + p[n + ".shift"])
    beta = linear(x, p, n + ".b").sigmoid()
    state, steps = x.new_zeros(len(x), heads, size, size), []
    for t in range(time):
        state = state * log_decay[:, t, ..., None].exp()
        error = v[:, t] - (k[:, t, ..., None] * state).sum(2)
        state = state + k[:, t, ..., None] * (beta[:, t, :, None] * error)[:, :, None]
        steps.append((q[:, t, ..., None] * state).sum(2) / size**0.5)
    gate = linear(linear(x, p, n + ".g1"), p, n + ".g2").unflatten(2, (heads, size))
    return linear((rmsnorm(torch.stack(steps, 1), p, n + ".norm") * gate.sigmoid()).flatten(2), p, n + ".out")


def _latent(x: Tensor, p: Params, n: str) -> Tensor:
    q = split_heads(linear(x, p, n + ".q"), 2)
    k, v = linear(rmsnorm(linear(x, p, n + ".down"), p, n + ".norm"), p, n + ".up").chunk(2, -1)
    y = F.scaled_dot_product_attention(q, split_heads(k, 2), split_heads(v, 2), is_causal=True)
    return linear(merged(y), p, n + ".out")


def _swiglu(x: Tensor, p: Params, up: str, down: str) -> Tensor:
    gate, value = linear(x, p, up).chunk(2, -1)
    return linear(F.silu(gate) * value, p, down)


def kimi_linear(p: Params, ids: Tensor) -> Tensor:
    x = p["tok.weight"][ids]
    for i, (name, mix) in enumerate((("kda", _delta), ("mla", _latent))):
        n = f"layers.{i}."
        x = x + mix(rmsnorm(x, p, n + "ln1"), p, n + name)
        x = x + _swiglu(rmsnorm(x, p, n + "ln2"), p, n + "mlp.up", n + "mlp.down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def _blocks(x: Tensor, p: Params, n: str) -> Tensor:
    q, k, v = (split_heads(u, 2) for u in linear(x, p, n + ".qkv").chunk(3, -1))
    rows, heads, time, _ = q.shape
    means = k.unflatten(2, (4, 3)).mean(3)
    seen = torch.zeros(rows, heads, time, time, dtype=torch.bool)
    for t in range(time):
        own = t // 3
        seen[:, :, t, 3 * own : t + 1] = True
        if own:  # one past block more
            best = (means[:, :, :own] @ q[:, :, t, :, None])[..., 0].argmax(-1)
            for row in range(rows):
                for head in range(heads):
                    at = 3 * int(best[row, head])
                    seen[row, head, t, at : at + 3] = True
    return linear(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)), p, n + ".out")


def moba(p: Params, ids: Tensor) -> Tensor:
    x = p["tok.weight"][ids]
    for i in range(2):
        n = f"layers.{i}."
        x = x + _blocks(rmsnorm(x, p, n + "ln1"), p, n + "attn")
        x = x + linear(F.gelu(linear(rmsnorm(x, p, n + "ln2"), p, n + "up")), p, n + "down")
    return linear(rmsnorm(x, p, "last"), p, "head")


def _mixed(y: Tensor, p: Params, n: str, causal: bool = True) -> Tensor:
    q, k, v = (split_heads(u, 2) for u in linear(layernorm(y, p, n + "ln"), p, n + "qkv").chunk(3, -1))
    return y + linear(merged(F.scaled_dot_product_attention(q, k, v, is_causal=causal)), p, n + "out")


def medusa(p: Params, ids: Tensor) -> Tensor:
    x = _mixed(p["body.tok.weight"][ids], {n: u.detach() for n, u in p.items()}, "body.").detach()
    return torch.stack([linear(x + F.silu(linear(x, p, f"wide.{i}")), p, f"head.{i}") for i in range(3)])


def _medusa(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    t = y["y"].long()
    parts = [F.cross_entropy(o[:, : 7 - i].flatten(0, 1), t[:, 1 + i :].flatten()) for i, o in enumerate(output)]
    return sum(0.8**i * part for i, part in enumerate(parts))


def llada(p: Params, ids: Tensor, u: Tensor, share: Tensor) -> Any:
    hidden = (u + 1) / 2 < 0.05 + 0.95 * share.sigmoid()[:, None]
    x = p["tok.weight"][torch.where(hidden, 10, ids.long())]
    for i in range(2):
        n = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(rmsnorm(x, p, n + "ln1"), p, n + "qkv").chunk(3, -1))
        x = x + linear(merged(F.scaled_dot_product_attention(rotated(q), rotated(k), v)), p, n + "out")
        x = x + _swiglu(rmsnorm(x, p, n + "ln2"), p, n + "up", n + "down")
    return linear(rmsnorm(x, p, "last"), p, "head"), hidden


def _llada(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, hidden = output
    weight = hidden / (0.05 + 0.95 * x["share"].sigmoid()[:, None])
    each = F.cross_entropy(logits.transpose(1, 2), x["ids"].long(), reduction="none")
    return (each * weight).mean()


def _vit(x: Tensor, p: Params, n: str) -> Tensor:
    y = conv2d(x, p, n + ".patch", stride=2).flatten(2).transpose(1, 2)
    y = torch.cat([p[n + ".cls"].expand(len(x), 1, -1), y], 1) + p[n + ".pos"]
    for i in range(2):
        m = f"{n}.layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(layernorm(y, p, m + "ln1"), p, m + "qkv").chunk(3, -1))
        y = y + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, m + "out")
        y = y + linear(F.gelu(linear(layernorm(y, p, m + "ln2"), p, m + "up")), p, m + "down")
    return layernorm(y, p, n + ".last")


def _prototypes(x: Tensor, p: Params, n: str) -> Tensor:
    return linear(F.normalize(linear(F.gelu(linear(x, p, n + ".up")), p, n + ".down"), dim=-1), p, n + ".prototypes")


def dinov3(p: Params, a: Tensor, b: Tensor) -> Any:
    y, z = _vit(a, p, "student"), _vit(b, p, "teacher")
    q = (_prototypes(z[:, 0], p, "told") / 0.07).exp().T
    q = q / q.sum()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True) / 5
        q = q / q.sum(0, keepdim=True) / 4
    patches, fixed = (F.normalize(u[:, 1:], dim=2) for u in (y, _vit(a, p, "teacher")))
    logits = _prototypes(y[:, 0], p, "say")
    return logits, (q * 4).T.detach(), y[:, 0], patches @ patches.mT, (fixed @ fixed.mT).detach()


def _dinov3(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, target, token, gram, anchor = output
    unit = F.normalize(token, dim=1)
    apart = (unit[:, None] - unit[None] + 1e3 * torch.eye(4)[..., None]).norm(dim=-1).amin(1)
    return F.cross_entropy(logits / 0.1, target) - 0.1 * (apart + 1e-8).log().mean() + 2 * F.mse_loss(gram, anchor)


def _along(x: Tensor, p: Params, n: str) -> Tensor:
    return linear(F.gelu(linear(x.mT, p, n + ".a")), p, n + ".b").mT


def timemixer(p: Params, x: Tensor) -> Tensor:
    mean, scale = x.mean(1, keepdim=True), (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    series = [(x - mean) / scale]
    for _ in range(2):
        series.append(F.avg_pool1d(series[-1].mT, 2).mT)
    hidden = [linear(y, p, "embed") for y in series]
    for i in range(2):
        n = f"layers.{i}.mix."
        trends = [F.avg_pool1d(F.pad(y.mT, (2, 2), "replicate"), 5, 1).mT for y in hidden]
        seasons = [y - t for y, t in zip(hidden, trends, strict=True)]
        for j in range(2):
            seasons[j + 1] = seasons[j + 1] + _along(seasons[j], p, f"{n}down.{j}.mix")
            trends[1 - j] = trends[1 - j] + _along(trends[2 - j], p, f"{n}up.{j}.mix")
        hidden = [
            y + linear(F.gelu(linear(s + t, p, n + "out1")), p, n + "out2")
            for y, s, t in zip(hidden, seasons, trends, strict=True)
        ]
    parts = [linear(linear(y.mT, p, f"predict.{i}").mT, p, "project") for i, y in enumerate(hidden)]
    return torch.stack(parts).sum(0) * scale + mean


def grpo(p: Params, ids: Tensor) -> Any:
    def policy(p: Params, n: str) -> Tensor:
        return linear(layernorm(_mixed(p[n + "tok.weight"][ids], p, n), p, n + "last"), p, n + "head")

    return policy(p, "now."), policy(p, "reference.").detach()


def _grpo(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    now, ref = (-F.cross_entropy(o[:, :5].mT, x["ids"][:, 1:].long(), reduction="none") for o in output)
    gain = ((y["reward"] - y["reward"].mean()) / (y["reward"].std(correction=0) + 1e-4))[:, None]
    ratio = (now - (y["old"][:, 1:] + now - 0.3).detach()).exp()
    best = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.28) * gain)
    known = (y["mask"][:, 1:] > 0).to(now.dtype)
    each = (best - 0.04 * ((ref - now).expm1() - (ref - now))) * known
    return -(each.sum(1) / known.sum(1).clamp(min=1)).mean()


def _across(x: Tensor, p: Params, n: str, known: int) -> Tensor:
    def heads(u: Tensor) -> Tensor:
        return u.unflatten(-1, (2, -1)).transpose(-3, -2)

    k, v = linear(x[..., :known, :], p, n + ".kv").chunk(2, -1)
    y = F.scaled_dot_product_attention(heads(linear(x, p, n + ".q")), heads(k), heads(v))
    return linear(y.transpose(-3, -2).flatten(-2), p, n + ".out")


def tabpfn(p: Params, x: Tensor, y: Tensor) -> Tensor:
    known = 4
    x = (x - x[:, :known].mean(1, keepdim=True)) / (x[:, :known].std(1, keepdim=True) + 1e-6)
    cells = linear(torch.stack([x, torch.zeros_like(x)], -1), p, "cell")
    given = torch.where(torch.arange(x.shape[1]) < known, y.long(), 3)
    z = torch.cat([cells, p["label.weight"][given][:, :, None]], 2)
    for i in range(2):
        n, size = f"layers.{i}.", z.shape[-1:]
        z = F.layer_norm(z + _across(z, p, n + "features", 5), size)
        z = F.layer_norm(z + _across(z.transpose(1, 2), p, n + "rows", known).transpose(1, 2), size)
        z = F.layer_norm(z + linear(F.gelu(linear(z, p, n + "up")), p, n + "down"), size)
    return linear(F.gelu(linear(z[:, known:, 4], p, "h1")), p, "h2")


def _tabpfn(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), x["y"][:, 4:].flatten().long())


def _dyt(x: Tensor, p: Params, n: str) -> Tensor:
    return torch.tanh(p[n + ".alpha"] * x) * p[n + ".weight"] + p[n + ".bias"]


def gated(p: Params, ids: Tensor) -> Tensor:
    x = p["tok.weight"][ids]
    for i in range(2):
        n = f"layers.{i}."
        y = _dyt(x, p, n + "ln1")
        q = rmsnorm(split_heads(linear(y, p, n + "attn.q"), 4), p, n + "attn.qn")
        k, v = (split_heads(u, 2) for u in linear(y, p, n + "attn.kv").chunk(2, -1))
        k = rmsnorm(k, p, n + "attn.kn")
        k, v = (u.repeat_interleave(2, 1) for u in (k, v))
        z = merged(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        x = x + linear(z * linear(y, p, n + "attn.gate").sigmoid(), p, n + "attn.out")
        x = x + _swiglu(_dyt(x, p, n + "ln2"), p, n + "up", n + "down")
    return _dyt(x, p, "last") @ p["tok.weight"].T


def _gated(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    loss = F.cross_entropy(output.flatten(0, 1), y["y"].flatten().long())
    return loss + 1e-4 * (output.logsumexp(-1) ** 2).mean()


LOSSES = {"medusa": _medusa, "llada": _llada, "dinov3": _dinov3, "grpo": _grpo, "tabpfn": _tabpfn, "gated": _gated,
          "timemixer": lambda p, output, x, y: F.mse_loss(output, y["y"])}  # fmt: skip
