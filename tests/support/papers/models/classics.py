"""Older models of unusual form: memories, pointers, routing, equations, survival, ranking, rounding, graphs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.layers import Params, batchnorm, conv2d, layernorm, linear, merged, split_heads


def _lstm(x: Tensor, p: Params, n: str, end: str) -> tuple[Tensor, Tensor, Tensor]:
    ih, hh = (p[f"{n}.weight_{k}_l0{end}"] for k in ("ih", "hh"))
    bias = p[f"{n}.bias_ih_l0{end}"] + p[f"{n}.bias_hh_l0{end}"]
    h = c = x.new_zeros(len(x), hh.shape[1])
    steps = []
    for t in range(x.shape[1]):
        i, f, g, o = (x[:, t] @ ih.T + h @ hh.T + bias).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        steps.append(h)
    return torch.stack(steps, 1), h, c


def pointer_generator(p: Params, source: Tensor, given: Tensor) -> Any:
    source, given = source.long(), given.long()
    words, seen = (p["tok.weight"][torch.where(each < 8, each, 0)] for each in (given, source))
    ahead, h1, c1 = _lstm(seen, p, "encoder", "")
    back, h2, c2 = _lstm(seen.flip(1), p, "encoder", "_reverse")
    memory = torch.cat([ahead, back.flip(1)], 2)
    h, c = (F.relu(linear(torch.cat(e, 1), p, n)) for e, n in (((h1, h2), "bridge_h"), ((c1, c2), "bridge_c")))
    keys, total, logs, repeated = linear(memory, p, "keys"), torch.zeros(source.shape, dtype=h.dtype), [], []
    for t in range(given.shape[1]):
        i, f, g, o = linear(torch.cat([words[:, t], h], 1), p, "cell").chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        a = (torch.tanh(keys + linear(h, p, "query")[:, None] + total[..., None] * p["cover"]) @ p["v"]).softmax(1)
        context = (a[..., None] * memory).sum(1)
        choice = linear(torch.cat([context, h, words[:, t]], 1), p, "choose").sigmoid()
        spoken = choice * linear(torch.cat([h, context], 1), p, "write").softmax(1)
        copied = F.one_hot(source, 11).to(a.dtype) * ((1 - choice) * a)[..., None]
        logs.append((F.pad(spoken, (0, 3)) + copied.sum(1) + 1e-9).log())
        repeated.append(torch.minimum(a, total).sum(1))
        total = total + a
    return torch.stack(logs, 1), torch.stack(repeated, 1)


def _pointer_generator(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    return F.nll_loss(output[0].flatten(0, 1), y["y"].flatten().long()) + output[1].mean()


def memn2n(p: Params, story: Tensor, question: Tensor) -> Tensor:
    size, width = 4, 6
    place = torch.tensor(
        [[1 - j / size - k / width * (1 - 2 * j / size) for k in range(1, width + 1)] for j in range(1, size + 1)],
        dtype=p["time"].dtype,
    )
    memories = [(p[f"table.{i}.weight"][story.long()] * place).sum(2) + p["time"][i] for i in range(4)]
    u = (p["asked.weight"][question.long()] * place).sum(1)
    for i in range(3):
        share = (memories[i] * u[:, None]).sum(2).softmax(1)
        u = u + (share[..., None] * memories[i + 1]).sum(1)
    return linear(u, p, "head")


def pinn(p: Params, x: Tensor, t: Tensor, x0: Tensor) -> Any:
    def net(x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([x, t], 1)
        for i in range(3):
            h = torch.tanh(linear(h, p, f"net.layers.{i}.fc"))
        return linear(h, p, "net.last")[:, 0]

    def slope(y: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    with torch.enable_grad():
        x, t = (each.clone().requires_grad_() for each in (x, t))
        u = net(x, t)
        ux = slope(u, x)
        residual = slope(u, t) + u[:, None] * ux - 0.01 / math.pi * slope(ux, x)
    return u, residual, net(x0, torch.zeros_like(x0))


def _pinn(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    _, residual, start = output
    return (residual**2).mean() + ((start + torch.sin(math.pi * x["x0"][:, 0])) ** 2).mean()


def graphormer(p: Params, atom: Tensor, adj: Tensor, kinds: Tensor) -> Tensor:
    rows, nodes = atom.shape
    x = p["atoms.weight"][atom] + p["degrees.weight"][adj.sum(2).long().clamp(max=7)]
    length = torch.full(adj.shape, 4)
    for row in range(rows):
        for start in range(nodes):
            seen, at = {start}, {start}
            length[row, start, start] = 0
            for far in range(1, 4):
                at = {m for n in at for m in range(nodes) if adj[row, n, m] > 0} - seen
                seen |= at
                for m in at:
                    length[row, start, m] = far
    bias = p["near.weight"][length] + p["edge.weight"][kinds] * adj[..., None]
    full = p["virtual"][None, :, None, None].expand(rows, -1, nodes + 1, nodes + 1).clone()
    full[:, :, 1:, 1:] = bias.permute(0, 3, 1, 2)
    x = torch.cat([p["graph"].expand(rows, 1, -1), x], 1)
    for i in range(2):
        n = f"layers.{i}."
        q, k, v = (split_heads(u, 2) for u in linear(layernorm(x, p, n + "ln1"), p, n + "qkv").chunk(3, -1))
        x = x + linear(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=full)), p, n + "out")
        x = x + linear(F.gelu(linear(layernorm(x, p, n + "ln2"), p, n + "up")), p, n + "down")
    return linear(layernorm(x[:, 0], p, "last"), p, "head")[:, 0]


def survival(p: Params, x: Tensor) -> Any:
    h = F.selu(linear(F.selu(linear(x, p, "fc1")), p, "fc2"))
    share, mean, spread = linear(h, p, "mix").chunk(3, 1)
    return linear(h, p, "risk")[:, 0], share.log_softmax(1), mean, F.softplus(spread) + 0.01


def _survival(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    risk, share, mean, spread = output
    time, event = y["time"], (y["seen"] > 0).to(risk.dtype)
    at_risk = torch.stack([risk[time >= t].logsumexp(0) for t in time])
    cox = -((risk - at_risk) * event).sum() / event.sum().clamp(min=1)
    z = (time[:, None] - mean) / spread
    return cox - (share - spread.log() - 0.5 * z**2).logsumexp(1).mean()


def lovasz(p: Params, x: Tensor) -> Tensor:
    def normed(y: Tensor, n: str) -> Tensor:
        return F.silu(F.group_norm(y, 2, p[n + ".weight"], p[n + ".bias"]))

    a = normed(conv2d(x, p, "c1", padding=1), "n1")
    b = normed(conv2d(a, p, "c2", stride=2, padding=1), "n2")
    up = F.pixel_shuffle(conv2d(F.silu(conv2d(b, p, "c3", padding=2, dilation=2)), p, "wide"), 2)
    return conv2d(torch.cat([a, up], 1), p, "head")


def _lovasz(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    probability = output.softmax(1)
    truth = F.one_hot(y["y"].long(), 3).permute(0, 3, 1, 2).to(output.dtype)
    losses = []
    for c in range(3):
        wanted = truth[:, c].flatten()
        errors, order = (wanted - probability[:, c].flatten()).abs().sort(descending=True)
        ranked = wanted[order]
        growth = 1 - (ranked.sum() - ranked.cumsum(0)) / (ranked.sum() + (1 - ranked).cumsum(0))
        growth[1:] = growth[1:] - growth[:-1].clone()
        losses.append((errors * growth).sum())
    hit = (probability * truth).sum((2, 3))
    more, less = (((1 - truth) * probability).sum((2, 3)), (truth * (1 - probability)).sum((2, 3)))
    tversky = (hit + 1) / (hit + 0.3 * more + 0.7 * less + 1)
    return torch.stack(losses).mean() + ((1 - tversky) ** 0.75).mean()


def arcface(p: Params, x: Tensor) -> Any:
    y = F.max_pool2d(F.prelu(conv2d(x, p, "c1", padding=1), p["p1.weight"]), 2)
    y = F.prelu(conv2d(y, p, "c2", padding=1), p["p2.weight"])
    unit = F.normalize(linear(y.flatten(1), p, "fc"), dim=1)
    return unit, unit @ F.normalize(p["centres"], dim=1).T


def _arcface(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    unit, cosine = output
    lab, rows = y["lab"].long(), torch.arange(len(unit))
    angle = cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()
    turned = torch.where(angle + 0.5 < math.pi, (angle + 0.5).cos(), cosine - 0.5 * math.sin(0.5))
    arc = F.cross_entropy(16 * torch.where(F.one_hot(lab, 3) > 0, turned, cosine), lab)
    triplet, sup = [], []
    for i in rows:
        same = lab == lab[i]
        far = torch.stack([(unit[i] - u).norm() if j != i else unit.new_zeros(()) for j, u in enumerate(unit)])
        triplet.append(F.softplus(far[same].max() - far[~same].min()))
        others = unit[rows != i] @ unit[i] / 0.1
        log_p = others.log_softmax(0)[same[rows != i]]
        sup.append(-log_p.sum() / max(1, len(log_p)))
    return arc + torch.stack(triplet).mean() + torch.stack(sup).mean()


def adjoint(p: Params, z: Tensor) -> Any:
    def f(z: Tensor, t: float) -> Tensor:
        at = z.new_full((len(z), 1), t)
        return linear(torch.tanh(linear(torch.cat([z, at], 1), p, "f.a")), p, "f.b")

    def pulled(z: Tensor, t: float, a: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = z if z.requires_grad else z.clone().requires_grad_()
            v = f(z, t)
            return v, torch.autograd.grad((v * a.detach()).sum(), z, create_graph=True)[0]

    h, y = 1 / 6, z
    for step in range(6):
        t = step * h
        k1 = f(y, t)
        k2 = f(y + h / 2 * k1, t + h / 2)
        k3 = f(y + h / 2 * k2, t + h / 2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(y + h * k3, t + h))
    a, x = 2 * y, y
    for step in range(5, -1, -1):
        t = step * h
        v1, a1 = pulled(x, t + h, a)
        v2, a2 = pulled(x - h / 2 * v1, t + h / 2, a + h / 2 * a1)
        x, a = x - h * v2, a + h * a2
    return y, a, x


def _adjoint(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    end, slope, back = output
    return F.mse_loss(end, y["y"]) + 0.1 * F.mse_loss(back, x["z"]) + 0.01 * (slope**2).mean()


def _routed(pose: Tensor, act: Tensor, p: Params, n: str, rounds: int) -> tuple[Tensor, Tensor]:
    w, beta_u, beta_a = (p[f"{n}.{each}"] for each in ("w", "beta_u", "beta_a"))
    votes = (pose[:, :, None] @ w).flatten(3)  # [B, I, out, 16]
    r = torch.full(votes.shape[:3], 1 / w.shape[1], dtype=votes.dtype)
    for k in range(rounds):
        share = r * act[..., None]
        total = share.sum(1) + 1e-8
        mu = (share[..., None] * votes).sum(1) / total[..., None]
        apart = (votes - mu[:, None]) ** 2
        var = (share[..., None] * apart).sum(1) / total[..., None] + 1e-6
        cost = (beta_u[:, None] + 0.5 * var.log()) * total[..., None]
        a = ((1 + k) * (beta_a - cost.sum(2))).sigmoid()
        log_p = -0.5 * (apart / var[:, None] + torch.log(2 * math.pi * var)[:, None]).sum(3)
        r = ((a + 1e-8).log()[:, None] + log_p).softmax(2)
    return mu, a


def em_routing(p: Params, x: Tensor) -> Any:
    y = conv2d(F.relu(conv2d(x, p, "c1", stride=2)), p, "c2").flatten(1)
    m, a = _routed(y[:, :96].view(-1, 6, 4, 4), y[:, 96:].sigmoid(), p, "middle", 2)
    return _routed(m.view(-1, 4, 4, 4), a, p, "top", 2)


def _em_routing(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    pose, act = output
    own = act[torch.arange(len(act)), y["lab"].long()][:, None]
    return (F.relu(0.4 - (own - act)) ** 2).sum(1).mean() - 0.16 + 0.001 * (pose**2).mean()


def timesnet(p: Params, x: Tensor) -> Tensor:
    mean, scale = x.mean(1, keepdim=True), (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    y = linear(linear((x - mean) / scale, p, "embed").mT, p, "longer").mT
    for i in range(2):
        found = torch.fft.rfft(y, dim=1)
        size = (found.real**2 + found.imag**2 + 1e-12).sqrt()
        best = size.mean((0, 2))[1:].topk(2).indices + 1
        weight = size.mean(2)[:, best].softmax(1)
        parts = []
        for k, frequency in enumerate(best.tolist()):
            period = 16 // frequency
            rows = -(-16 // period)
            plane = F.pad(y.mT, (0, rows * period - 16)).unflatten(2, (rows, period))
            seen = F.unfold(plane, 3, padding=1).unflatten(1, (6, 9)).permute(0, 3, 2, 1).flatten(2)[:, :16]
            n = f"layers.{i}."
            inner = F.gelu(linear(seen, p, f"{n}inner.{k}.kernel"))
            parts.append(weight[:, k, None, None] * linear(inner, p, f"{n}outer.{k}.kernel"))
        y = layernorm(sum(parts) + y, p, f"layers.{i}.ln")
    return linear(y[:, 12:], p, "head") * scale + mean


def pointer(p: Params, at: Tensor) -> Any:
    rows, nodes, _ = at.shape
    x = linear(at, p, "embed")
    q, k, v = (split_heads(u, 2) for u in linear(x, p, "qkv").chunk(3, -1))
    x = x + linear(merged(F.scaled_dot_product_attention(q, k, v)), p, "out")
    keys, last = linear(x, p, "keys"), p["begin"].expand(rows, -1)
    visited, route, logs = torch.zeros(rows, nodes, dtype=torch.bool), [], []
    for _ in range(nodes):
        query = linear(torch.cat([x.mean(1), last], 1), p, "ask")
        u = 10 * torch.tanh((keys * query[:, None]).sum(2) / math.sqrt(8))
        log_p = u.masked_fill(visited, -math.inf).log_softmax(1)
        value, chosen = log_p.max(1)
        route.append(chosen)
        logs.append(value)
        last = x[torch.arange(rows), chosen]
        visited = visited | F.one_hot(chosen, nodes).bool()
    order = torch.stack(route, 1)
    places = at[torch.arange(rows)[:, None], order]
    return order, torch.stack(logs, 1), (places - places.roll(-1, 1)).norm(dim=2).sum(1).detach()


def _pointer(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    return ((output[2] - y["base"]) * output[1].sum(1)).mean()


def deepfm(p: Params, category: Tensor, history: Tensor, likes: Tensor, hates: Tensor, dense: Tensor) -> Any:
    ids = category + torch.tensor([0, 4, 8])
    past = F.embedding_bag(history, p["bag.weight"], mode="mean", padding_idx=0)
    fields = torch.cat([p["fields.weight"][ids], past[:, None]], 1)
    pairs = [(fields[:, i] * fields[:, j]).sum(1) for i in range(4) for j in range(i)]
    x0 = torch.cat([fields.flatten(1), dense], 1)
    x = x0
    for i in range(2):
        x = x0 * linear(x, p, f"cross.{i}.w") + x
    deep = linear(F.relu(linear(x0, p, "fc1")), p, "fc2")[:, 0]
    score = p["linear.weight"][ids].sum((1, 2)) + sum(pairs) + deep + linear(x, p, "out")[:, 0]
    user = linear(past, p, "user")
    return score, *((user * p["items.weight"][each.long()]).sum(1) for each in (likes, hates))


def _deepfm(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    score, good, bad = output
    t = (y["click"] > 0).to(score.dtype)
    return 2 * F.binary_cross_entropy_with_logits(score, t) + F.softplus(bad - good).mean()


def _rounded(x: Tensor, step: Tensor, low: int, high: int) -> Tensor:
    scale = 1 / math.sqrt(high * 10)
    s = (step - step * scale).detach() + step * scale
    y = (x / s).clamp(low, high)
    return (y + (y.round() - y).detach()) * s


def lsq(p: Params, x: Tensor, train: bool = False) -> Tensor:
    y = F.relu(conv2d(x, p, "stem", padding=1))
    for i, stride in ((1, 2), (2, 1)):
        w = _rounded(p[f"c{i}.weight"], p[f"c{i}.qw.step"], -4, 3)
        y = F.conv2d(_rounded(y, p[f"c{i}.qx.step"], 0, 7), w, stride=stride, padding=1)
        y = F.relu(batchnorm(y, p, f"n{i}", train))
    return linear(y.mean((2, 3)), p, "head")


def _lab(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.cross_entropy(output, y["lab"].long())


def ppo(p: Params, seen: Tensor, done: Tensor) -> Any:
    x, h, steps = torch.tanh(linear(seen, p, "fc")), seen.new_zeros(len(seen), 8), []
    for t in range(5):
        if t:
            h = h * (done[:, t - 1 : t] <= 0)
        (r, z, n), (hr, hz, hn) = linear(x[:, t], p, "ih").chunk(3, 1), linear(h, p, "hh").chunk(3, 1)
        r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        h = (1 - z) * torch.tanh(n + r * hn) + z * h
        steps.append(h)
    y = torch.stack(steps, 1)
    return linear(y, p, "pi"), linear(y, p, "v")[..., 0]


def _ppo(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, value = output
    v, going = value.detach(), (x["done"] <= 0).to(value.dtype)
    gain, last = torch.zeros_like(v), torch.zeros_like(v[:, 0])
    for t in range(4, -1, -1):
        after = v[:, t + 1] if t < 4 else torch.zeros_like(last)
        last = y["reward"][:, t] + 0.99 * after * going[:, t] - v[:, t] + 0.99 * 0.95 * going[:, t] * last
        gain[:, t] = last
    target = gain + v
    gain = (gain - gain.mean()) / (gain.std(correction=0) + 1e-8)
    logs = logits.log_softmax(2)
    ratio = (logs.gather(2, y["action"].long()[..., None])[..., 0] - y["old"]).exp()
    policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    near = v + (value - v).clamp(-0.2, 0.2)
    worth = 0.5 * torch.maximum((value - target) ** 2, (near - target) ** 2).mean()
    return policy + 0.5 * worth + 0.01 * (logs.exp() * logs).sum(2).mean()


LOSSES = {
    "pointer_generator": _pointer_generator, "pinn": _pinn, "survival": _survival, "lovasz": _lovasz,
    "arcface": _arcface, "adjoint": _adjoint, "em_routing": _em_routing, "pointer": _pointer, "deepfm": _deepfm,
    "lsq": _lab, "ppo": _ppo,
    "graphormer": lambda p, output, x, y: F.l1_loss(output, y["y"]),
    "timesnet": lambda p, output, x, y: F.mse_loss(output, y["y"]),
}  # fmt: skip
