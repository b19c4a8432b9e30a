"""Models of sound with PyTorch: a function of parameters and inputs for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, conv2d, layernorm, linear, merged, split_heads


def encodec(p: Params, wave: Tensor) -> Any:
    def causal(x: Tensor, n: str, stride: int = 1) -> Tensor:
        w = p[n + ".conv.weight"]
        return F.conv1d(F.pad(x, (w.shape[-1] - stride, 0), mode="reflect"), w, p[n + ".conv.bias"], stride)

    def residual(x: Tensor, n: str) -> Tensor:
        return x + causal(F.elu(causal(F.elu(x), n + ".a")), n + ".b")

    x = causal(wave, "first")
    for i in range(2):
        x = causal(F.elu(residual(x, f"down.{i}.unit")), f"down.{i}.conv", 2)
    z = causal(F.elu(x), "last")
    rest = z.transpose(1, 2)
    code, commit, ids = torch.zeros_like(rest), torch.zeros((), dtype=z.dtype), []
    for i in range(2):
        table = p[f"quantizer.book.{i}.table"]
        found = torch.cdist(rest.float() if rest.dtype is torch.bfloat16 else rest, table).argmin(-1)
        picked = table[found].detach()
        commit, code, rest = commit + F.mse_loss(rest, picked), code + picked, rest - picked
        ids.append(found)
    y = causal(z + (code.transpose(1, 2) - z).detach(), "open")
    for i in range(2):
        n = f"up.{i}."
        y = F.conv_transpose1d(F.elu(y), p[n + "conv.weight"], p[n + "conv.bias"], 2)
        y = residual(y[:, :, :-2], n + "unit")
    return causal(F.elu(y), "close"), commit, torch.stack(ids, -1)


def whisper(p: Params, mel: Tensor, ids: Tensor) -> Any:
    def attention(x: Tensor, other: Tensor, n: str, causal: bool = False) -> Tensor:
        q, k, v = (split_heads(linear(u, p, n + e), 2) for u, e in ((x, ".q"), (other, ".k"), (other, ".v")))
        return linear(merged(F.scaled_dot_product_attention(q, k, v, is_causal=causal)), p, n + ".out")

    def feed(x: Tensor, n: str) -> Tensor:
        return linear(F.gelu(linear(x, p, n + ".fc1")), p, n + ".fc2")

    x = F.gelu(F.conv1d(mel, p["conv1.weight"], p["conv1.bias"], padding=1))
    x = F.gelu(F.conv1d(x, p["conv2.weight"], p["conv2.bias"], 2, 1)).transpose(1, 2)
    T, D = x.shape[1:]
    inverse = torch.exp(-math.log(10000) / (D // 2 - 1) * torch.arange(D // 2, dtype=p["pos"].dtype))
    at = torch.arange(T, dtype=inverse.dtype)[:, None] * inverse
    x = x + torch.cat([at.sin(), at.cos()], 1)
    h = layernorm(x, p, "encoder.0.ln1")
    x = x + attention(h, h, "encoder.0.attn")
    x = x + feed(layernorm(x, p, "encoder.0.ln2"), "encoder.0.mlp")
    x = layernorm(x, p, "ln_post")
    y = p["tok.weight"][ids.long()] + p["pos"][: ids.shape[1]]
    h = layernorm(y, p, "decoder.0.ln1")
    y = y + attention(h, h, "decoder.0.attn", True)
    y = y + attention(layernorm(y, p, "decoder.0.ln_cross"), x, "decoder.0.cross")
    y = y + feed(layernorm(y, p, "decoder.0.ln2"), "decoder.0.mlp")
    return layernorm(y, p, "ln") @ p["tok.weight"].T


def ebranchformer(p: Params, x: Tensor) -> Any:
    def macaron(x: Tensor, n: str) -> Tensor:
        return x + 0.5 * linear(F.silu(linear(layernorm(x, p, n + ".ln"), p, n + ".up")), p, n + ".down")

    def depthwise(x: Tensor, n: str) -> Tensor:
        y = F.conv1d(x.transpose(1, 2), p[n + ".weight"], p[n + ".bias"], padding=1, groups=x.shape[-1])
        return y.transpose(1, 2)

    def attention(x: Tensor, n: str) -> Tensor:
        B, T, D = x.shape
        at = torch.arange(T - 1.0, -T, -1.0, dtype=p[n + ".u"].dtype)
        angle = at[:, None] * torch.exp(torch.arange(0, D, 2.0, dtype=at.dtype) * (-math.log(10000) / D))
        pos = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
        r = linear(pos, p, n + ".pos").view(2 * T - 1, 2, -1).transpose(0, 1)
        q, k, v = (split_heads(u, 2) for u in linear(x, p, n + ".qkv").chunk(3, -1))
        far = (q + p[n + ".w"]) @ r.mT
        # row t holds the distances T - 1 .. 1 - T: column s of the result is t - s
        index = torch.arange(T)[None, :] - torch.arange(T)[:, None] + T - 1
        far = far.gather(-1, index.expand(B, 2, T, T))
        scores = ((q + p[n + ".u"]) @ k.mT + far) * (D // 2) ** -0.5
        return linear(merged(scores.softmax(-1) @ v), p, n + ".out")

    b = "layers.0."
    x = macaron(linear(x, p, "embed"), b + "ff1")
    far = attention(layernorm(x, p, b + "ln_far"), b + "attn")
    u, w = F.gelu(linear(layernorm(x, p, b + "ln_near"), p, b + "local.up")).chunk(2, -1)
    near = linear(u * depthwise(layernorm(w, p, b + "local.ln"), b + "local.conv"), p, b + "local.down")
    both = torch.cat([far, near], -1)
    x = x + linear(both + depthwise(both, b + "merge"), p, b + "proj")
    return linear(layernorm(macaron(x, b + "ff2"), p, b + "ln"), p, "head")


def vocos(p: Params, mel: Tensor) -> Any:
    x = F.conv1d(mel, p["embed.weight"], p["embed.bias"], padding=3)
    x = layernorm(x.transpose(1, 2), p, "ln").transpose(1, 2)
    for i in range(2):
        b = f"blocks.{i}.unit."
        h = F.conv1d(x, p[b + "dw.weight"], p[b + "dw.bias"], padding=3, groups=x.shape[1]).transpose(1, 2)
        h = linear(F.gelu(linear(layernorm(h, p, b + "ln"), p, b + "fc1")), p, b + "fc2")
        x = x + (p[b + "gamma"] * h).transpose(1, 2)
    size, phase = linear(layernorm(x.transpose(1, 2), p, "last"), p, "head").chunk(2, -1)
    size, phase = size.exp().clamp(max=100), phase.to(mel.dtype)
    spectrum = torch.complex(size * phase.cos(), size * phase.sin()).transpose(1, 2)
    return torch.istft(spectrum, 8, 4, window=torch.hann_window(8, dtype=mel.dtype))


def zipformer(p: Params, mel: Tensor) -> Tensor:
    def swoosh(x: Tensor, left: bool) -> Tensor:
        offset, down = (4.0, 0.035) if left else (1.0, 0.313261687)
        return F.softplus(x - offset) - 0.08 * x - down

    def bias_norm(x: Tensor, n: str) -> Tensor:
        return x * p[n + ".scale"].exp() / torch.sqrt(((x - p[n + ".bias"]) ** 2).mean(-1, keepdim=True) + 1e-8)

    def feed(x: Tensor, n: str) -> Tensor:
        return linear(swoosh(linear(x, p, n + ".up"), True), p, n + ".down")

    def weights(x: Tensor, n: str) -> Tensor:
        time = x.shape[1]
        q, k = (split_heads(u, 2) for u in linear(x, p, n + ".qk").chunk(2, -1))
        far = torch.arange(time - 1, -time, -1, dtype=x.dtype)
        angle = torch.atan(far.sign() * 2 * (torch.log(far.abs() + 4) - math.log(4)) / 4)
        wave = angle[:, None] * torch.arange(1, 4)
        keys = linear(torch.cat([wave.cos(), wave.sin()], 1), p, n + ".place").view(-1, 2, 4).permute(1, 2, 0)
        slid = split_heads(linear(x, p, n + ".p"), 2) @ keys
        near = torch.stack([slid[:, :, t, time - 1 - t : 2 * time - 1 - t] for t in range(time)], 2)
        return (q @ k.mT + near).softmax(-1)

    def mix(x: Tensor, w: Tensor, n: str) -> Tensor:
        return linear(merged(w @ split_heads(linear(x, p, n + ".v"), 2)), p, n + ".out")

    def non_linear(x: Tensor, w: Tensor, n: str) -> Tensor:
        a, s, c = linear(x, p, n + ".inner").chunk(3, -1)
        return linear(w @ (a * s.tanh()) * c, p, n + ".out")

    def convolve(x: Tensor, n: str) -> Tensor:
        y = F.glu(linear(x, p, n + ".inner"), -1).transpose(1, 2)
        y = F.conv1d(y, p[n + ".depth.weight"], p[n + ".depth.bias"], padding=2, groups=y.shape[1])
        return linear(swoosh(y.transpose(1, 2), False), p, n + ".out")

    def bypass(x: Tensor, y: Tensor, n: str) -> Tensor:
        return torch.lerp(x, y, p[n + ".mix"].clamp(0.2, 1.0))

    def layer(x: Tensor, n: str) -> Tensor:
        w = weights(x, n + ".weights")
        y = x + feed(x, n + ".feed1")
        y = y + non_linear(y, w[:, 0], n + ".nla")
        y = y + mix(y, w, n + ".attn1")
        y = y + convolve(y, n + ".conv1")
        y = y + feed(y, n + ".feed2")
        y = bypass(x, y, n + ".middle")
        y = y + mix(y, w, n + ".attn2")
        y = y + convolve(y, n + ".conv2")
        y = y + feed(y, n + ".feed3")
        return bypass(x, bias_norm(y, n + ".norm"), n + ".last")

    def slower(x: Tensor, r: int, n: str) -> Tensor:
        y = (x.unflatten(1, (-1, r)) * p[n + ".weight"].softmax(0)[:, None]).sum(2)
        return bypass(x, layer(y, n + ".layer").repeat_interleave(r, 1), n + ".out")

    x = conv2d(mel[:, None], p, "c1", stride=2, padding=(0, 1)).transpose(1, 2).flatten(2)
    x = layer(bias_norm(linear(swoosh(x, False), p, "enter"), "norm"), "first")
    return linear(slower(slower(x, 2, "second"), 4, "third"), p, "head")


def tacotron2(p: Params, ids: Tensor, n: Tensor, frames: Tensor, train: bool = False) -> Any:
    x = p["enc.tok.weight"][ids.long()].transpose(1, 2)
    for i in range(2):
        x = F.conv1d(x, p[f"enc.conv.{i}.c.weight"], padding=2)
        x = F.relu(batchnorm(x, p, f"enc.conv.{i}.bn", train))
    rnn = torch.nn.LSTM(8, 4, bidirectional=True, batch_first=True)
    named = {name.removeprefix("enc.rnn."): each for name, each in p.items() if name.startswith("enc.rnn.")}
    memory = torch.func.functional_call(rnn, named, (x.transpose(1, 2),))[0]
    hidden = torch.arange(memory.shape[1]) >= n[:, None]
    before = F.relu(linear(F.pad(frames, (0, 0, 1, 0))[:, :-1], p, "dec.pre1"))
    before, keys = F.relu(linear(before, p, "dec.pre2")), linear(memory, p, "dec.key")
    h, c, h2, c2, context, a, total = (memory.new_zeros(len(ids), k) for k in (8, 8, 8, 8, 8, 6, 6))

    def cell(x: Tensor, h: Tensor, c: Tensor, n: str) -> tuple[Tensor, Tensor]:
        i, f, g, o = (x @ p[f"dec.w{n}"] + h @ p[f"dec.u{n}"] + p[f"dec.b{n}"]).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    steps = []
    for t in range(frames.shape[1]):
        h, c = cell(torch.cat([before[:, t], context], 1), h, c, "a")
        place = F.conv1d(torch.stack([a, total], 1), p["dec.where.weight"], padding=2).transpose(1, 2)
        seen = torch.tanh(linear(h, p, "dec.query")[:, None] + keys + linear(place, p, "dec.spot"))
        a = (seen @ p["dec.score"]).masked_fill(hidden, -math.inf).softmax(-1)
        total = total + a
        context = torch.einsum("bt,btd->bd", a, memory)
        h2, c2 = cell(torch.cat([h, context], 1), h2, c2, "d")
        both = torch.cat([h2, context], 1)
        steps.append((linear(both, p, "dec.mel"), linear(both, p, "dec.stop")[:, 0], a))
    mel, stop, align = (torch.stack(each, 1) for each in zip(*steps, strict=True))
    y = mel.transpose(1, 2)
    for i in range(2):
        y = F.conv1d(y, p[f"post.{i}.c.weight"], padding=2)
        y = batchnorm(y, p, f"post.{i}.bn", train)
        y = y.tanh() if i == 0 else y
    return mel, mel + y.transpose(1, 2), stop, align


def _tacotron2(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    mel, post, stop, _ = output
    ended = F.binary_cross_entropy_with_logits(stop, y["ended"].sigmoid())
    return F.mse_loss(mel, x["frames"]) + F.mse_loss(post, x["frames"]) + ended


def glow_tts(p: Params, ids: Tensor, mel: Tensor) -> Any:
    rows, count, steps = *ids.shape, mel.shape[1]
    h = layernorm(p["tok.weight"][ids.long()], p, "ln")
    h = h + F.relu(F.conv1d(h.transpose(1, 2), p["c.weight"], p["c.bias"], padding=1)).transpose(1, 2)
    mean, z = linear(h, p, "mu"), linear(mel, p, "flow")
    width = linear(F.relu(linear(h.detach(), p, "d1")), p, "d2")[..., 0]
    score = (-0.5 * ((mean[:, :, None] - z[:, None]) ** 2).sum(-1)).detach()
    path = torch.full((rows, steps), count - 1)
    for b in range(rows):
        best = [[0.0, *[-1e9] * (count - 1)]]  # for each step the sums of the paths that end at each symbol before it
        for t in range(steps):
            come = [-1e9, *best[-1][:-1]]
            best.append([max(s, c) + score[b, i, t].item() for i, (s, c) in enumerate(zip(best[-1], come))])
        for t in range(steps - 1, 0, -1):
            at = int(path[b, t])
            path[b, t - 1] = at - 1 if at > 0 and best[t][at - 1] > best[t][at] else at
    wanted = torch.log(F.one_hot(path, count).sum(1).to(mel.dtype) + 1e-6)
    return z, mean[torch.arange(rows)[:, None], path], width, wanted


def _glow_tts(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    z, mean, width, wanted = output
    return F.mse_loss(z, mean) + 0.1 * F.mse_loss(width, wanted)


LOSSES = {"tacotron2": _tacotron2, "glow_tts": _glow_tts}
