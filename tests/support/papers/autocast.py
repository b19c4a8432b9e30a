"""What PyTorch computes for each paper in f64, in f32, and in bf16 or f16 under its autocast.

    PYTHONPATH=tests/support python -m papers.autocast FOLDER [--device cuda] [--dtypes bf16,f16]

Runs where torch is installed, and needs no dslc. FOLDER holds ``shapes.json`` (``papers.shapes``). For each paper and
dtype it writes FOLDER/PAPER.DTYPE.npz, with ``/`` of the paper as ``-``: ``loss``, each output as ``output N``, and
each parameter's gradient as ``gradient NAME``, all in f64.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from papers.cases import PAPERS, given, parameter
from papers.record import FOLDERS, LOSSES, _classes

HALVES: Final = {"bf16": torch.bfloat16, "f16": torch.float16}
#: Of a loss in f16, as torch.amp.GradScaler begins with.
SCALE: Final = 2.0**16


def computed(paper: str, shapes: dict[str, Any], dtype: str, device: str) -> dict[str, NDArray[np.float64]]:
    """Outputs, loss and gradients; parameters and inputs are f32 in 16 bits, too."""
    folder, _, name = paper.partition("/")
    function = getattr(FOLDERS[folder], name)
    wide = torch.float64 if dtype == "f64" else torch.float32

    def tensor(array: NDArray[Any]) -> Tensor:
        found = torch.from_numpy(array).to(device)
        return found.to(wide) if found.is_floating_point() else found

    p = {n: tensor(parameter(paper, n, s)) for n, s in shapes["state"].items()}
    x, y = ({n: tensor(given(paper, n, s, i)) for n, (s, i) in shapes[each].items()} for each in ("inputs", "labels"))
    scale = SCALE if dtype == "f16" else 1.0
    half = HALVES.get(dtype)
    with torch.device(device), nullcontext() if half is None else torch.autocast(device, half):
        with torch.no_grad():
            outputs = function(p, **x)
        for n, each in p.items():
            each.requires_grad_("running" not in n)
        trained = function(p, **x, **({"train": True} if "train" in inspect.signature(function).parameters else {}))
        loss = LOSSES.get(name, _classes)(p, trained, x, y)
    (loss * scale).backward()
    found = {f"output {i}": o for i, o in enumerate(outputs if isinstance(outputs, tuple) else (outputs,))}
    found |= {f"gradient {n}": each.grad / scale for n, each in p.items() if each.grad is not None}
    return {n: each.detach().double().cpu().numpy() for n, each in {"loss": loss, **found}.items()}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="outputs, losses and gradients of the papers with PyTorch")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="bf16", help="of 16 bits, after f64 and f32: bf16, f16 or both")
    parser.add_argument("--papers", default=",".join(PAPERS))
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    shapes = json.loads((asked.folder / "shapes.json").read_text(encoding="utf-8"))
    failures = 0
    for paper in asked.papers.split(","):
        for dtype in ("f64", "f32", *filter(None, asked.dtypes.split(","))):
            try:
                found = computed(paper, shapes[paper], dtype, asked.device)
            except RuntimeError as error:  # of one paper; the others are computed, and the exit status tells
                print(f"PyTorch: {paper} in {dtype}: {error}", file=sys.stderr, flush=True)
                failures += 1
            else:
                np.savez(asked.folder / f"{paper.replace('/', '-')}.{dtype}.npz", **found)
        print(paper, flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
