"""The symbols of the kernels of some models, which are digests of their descriptions. As a program it prints them."""

from __future__ import annotations

import hashlib
from itertools import chain

from places import ROOT

from dslc.compiler.check.model import check_file
from dslc.compiler.ir.described import canonical
from dslc.compiler.options import Options
from dslc.compiler.pipeline import foresee

#: By name: file, dims of the program's constants, sizes, options. Among them they have most kinds of kernels.
MODELS = {
    "lenet cpu": ("examples/digits/lenet.nn", {}, {"B": 8}, {"target": "cpu"}),
    "lenet sm_90": ("examples/digits/lenet.nn", {}, {"B": 8}, {"target": "sm_90"}),
    "charlm cpu": ("examples/charlm/charlm.nn", {}, {"B": 4}, {"target": "cpu"}),
    "unet cpu": ("tests/models/unet.nn", {}, {"B": 2}, {"target": "cpu"}),
    "unet sm_90 bf16": ("tests/models/unet.nn", {}, {"B": 2}, {"target": "sm_90", "precision": "bf16"}),
    "vae sm_90": ("examples/vae/vae.nn", {}, {"B": 8}, {"target": "sm_90"}),
    "resnet sm_90 bf16": ("examples/resnet/resnet.nn:ResNet18", {}, {"B": 2}, {"target": "sm_90", "precision": "bf16"}),
    "gpt sm_90 bf16": ("benchmarks/gpt_mini.nn", {"layers": "1"}, {"B": 4}, {"target": "sm_90", "precision": "bf16"}),
    "gpt sm_90 vendor": (
        "benchmarks/gpt_mini.nn",
        {"layers": "1"},
        {"B": 4},
        {"target": "sm_90", "provider": "vendor"},
    ),
}


def text() -> str:
    """Of a training step of each, by the tag of their descriptions: how many, and a digest of their symbols."""
    lines = []
    for name, (file, constants, sizes, options) in MODELS.items():
        checked = check_file(str(ROOT / file), None, constants)
        [program] = foresee(checked, "train_step", sizes, Options(**options), ("auto",))
        kinds: dict[str, set[str]] = {}
        for launch in chain.from_iterable(program.kernels.values()):
            kinds.setdefault(canonical(launch.code).partition("(")[0], set()).add(launch.symbol)
        lines.append(name)
        for kind, symbols in sorted(kinds.items()):
            lines.append(f"  {kind} {len(symbols)} {hashlib.sha256(' '.join(sorted(symbols)).encode()).hexdigest()}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(text(), end="")
