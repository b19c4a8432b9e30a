"""Records what PyTorch computes for each paper.

    PYTHONPATH=tests/support python -m papers.record SHAPES

Runs where torch is installed, and needs no dslc. SHAPES is a JSON file, ``{paper: {"state": {name: shape}, "inputs":
{name: [shape, integer]}, "labels": {...}}}``, which ``python -m papers.shapes`` writes with dslc.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from papers import language, series, vision
from papers.cases import PAPERS, RECORDED, given, parameter, summary
from papers.layers import Params, linear

Loss = Callable[[Params, Any, Params, Params], Tensor]


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


LOSSES: Final[dict[str, Loss]] = {
    "dit": lambda p, output, x, y: F.mse_loss(output[:, :4], y["noise"]),
    "nafnet": lambda p, output, x, y: torch.sqrt((output - y["y"]) ** 2 + 1e-6).mean(),
    "edm": _edm, "dinov2": _dinov2, "siglip": _siglip, "tabm": _tabm, "nhits": _distances, "gps": _distances,
    **dict.fromkeys(("patchtst", "kan", "itransformer", "tsmixer"), _squares),
}  # fmt: skip


def record(paper: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """The summaries of one paper."""
    folder, _, name = paper.partition("/")
    function = getattr({"vision": vision, "language": language, "series": series}[folder], name)
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
    return {"loss": loss.item(), "outputs": [summary(o.numpy()) for o in outputs], "gradients": gradients}


def _wide(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def main() -> None:
    """The command."""
    shapes = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {paper: record(paper, shapes[paper]) for paper in PAPERS}
    RECORDED.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
