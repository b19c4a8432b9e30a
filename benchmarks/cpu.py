"""Training steps on the CPU, ours and PyTorch's in turns: medians over the rounds, and their ratio.

    python benchmarks/cpu.py --torch ~/torchenv/bin/python            a table
    python benchmarks/cpu.py --torch ... --bench lenet --json         one JSON line a result

Each round runs each job in a fresh process, one after the other, so that a slow spell of the machine hits all. Ours is
built with the provider ``own`` before the first round. PyTorch's jobs are those of ``peers/cpu_torch.py``, eager or
``compile``; without ``--torch`` only ours runs. The load of the machine is printed: numbers taken beside other work
say little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
#: Of each model its file, and its inputs: shape, and below what number integers are drawn (0: normal floats).
MODELS: Final[dict[str, tuple[Path, dict[str, tuple[tuple[int, ...], int]]]]] = {
    "lenet": (HERE.parent / "examples/digits/lenet.nn", {"image": ((64, 1, 28, 28), 0), "label": ((64,), 10)}),
    "mlp": (HERE / "mlp.nn", {"image": ((64, 784), 0), "label": ((64,), 10)}),
    "resnet18_cifar_cl": (HERE / "resnet18_cifar.nn", {"image": ((32, 3, 32, 32), 0), "label": ((32,), 10)}),
    "gpt_mini": (HERE / "gpt_mini.nn", {"ids": ((16, 128), 96), "target": ((16, 128), 96)}),
}


def build(bench: str, folder: Path, provider: str) -> tuple[Path, float]:
    """The artifact's path, and the seconds of the build."""
    from dslc.compiler.pipeline import Options, build, check_file

    started = time.perf_counter()
    made = build(check_file(str(MODELS[bench][0])), Options(provider=provider))
    path = folder / f"{bench}.dslc"
    path.write_bytes(made.artifact)
    return path, time.perf_counter() - started


def steps(bench: str, path: str, seconds: float) -> dict[str, Any]:
    """Times training steps of one fixed random batch in this process."""
    started = time.perf_counter()
    import numpy as np

    import dslc

    rng = np.random.default_rng(1)
    batch = {
        name: rng.integers(0, below, shape).astype(np.int32) if below else rng.standard_normal(shape).astype(np.float32)
        for name, (shape, below) in MODELS[bench][1].items()
    }
    with dslc.load(path, weights="init") as session:
        session.train_step(**batch)
        cold = time.perf_counter() - started
        for _ in range(3):
            session.train_step(**batch)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            begin = time.perf_counter()
            session.train_step(**batch)
            times.append(time.perf_counter() - begin)
    middle = statistics.median(times)
    return {"ms_step": middle * 1e3, "ms_min": min(times) * 1e3, "cold_s": cold, "steps": len(times)}


def run(command: list[str], threads: int) -> dict[str, Any]:
    """The last JSON line that a job prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "DSLC_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="training steps on the CPU, ours and PyTorch's")
    parser.add_argument("--bench", choices=tuple(MODELS), action="append")
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--modes", nargs="*", default=["eager"], choices=["eager", "compile"])
    parser.add_argument("--provider", default="own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", nargs=2, metavar=("BENCH", "ARTIFACT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(steps(*asked.job, asked.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for bench in asked.bench or MODELS:
            compare(bench, Path(folder), asked)


def compare(bench: str, folder: Path, asked: argparse.Namespace) -> None:
    """All rounds of one model."""
    path, built = build(bench, folder, asked.provider)
    jobs = {"ours": [sys.executable, __file__, "--seconds", str(asked.seconds), "--job", bench, str(path)]}
    for mode in asked.modes if asked.torch else []:
        peer = [asked.torch, str(HERE / "peers/cpu_torch.py"), "--bench", bench, "--mode", mode]
        jobs[f"torch {mode}"] = [*peer, "--threads", str(asked.threads), "--seconds", str(asked.seconds)]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for _ in range(asked.rounds):
        for name, command in jobs.items():
            results[name].append(run(command, asked.threads))
    ours = statistics.median(r["ms_step"] for r in results["ours"])
    for name, found in results.items():
        each = sorted(r["ms_step"] for r in found)
        middle = statistics.median(each)
        row = {
            "bench": bench, "who": name, "threads": asked.threads, "ms_step": round(middle, 3),
            "spread": [round(each[0], 3), round(each[-1], 3)], "ms_min": round(min(r["ms_min"] for r in found), 3),
            "cold_s": round(statistics.median(r["cold_s"] for r in found), 2), "times_ours": round(middle / ours, 2),
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
        if name == "ours":
            row["build_s"] = round(built, 1)
        print(json.dumps(row) if asked.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
