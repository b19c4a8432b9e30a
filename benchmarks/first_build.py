"""Processor seconds from a model's text to its first training step, for the examples: cold, and with a filled cache.

    python benchmarks/first_build.py [--only TEXT] [--rounds N] [--before FILE] [--source FOLDER] [--json]

As ``dslc train`` does, it compiles for this machine's CPU only. Cold: with an empty cache; warm: again. Then a new
process loads the artifact, draws initial weights and runs a step of two rows of zeros: a build does not depend on the
number of rows, but a step of a large model would hide it. Counted is the time of all processes on all processors; of
all rounds the least. Python has the bytecode of dslc.

``--source``: a checkout of another revision, whose ``--json`` is then what ``--before`` compares with.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parents[1]
#: Name -> file, its arguments, and its other sizes.
EXAMPLES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "mlp": ("mlp/mlp.nn", ()),
    "digits": ("digits/lenet.nn", ()),
    "vae": ("vae/vae.nn", ()),
    "charlm": ("charlm/charlm.nn", ()),
    "unet": ("unet/unet.nn", ("-D", "depth=2", "-D", "width=12")),
    "inception": ("inception/inception.nn", ("-D", "width=16")),
    "resnet": ("resnet/resnet.nn:ResNet18", ()),
    "models/resnet 18": ("models/resnet.nn", ("-D", "depth=18")),
    "models/vgg 16": ("models/vgg.nn", ()),
    "models/mobilenet v2": ("models/mobilenet.nn:MobileNetV2", ()),
    "models/efficientnet b0": ("models/efficientnet.nn", ()),
    "models/densenet 121": ("models/densenet.nn", ()),
    "models/convnext tiny": ("models/convnext.nn", ()),
    "models/vit": ("models/vit.nn", ()),
    "models/swin t": ("models/swin.nn", ()),
    "models/bert": ("models/bert.nn:BertClassifier", ()),
    "models/gpt2": ("models/gpt2.nn", ()),
}
FIRST_STEP: Final = """
import sys
import numpy as np
import dslc
from dslc.runtime.artifact.dtypes import numpy_dtype
with dslc.load(sys.argv[1], weights="init") as session:
    interface = session.artifact.header["interface"]
    sizes = {dim["name"]: 2 if dim.get("batch") else dim["default"] for dim in interface["dims"]}
    ports = [*interface["inputs"], *interface["train"]["inputs"]]
    shapes = {port["name"]: [sizes.get(n, n) for n in port["shape"]] for port in ports}
    session.train_step(**{p["name"]: np.zeros(shapes[p["name"]], numpy_dtype(p["dtype"])) for p in ports})
"""


@dataclass(frozen=True)
class Row:
    """Processor seconds, and the kernels of the artifact."""

    name: str
    cold: float
    warm: float
    step: float
    kernels: int


def measure(name: str, source: Path, rounds: int) -> Row:
    """One example; a fresh cache for each round."""
    file, arguments = EXAMPLES[name]
    seconds: list[tuple[float, float, float]] = []
    kernels = 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONPATH": str(source), "DSLC_CACHE_DIR": f"{folder}/cache"}
            sizes = [f"--size={family}:B=2" for family in ("train", "eval", "predict")]
            build = ["-m", "dslc", "build", str(source / "examples" / file), *arguments, *sizes]
            build += ["--cpu", "native", "-o", folder, "--json"]
            cold, text = _run(build, environment)
            warm, _ = _run(build, environment)
            made = json.loads(text)
            step, _ = _run(["-c", FIRST_STEP, made["path"]], environment)
            kernels = made["kernels"]["total"]
            seconds.append((cold, warm, step))
    cold, warm, step = (round(min(each), 2) for each in zip(*seconds))
    return Row(name, cold, warm, step, kernels)


def _run(arguments: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Processor seconds of a Python and its children, and its output. It starts in an empty folder, because ``-m`` puts
    the working folder before ``PYTHONPATH``."""
    before = _processor()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=Path(environment["DSLC_CACHE_DIR"]).parent,
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return _processor() - before, done.stdout


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only names that contain this text")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path, help="the --json of another revision")
    parser.add_argument("--source", type=Path, default=HERE, help="a checkout whose code runs")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    before = {}
    if asked.before is not None:
        before = {row["name"]: Row(**row) for row in json.loads(asked.before.read_text(encoding="utf-8"))}
    rows = []
    if not asked.json:
        print("| | kernels | cold | warm | load and first step |\n|---|---|---|---|---|")
    for name in EXAMPLES:
        if asked.only not in name:
            continue
        row = measure(name, asked.source.resolve(), asked.rounds)
        rows.append(row)
        if not asked.json:
            old = before.get(name)
            earlier = [f"{old.kernels} -> ", f"{old.cold:.1f} -> ", f"{old.warm:.2f} -> "] if old else ["", "", ""]
            numbers = [str(row.kernels), f"{row.cold:.1f}", f"{row.warm:.2f}"]
            cells = " | ".join(a + b for a, b in zip(earlier, numbers))
            print(f"| `{name}` | {cells} | {row.step:.2f} |", flush=True)
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
