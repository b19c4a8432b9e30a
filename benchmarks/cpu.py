"""Training steps on the CPU, ours and PyTorch's in turns: medians over the rounds, and their ratio.

    python benchmarks/cpu.py --torch ~/torchenv/bin/python            all, as a table
    python benchmarks/cpu.py --torch ... --bench lenet --json         one JSON line a result
    python benchmarks/cpu.py --torch ... --threads 1 --processor      processor time, for a machine with other work

Each round runs each job in a fresh process, one after the other, so that a slow spell of the machine hits all. Ours is
built with the provider ``own`` before the first round. PyTorch's jobs are those of ``peers/cpu_torch.py``, eager and
``compile``, whose first round has an empty cache; without ``--torch`` only ours runs. ``lenet_predict`` is one image;
``pointwise`` are the chains and normalisations of ``cpu_regions.py``. First steps count from the start of the process.
The load of the machine is printed: numbers measured during other work are not reliable.
"""

from __future__ import annotations

import argparse
import functools
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
    "lenet_predict": (HERE.parent / "examples/digits/lenet.nn", {"image": ((1, 1, 28, 28), 0)}),
    "lstm_650": (HERE.parent / "tests/models/lstm_lm.nn", {"ids": ((20, 35), 10_000), "target": ((20, 35), 10_000)}),
    "lstm_text": (HERE.parent / "examples/lstm/lstm.nn", {"ids": ((16, 64), 128), "target": ((16, 64), 128)}),
    "charlm": (HERE.parent / "examples/charlm/charlm.nn", {"ids": ((16, 64), 128), "target": ((16, 64), 128)}),
    "gpt_mini": (HERE / "gpt_mini.nn", {"ids": ((16, 128), 96), "target": ((16, 128), 96)}),
}

PREDICT: Final = "lenet_predict"
POINTWISE: Final = "pointwise"
PEERS: Final = {PREDICT: "infer_lenet"}  # other names there


def build(bench: str, folder: Path, provider: str) -> tuple[Path, float]:
    """The artifact's path, and the seconds of the build."""
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build

    started = time.perf_counter()
    made = build(check_file(str(MODELS[bench][0])), Options(provider=provider))
    path = folder / f"{bench}.dslc"
    path.write_bytes(made.artifact)
    return path, time.perf_counter() - started


def steps(bench: str, path: str, seconds: float, processor: bool) -> dict[str, Any]:
    """Times training steps of one fixed random batch in this process. ``processor``: by processor time."""
    import numpy as np

    import dslc

    rng = np.random.default_rng(1)
    batch: dict[str, Any] = {
        name: rng.integers(0, below, shape).astype(np.int32) if below else rng.standard_normal(shape).astype(np.float32)
        for name, (shape, below) in MODELS[bench][1].items()
    }
    clock = time.process_time if processor else time.perf_counter
    with dslc.load(path, weights="init") as session:
        if bench == PREDICT:
            step = functools.partial(session.predict, image=batch["image"])
        else:
            step = functools.partial(session.train_step, **batch)
        step()
        cold = time.time() - process_start()
        for _ in range(3):
            step()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            begin = clock()
            step()
            times.append(clock() - begin)
    middle = statistics.median(times)
    return {"ms_step": middle * 1e3, "ms_min": min(times) * 1e3, "cold_s": cold, "steps": len(times)}


