"""Records what PyTorch computes for each paper.

    PYTHONPATH=tests/support python -m papers.record SHAPES

Runs where torch is installed, and needs no dslc. SHAPES is a JSON file, ``{paper: {"state": {name: shape}, "inputs":
{name: [shape, integer]}, "labels": {...}}}``, which ``python -m papers.shapes`` writes with dslc.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.cases import PAPERS, RECORDED, given, parameter, summary
from papers.layers import Params, linear
from papers.models import (
    audio,
    classics,
    detection,
    discrete,
    fields,
    flows,
    guided,
    images,
    inner,
    language,
    memory,
    points,
    recent,
    sequences,
    series,
    signals,
    structures,
    tokens,
    vision,
    worlds,
)

Loss = Callable[[Params, Any, Params, Params], Tensor]

#: the module of the models in each folder
FOLDERS: Final = {module.__name__.rpartition(".")[2]: module for module in (
    audio, classics, detection, discrete, fields, flows, guided, images, inner, language, memory, points, recent,
    sequences, series, signals, structures, tokens, vision, worlds,
)}  # fmt: skip


def _classes(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), y["y"].flatten().long())


def _squares(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.mse_loss(output, y["y"])


def _distances(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return (output - y["y"]).abs().mean()


def _edm(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    weight = (x["sigma"] ** 2 + 0.25) / (x["sigma"] * 0.5) ** 2
    return (weight.view(-1, 1, 1, 1) * (output - y["clean"]) ** 2).mean()


def _dinov2(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    token, patches = output
    return F.cross_entropy(linear(torch.cat([token, patches.mean(1)], -1), p, "train.head"), y["y"].long())


def _siglip(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    same = torch.eye(len(output), dtype=torch.bool)
    return -F.logsigmoid(torch.where(same, output, -output)).sum() / len(output)


def _tabm(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), y["y"][:, None].expand(-1, output.shape[1]).flatten().long())


def _encodec(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    wave, commit, _ = output
    return F.l1_loss(wave, x["wave"]) + F.mse_loss(wave, x["wave"]) + 0.25 * commit


def _ebranchformer(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    lengths = torch.full((2,), 7), torch.full((2,), 3)
    return F.ctc_loss(output.log_softmax(-1).transpose(0, 1), y["y"].long(), *lengths, blank=4)


def _zipformer(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    lengths = torch.full((2,), 8), torch.full((2,), 3)
    return F.ctc_loss(output.log_softmax(-1).transpose(0, 1), y["y"].long(), *lengths, blank=4)


def _sam(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    mask, iou = output
    one, t = mask.sigmoid(), y["y"]
    apart = F.binary_cross_entropy_with_logits(mask, t, reduction="none")
    focal = (apart * (1 - (one * t + (1 - one) * (1 - t))) ** 2 * (0.25 * t + 0.75 * (1 - t))).mean()
    dice = 1 - (2 * (one * t).sum((2, 3)) + 1) / (one.sum((2, 3)) + t.sum((2, 3)) + 1)
    return 20 * focal + dice.mean() + F.mse_loss(iou, y["q"])


def _dino_detr(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, boxes = output
    wanted, t = y["target"].sigmoid(), F.one_hot(y["y"].long(), 5).to(logits.dtype)
    one = logits.sigmoid()
    focal = F.binary_cross_entropy_with_logits(logits, t, reduction="none")
    focal = focal * (1 - (one * t + (1 - one) * (1 - t))) ** 2 * (0.25 * t + 0.75 * (1 - t))

    def corners(b: Tensor) -> tuple[Tensor, Tensor]:
        return b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2

    (a1, a2), (b1, b2) = corners(boxes), corners(wanted)
    both = (torch.minimum(a2, b2) - torch.maximum(a1, b1)).clamp(0).prod(-1)
    union = (a2 - a1).prod(-1) + (b2 - b1).prod(-1) - both
    hull = (torch.maximum(a2, b2) - torch.minimum(a1, b1)).prod(-1)
    giou = both / union - (hull - union) / hull
    return focal.sum() / 4 + 5 * F.l1_loss(boxes, wanted) + 2 * (1 - giou).mean()


def _consistency(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    near, far = output
    c, d = 0.00054 * math.sqrt(3 * 8 * 8), ((far - near) ** 2).sum((1, 2, 3))
    return (((d + c**2).sqrt() - c) / (0.3 * x["sigma"])).mean()


def _pairformer(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    single, distance = output
    far = (y["at"][:, :, None] - y["at"][:, None]).norm(dim=-1)
    bins = (far[..., None] > torch.linspace(0.3, 2.1, 7, dtype=far.dtype)).sum(-1)
    return F.cross_entropy(distance.flatten(0, 2), bins.flatten()) + _classes(p, single, x, y)


def _hrm(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    logits, halt = output
    right = (logits.argmax(-1) == y["y"]).all(1)
    wanted = torch.stack([right.to(halt.dtype), torch.sigmoid(halt.amax(1)).detach()], 1)
    stop = F.binary_cross_entropy_with_logits(halt, wanted, reduction="sum") / len(halt)
    return _classes(p, logits, x, y) + 0.5 * stop


def _ipa(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    single, place = output
    apart = place[:, :, None] - place[:, None] - y["at"][:, :, None] + y["at"][:, None]
    far = torch.sqrt((apart**2).sum(-1) + 1e-4)
    return far.clamp(max=10).mean() + 0.1 * (single**2).mean()


def _capsule(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    length, image = output
    t = F.one_hot(y["y"].long(), 3)
    margin = t * F.relu(0.9 - length) ** 2 + 0.5 * (1 - t) * F.relu(length - 0.1) ** 2
    return margin.sum(1).mean() + 0.0005 * F.mse_loss(image, x["x"].flatten(1), reduction="sum") / 2


def _tft(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    q, e = torch.tensor([0.1, 0.5, 0.9], dtype=output.dtype), y["y"][..., None] - output
    return torch.maximum(q * e, (q - 1) * e).sum(-1).mean()


def _wav2vec(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    guess, target, usage = output
    same = F.cosine_similarity(guess[:, :, None], target[:, None], dim=-1) / 0.1
    hidden = (x["masked"] > 4).to(guess.dtype)
    each = F.cross_entropy(same.flatten(0, 1), torch.arange(8).repeat(2), reduction="none").view(2, 8)
    diverse = (6 - torch.exp(-(usage * torch.log(usage + 1e-7)).sum(1)).sum()) / 6
    return (each * hidden).sum() / (hidden.sum() + 1e-6) + 0.1 * diverse


def _rssm(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    image, prior, post = output
    wanted = x["x"].sign() * x["x"].abs().log1p()

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return F.kl_div(q, p, reduction="none", log_target=True).sum((2, 3)).clamp(min=0.1)

    apart = ((image - wanted) ** 2).sum(2)
    return (apart + 0.5 * kl(post.detach(), prior) + 0.1 * kl(post, prior.detach())).mean()


def _relative(p: Params, output: Tensor, x: Params, y: Params) -> Tensor:
    return ((output - y["y"]).flatten(1).norm(dim=1) / y["y"].flatten(1).norm(dim=1)).mean()


def _yolov8(p: Params, output: Any, x: Params, y: Params) -> Tensor:
    sides, boxes, scores = output
    centre, size = y["at"][..., :2].sigmoid() * 16, y["at"][..., 2:].sigmoid() * 12 + 1
    a1, a2, b1, b2 = boxes[..., :2], boxes[..., 2:], centre - size / 2, centre + size / 2
    both = (torch.minimum(a2, b2) - torch.maximum(a1, b1)).clamp(0).prod(-1)
    iou = both / ((a2 - a1).prod(-1) + size.prod(-1) - both + 1e-7)
    hull = torch.maximum(a2, b2) - torch.minimum(a1, b1)
    apart = ((a1 + a2 - b1 - b2) ** 2).sum(-1) / 4 / ((hull**2).sum(-1) + 1e-7)
    own, wanted = (a2 - a1).unbind(-1), size.unbind(-1)
    v = 4 / math.pi**2 * (torch.atan(wanted[0] / wanted[1]) - torch.atan(own[0] / (own[1] + 1e-7))) ** 2
    alpha = (v / (v - iou + 1 + 1e-7)).detach()
    t = (y["at"].sigmoid() * 5).clamp(0, 3.99)
    left, p_log = t.floor(), sides.log_softmax(-1)
    lower, upper = (p_log.gather(-1, (left.long() + i)[..., None])[..., 0] for i in (0, 1))
    dfl = -(lower * (left + 1 - t) + upper * (t - left)).mean()
    classes = F.binary_cross_entropy_with_logits(scores, y["target"].sigmoid())
    return 7.5 * (1 - iou + apart + alpha * v).mean() + 1.5 * dfl + 0.5 * classes


LOSSES: Final[dict[str, Loss]] = {
    "encodec": _encodec, "ebranchformer": _ebranchformer, "sam": _sam, "dino_detr": _dino_detr, "fits": _squares,
    "yolov8": _yolov8, "cyclenet": _squares, "vocos": lambda p, output, x, y: F.l1_loss(output, y["wave"]),
    "consistency": _consistency, "pairformer": _pairformer,
    "fsq": lambda p, output, x, y: F.l1_loss(output[0], x["x"]) + F.mse_loss(output[0], x["x"]),
    **dict.fromkeys(("ffno", "transolver"), _relative),
    "eva02": lambda p, output, x, y: F.cross_entropy(output, y["y"].long(), label_smoothing=0.1),
    "ngp": lambda p, output, x, y: F.huber_loss(output[0], y["y"], delta=0.1),
    "splat": lambda p, output, x, y: 0.8 * F.l1_loss(output, y["y"]) + 0.2 * F.mse_loss(output, y["y"]),
    "dit": lambda p, output, x, y: F.mse_loss(output[:, :4], y["noise"]),
    "nafnet": lambda p, output, x, y: torch.sqrt((output - y["y"]) ** 2 + 1e-6).mean(),
    "hrm": _hrm, "ipa": _ipa, "capsule": _capsule, "tft": _tft, "wav2vec": _wav2vec, "rssm": _rssm,
    "glow": lambda p, output, x, y: -output[1].mean() / (16 * math.log(2)),
    "vqvae": lambda p, output, x, y: F.mse_loss(output[0], x["x"]) + 0.25 * F.mse_loss(output[1], output[2]),
    "egnn": lambda p, output, x, y: F.l1_loss(output[0], y["e"]) + F.mse_loss(output[1], y["at"]),
    "painn": lambda p, output, x, y: F.mse_loss(output[1], y["f"]),
    "siren": lambda p, output, x, y: F.mse_loss(output[1], y["g"]) + 0.01 * F.mse_loss(output[2], y["l"]),
    "slot": lambda p, output, x, y: F.mse_loss(output[1].transpose(1, 2) @ output[0], y["target"]),
    "raft": lambda p, output, x, y: 0.8 * F.l1_loss(output[0], y["truth"]) + F.l1_loss(output[1], y["truth"]),
    "tabnet": lambda p, output, x, y: _classes(p, output[0], x, y) + 0.001 * output[1].mean(),
    "convlstm": lambda p, output, x, y: F.binary_cross_entropy_with_logits(output, y["y"].sigmoid()),
    **dict.fromkeys(("mmdit", "meanflow"), lambda p, output, x, y: F.mse_loss(*output)),
    **dict.fromkeys(("spline", "ffjord"), lambda p, output, x, y: -output[1].mean()),
    "edm": _edm, "dinov2": _dinov2, "siglip": _siglip, "tabm": _tabm, "nhits": _distances, "gps": _distances,
    **dict.fromkeys(("patchtst", "kan", "itransformer", "tsmixer"), _squares),
    "zipformer": _zipformer, **detection.LOSSES, **guided.LOSSES, **memory.LOSSES, **points.LOSSES,
    **inner.LOSSES, **worlds.LOSSES, **discrete.LOSSES, **audio.LOSSES, **signals.LOSSES,
    **recent.LOSSES, **classics.LOSSES,
}  # fmt: skip


def record(paper: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """The summaries of one paper."""
    folder, _, name = paper.partition("/")
    function = getattr(FOLDERS[folder], name)
    p = {n: torch.from_numpy(parameter(paper, n, s)).double() for n, s in shapes["state"].items()}
    x, y = (
        {n: _wide(torch.from_numpy(given(paper, n, s, i))) for n, (s, i) in shapes[each].items()}
        for each in ("inputs", "labels")
    )
    outputs = function(p, **x)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for n, each in p.items():
        each.requires_grad_("running" not in n)
    trained = function(p, **x, **({"train": True} if "train" in inspect.signature(function).parameters else {}))
    loss = LOSSES.get(name, _classes)(p, trained, x, y)
    loss.backward()
    gradients = {n: summary(each.grad.numpy()) for n, each in p.items() if each.grad is not None}
    return {"loss": loss.item(), "outputs": [summary(o.detach().numpy()) for o in outputs], "gradients": gradients}


def _wide(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def main() -> None:
    """The command."""
    shapes = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {paper: record(paper, shapes[paper]) for paper in PAPERS}
    RECORDED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
