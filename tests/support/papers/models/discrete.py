"""Models of labels, tags, addresses, sampled points, bytes and counts, with PyTorch: a function for each paper."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, layernorm, linear, merged, rmsnorm, split_heads


def _over_time(cell: Any, x: Tensor, p: Params, n: str, lengths: Tensor | None = None) -> Tensor:
    """What a recurrent module of PyTorch gives, with the parameters below ``n``."""
    own = {key.removeprefix(n + "."): each for key, each in p.items() if key.startswith(n + ".")}
    if lengths is None:
        return torch.func.functional_call(cell, own, (x,))[0]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths.cpu().long(), batch_first=True, enforce_sorted=False)
    packed, _ = torch.func.functional_call(cell, own, (packed,))
    return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0]


def rnnt(p: Params, x: Tensor, words: Tensor, frames: Tensor, count: Tensor) -> Tensor:
    both = torch.nn.LSTM(5, 4, batch_first=True, bidirectional=True).to(x.dtype)
    e = linear(_over_time(both, x, p, "enc.lstm"), p, "from_e")
    known = F.pad(F.embedding(words.long(), p["tok.weight"]), (0, 0, 1, 0))
    g = linear(_over_time(torch.nn.GRU(4, 6, batch_first=True).to(x.dtype), known, p, "pred"), p, "from_g")
    logits = linear(torch.tanh(e[:, :, None] + g[:, None]), p, "joint").log_softmax(-1)
    found = []
    for b, (steps, labels) in enumerate(zip(frames.tolist(), count.tolist())):
        a: dict[tuple[int, int], Tensor] = {}
        for t in range(steps):
            for u in range(labels + 1):
                ways = [logits.new_zeros(())] if t == u == 0 else []
                ways += [a[t - 1, u] + logits[b, t - 1, u, 0]] if t else []
                ways += [a[t, u - 1] + logits[b, t, u - 1, int(words[b, u - 1])]] if u else []
                a[t, u] = torch.logsumexp(torch.stack(ways), 0)
        found.append(-a[steps - 1, labels] - logits[b, steps - 1, labels, 0])
    return torch.stack(found)


def crf(p: Params, ids: Tensor, n: Tensor) -> Any:
    cell = torch.nn.LSTM(5, 4, batch_first=True, bidirectional=True).to(p["head.weight"].dtype)
    score = linear(_over_time(cell, F.embedding(ids.long(), p["tok.weight"]), p, "rnn", n), p, "head")
    tags = []
    for each, length in zip(score, n.tolist()):
        v, choices = p["first"] + each[0], []
        for t in range(1, length):
            v, choice = (v[:, None] + p["move"]).max(0)
            v = v + each[t]
            choices.append(choice)
        path = [int((v + p["last"]).argmax())]
        for choice in reversed(choices):
            path.insert(0, int(choice[path[0]]))
        tags.append(path + path[-1:] * (len(each) - length))
    return score, torch.tensor(tags), p["move"], p["first"], p["last"]


def _crf(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    score, _, move, first, last = output
    apart = []
    for each, length, gold in zip(score, x["n"].tolist(), y["gold"].long()):
        a, right = first + each[0], first[gold[0]] + each[0, gold[0]] + last[gold[length - 1]]
        for t in range(1, length):
            a = torch.logsumexp(a[:, None] + move, 0) + each[t]
            right = right + move[gold[t - 1], gold[t]] + each[t, gold[t]]
        apart.append(torch.logsumexp(a + last, 0) - right)
    return torch.stack(apart).mean()


def dnc(p: Params, x: Tensor) -> Tensor:
    rows, slots, width, heads = len(x), 5, 3, 2

    def near(memory: Tensor, key: Tensor, strength: Tensor) -> Tensor:
        a, b = (u / (u.norm(dim=2, keepdim=True) + 1e-6) for u in (key, memory))
        return ((a @ b.transpose(1, 2)) * (1 + F.softplus(strength))[..., None]).softmax(-1)

    memory, link = x.new_zeros(rows, slots, width), x.new_zeros(rows, slots, slots)
    usage = written = order = x.new_zeros(rows, slots)
    reading, read = x.new_zeros(rows, heads, slots), x.new_zeros(rows, heads, width)
    h = c = x.new_zeros(rows, 8)
    found = []
    for xt in x.unbind(1):
        i, f, g, o = (linear(torch.cat([xt, read.flatten(1)], 1), p, "wx") + linear(h, p, "wh")).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        sizes = [width * heads, heads, width, 1, width, width, heads, 2, 3 * heads]
        kr, br, kw, bw, erase, vec, free, gates, modes = linear(h, p, "face").split(sizes, 1)
        keep = (1 - free.sigmoid()[..., None] * reading).prod(1)
        usage = (usage + written - usage * written) * keep
        u, places = usage.sort(dim=1, stable=True)
        before = torch.cat([torch.ones_like(u[:, :1]), u.cumprod(1)[:, :-1]], 1)
        free_first = torch.zeros_like(u).scatter(1, places, (1 - u) * before)
        ga, gw = gates.sigmoid().chunk(2, 1)
        written = gw * (ga * free_first + (1 - ga) * near(memory, kw[:, None], bw)[:, 0])
        column, row = written[:, :, None], written[:, None]
        memory = memory * (1 - column * erase.sigmoid()[:, None]) + column * vec[:, None]
        link = ((1 - column - row) * link + column * order[:, None]) * (1 - torch.eye(slots, dtype=x.dtype))
        order = (1 - written.sum(1, keepdim=True)) * order + written
        m = modes.view(rows, heads, 3, 1).softmax(2).unbind(2)
        content = near(memory, kr.view(rows, heads, width), br)
        reading = m[0] * (reading @ link) + m[1] * content + m[2] * (reading @ link.transpose(1, 2))
        read = reading @ memory
        found.append(linear(h, p, "out") + linear(read.flatten(1), p, "out_read"))
    return torch.stack(found, 1)


def _taken(x: Tensor, index: Tensor) -> Tensor:
    return x[torch.arange(len(x)).view(-1, *[1] * (index.ndim - 1)), index]


def _mlp(x: Tensor, p: Params, n: str, count: int) -> Tensor:
    for i in range(count):
        x = F.relu(layernorm(linear(x, p, f"{n}.mlp.{i}.fc"), p, f"{n}.mlp.{i}.ln"))
    return x


def _abstraction(p: Params, n: str, at: Tensor, x: Tensor, count: int, radius: float, k: int) -> tuple[Tensor, Tensor]:
    apart = torch.full(at.shape[:2], math.inf, dtype=at.dtype)
    chosen = [torch.zeros(len(at), dtype=torch.long)]
    for _ in range(count - 1):
        apart = torch.minimum(apart, ((at - _taken(at, chosen[-1][:, None])) ** 2).sum(2))
        chosen.append(apart.argmax(1))
    centre = _taken(at, torch.stack(chosen, 1))
    inside = (centre[:, :, None] - at[:, None]).norm(dim=3) < radius
    index = torch.where(inside, torch.arange(at.shape[1]), at.shape[1]).sort(-1)[0][..., :k]
    index = torch.where(index == at.shape[1], index[..., :1], index)
    local = torch.cat([_taken(at, index) - centre[:, :, None], _taken(x, index)], -1)
    return centre, _mlp(local, p, n, 2).amax(2)


def _propagation(p: Params, n: str, at: Tensor, x: Tensor, coarse: Tensor, y: Tensor, count: int) -> Tensor:
    far, which = (at[:, :, None] - coarse[:, None]).norm(dim=3).topk(3, -1, largest=False)
    w = 1 / (far**2 + 1e-8)
    w = (w / w.sum(-1, keepdim=True))[..., None]
    return _mlp(torch.cat([x, (w * _taken(y, which)).sum(2)], -1), p, n, count)


def pointnet2(p: Params, at: Tensor, colour: Tensor) -> Tensor:
    at1, x1 = _abstraction(p, "sa1", at, colour, 10, 0.9, 6)
    at2, x2 = _abstraction(p, "sa2", at1, x1, 4, 1.6, 4)
    x1 = _propagation(p, "fp1", at1, x1, at2, x2, 1)
    return linear(_propagation(p, "fp0", at, colour, at1, x1, 2), p, "head")


def _attention(q: Tensor, kv: Tensor, p: Params, n: str, mask: Tensor) -> Tensor:
    a = split_heads(linear(rmsnorm(q, p, n + ".nq"), p, n + ".wq"), 2)
    k, v = (split_heads(u, 2) for u in linear(rmsnorm(kv, p, n + ".nk"), p, n + ".wkv").chunk(2, -1))
    scores = (a @ k.transpose(2, 3)) / math.sqrt(a.shape[-1])
    share = scores.masked_fill(~mask, -1e30).softmax(-1) * mask  # what sees nothing gets 0
    return q + linear(merged(share @ v), p, n + ".wo")


def _gated(x: Tensor, p: Params, n: str) -> Tensor:
    g, u = linear(rmsnorm(x, p, n + ".norm"), p, n + ".up").chunk(2, -1)
    return x + linear(F.silu(g) * u, p, n + ".down")


def _hashed(row: list[int], n: int) -> list[int]:
    found = []
    for t in range(len(row)):
        value = 0
        for s in range(t - n + 1, t + 1):
            value = (value * 1000000007 + (row[s] + 1 if s >= 0 else 0)) % 2**64
        found.append(value % 16)
    return found


def blt(p: Params, bytes: Tensor, entropy: Tensor) -> Tensor:
    rows, steps, patches = *bytes.shape, 6
    begin = (entropy > 0.2) | (torch.arange(steps) == 0)
    patch = (begin.long().cumsum(1) - 1).clamp(max=patches - 1)
    x = F.embedding(bytes.long(), p["bytes.weight"])
    for i, n in enumerate((2, 3, 4)):
        ids = torch.tensor([_hashed(row, n) for row in bytes.tolist()])
        x = x + F.embedding(ids, p[f"grams.{i}.table.weight"])
    at, number = torch.arange(steps), torch.arange(patches)
    near = (at[:, None] >= at) & (at[:, None] - at < 5)
    x = _gated(_attention(x, x, p, "enc", near), p, "enc_mlp")
    own = patch[:, None] == number[:, None]
    none = x.new_zeros(x.shape[-1])
    z = torch.stack([
        torch.stack([x[b, own[b, k]].amax(0) if own[b, k].any() else none for k in range(patches)]) for b in range(rows)
    ])  # fmt: skip
    z = _attention(z, x, p, "pool", own[:, None])
    for i in range(2):
        z = _gated(_attention(z, z, p, f"global.{i}.attn", number[:, None] >= number), p, f"global.{i}.mlp")
    x = _attention(x, z, p, "cross", (patch[..., None] - 1 == number)[:, None])
    x = _gated(_attention(x, x, p, "dec", near), p, "dec_mlp")
    return linear(rmsnorm(x, p, "last"), p, "head")


def scvi(p: Params, counts: Tensor, lab: Tensor, noise: Tensor) -> Any:
    h = F.relu(layernorm(linear(torch.log1p(counts), p, "enc.fc"), p, "enc.ln"))
    m, v = linear(h, p, "enc.mean"), linear(h, p, "enc.var").exp() + 1e-4
    x = torch.cat([m + v.sqrt() * noise, F.one_hot(lab.long(), 2).to(m.dtype)], 1)
    h = F.relu(layernorm(linear(x, p, "fc"), p, "ln"))
    mu = counts.sum(1, keepdim=True) * linear(h, p, "scale").softmax(-1)
    return mu, p["px_r"].exp(), linear(h, p, "dropout"), m, v


def _scvi(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    mu, theta, zeros, m, v = output
    counts, log_theta = x["counts"], torch.log(theta + mu + 1e-8)
    stop = theta * (torch.log(theta + 1e-8) - log_theta)
    none = F.softplus(stop - zeros) - F.softplus(-zeros)
    some = -F.softplus(-zeros) - zeros + stop + counts * (torch.log(mu + 1e-8) - log_theta)
    some = some + torch.lgamma(counts + theta) - torch.lgamma(theta) - torch.lgamma(counts + 1)
    kl = 0.5 * (v + m**2 - 1 - v.log()).sum(1)
    return (0.5 * kl - torch.where(counts < 1e-8, none, some).sum(1)).mean()


LOSSES = {
    "rnnt": lambda p, output, x, y: output.mean(), "crf": _crf, "scvi": _scvi,
    "dnc": lambda p, output, x, y: F.mse_loss(output, y["y"]),
    "blt": lambda p, output, x, y: F.cross_entropy(output.flatten(0, 1), y["next"].flatten().long()),
}  # fmt: skip