def process_start() -> float:
    """When this process began, as ``time.time`` has it, to 10 ms."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")


def run(command: list[str], threads: int, folder: Path) -> list[dict[str, Any]]:
    """The JSON lines that a job prints. ``folder`` keeps what PyTorch compiles."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "DSLC_THREADS": str(threads)}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description="training steps on the CPU, ours and PyTorch's")
    parser.add_argument("--bench", choices=(*MODELS, POINTWISE), action="append")
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["eager", "compile"])
    parser.add_argument("--provider", default="own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--processor", action="store_true", help="processor time, for a machine with other work")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", nargs=2, metavar=("BENCH", "ARTIFACT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        bench, path = asked.job
        print(json.dumps(steps(bench, path, asked.seconds, asked.processor)))
        return
    rows: list[dict[str, Any]] = []
    for bench in asked.bench or (*MODELS, POINTWISE):
        with tempfile.TemporaryDirectory() as folder:
            for row in (regions if bench == POINTWISE else compare)(bench, Path(folder), asked):
                rows.append(row)
                if asked.json:
                    print(json.dumps(row), flush=True)
        print(f"{bench}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    if not asked.json:
        print(table(rows))


def compare(bench: str, folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of one model: a row for each who ran."""
    path, built = build(bench, folder, asked.provider)
    common = ["--seconds", str(asked.seconds), *(["--processor"] if asked.processor else [])]
    jobs = {"ours": [sys.executable, __file__, *common, "--job", bench, str(path)]}
    for mode in asked.modes if asked.torch else []:
        peer = [asked.torch, str(HERE / "peers/cpu_torch.py"), "--bench", PEERS.get(bench, bench), "--mode", mode]
        jobs[f"torch {mode}"] = [*peer, "--threads", str(asked.threads), *common]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for _ in range(asked.rounds):
        for name, command in jobs.items():
            results[name].append(run(command, asked.threads, folder)[-1])
    rows = []
    for name, found in results.items():
        each = sorted(r["ms_step"] for r in found)
        row = {
            "bench": bench, "who": name, "threads": asked.threads, "ms_step": round(statistics.median(each), 3),
            "spread": [round(each[0], 3), round(each[-1], 3)], "ms_min": round(min(r["ms_min"] for r in found), 3),
            "cold_s": round(found[0]["cold_s"], 2),
            "warm_s": round(statistics.median(r["cold_s"] for r in found[1:] or found), 2),
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
        rows.append(row if name != "ours" else {**row, "build_s": round(built, 1)})
    return rows


def regions(bench: str, folder: Path, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of ``cpu_regions.py``."""
    command = [sys.executable, str(HERE / "cpu_regions.py"), "--json", "--rounds", str(asked.rounds)]
    command += ["--threads", str(asked.threads), "--seconds", str(asked.seconds)]
    command += ["--torch", asked.torch] if asked.torch else []
    rows = []
    for line in run(command, asked.threads, folder):
        name = line.pop("bench")
        for who, (least, middle) in line.items():
            rows.append({"bench": name, "who": who, "ms_step": middle, "ms_min": least})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: milliseconds a step, median (least and greatest median of a round), and the better peer over ours."""
    names = list(dict.fromkeys(row["who"] for row in rows))
    lines = [
        f"| | {' | '.join(names)} | better of the others / ours | first step, s: {' / '.join(names)} | build, s |",
        "|" + "---|" * (len(names) + 4),
    ]
    for bench in dict.fromkeys(row["bench"] for row in rows):
        each = {row["who"]: row for row in rows if row["bench"] == bench}
        cells = [_milliseconds(each[n]) if n in each else "" for n in names]
        others = [row["ms_step"] for who, row in each.items() if who != "ours"]
        ratio = f"{min(others) / each['ours']['ms_step']:.2f}" if others and "ours" in each else ""
        first = " / ".join(_first(each[n]) for n in names if "cold_s" in each.get(n, {}))
        build_s = each.get("ours", {}).get("build_s", "")
        lines.append(f"| {bench} | {' | '.join(cells)} | {ratio} | {first} | {build_s} |")
    return "\n".join(lines)


def _milliseconds(row: dict[str, Any]) -> str:
    low, high = row.get("spread", (None, None))
    return f"{row['ms_step']:.4g}" + ("" if low is None else f" ({low:.4g} - {high:.4g})")


def _first(row: dict[str, Any]) -> str:
    cold, warm = row["cold_s"], row["warm_s"]
    return f"{cold:.2f}" if row["who"] != "torch compile" else f"{cold:.1f}, warm {warm:.1f}"


if __name__ == "__main__":
    main()
