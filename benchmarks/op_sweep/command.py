"""Times every function of the language next to PyTorch's operation: each case forward and with its gradients.

    python benchmarks/op_sweep --torch ~/torchenv/bin/python                     all cases on the CPU, as a table
    python benchmarks/op_sweep --device gpu --quick --limit 500 --out rows.jsonl some 400 cases on a GPU
    python benchmarks/op_sweep --report rows.jsonl                               the cases that are slow, by reason
    python benchmarks/op_sweep --device gpu --sizes drawn-7-40                   40 functions, sizes drawn by seed 7

Each side is a process. Ours runs the plan of a model that consists of the call, with the passes and kernels of any
build; PyTorch's calls the op, without a compiler. They are timed in turns, and each row holds the median and the least
time of both. ``ratio`` is the least time of PyTorch's by ours. ``roof`` is the share of the roof that we reach: the
time to move inputs and results once, or to do the arithmetic of products, at the rates of the device's model
(``compiler/codegen/device_model.py``), by our least time. ``error`` is the largest difference of the results by the
largest result. ``work`` is planned memory besides inputs and results.

On a GPU each side launches a CUDA graph of its calls on several sets of buffers, after other data has filled the
second-level cache. On a CPU both use as many threads; with ``--threads 1`` both are
timed by the processor's time, so other work on the machine disturbs them less. With ``--out`` rows are appended to a
file, and a later call goes on after them; ``--limit`` ends the timing in time for that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_sweep.builds import Builds
from op_sweep.case import runs
from op_sweep.drawn import cases_of, checked
from op_sweep.measure import Sides
from op_sweep.report import report, table

if TYPE_CHECKING:
    from op_sweep.case import Run

_DTYPES = {"cpu": "f32,f64", "gpu": "bf16,f32"}


def parsed(words: list[str] | None) -> argparse.Namespace:
    """The arguments of the command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "op_sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch and torchvision")
    parser.add_argument("--device", choices=tuple(_DTYPES), default="cpu")
    parser.add_argument("--target", default=None, help="the GPU's target (default: sm_90)")
    parser.add_argument("--provider", choices=("own", "auto", "vendor"), default="own")
    parser.add_argument("--dtype", help="f32, f64, bf16, f16, with commas between")
    parser.add_argument("--only", default="", metavar="FUNCTION", help="these functions, with commas between")
    parser.add_argument("--shape", default="", help="shapes and layouts that contain this text")
    parser.add_argument("--cases", type=Path, metavar="FILE", help="cases whose names begin with a line of this file")
    parser.add_argument("--quick", action="store_true", help="two shapes of each function, in the first dtype")
    parser.add_argument(
        "--sizes",
        type=checked,
        help="the scale of the shapes: gpu, cpu or test (default: the device's); or drawn-SEED-COUNT: "
        "so many functions with drawn sizes",
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=0.02, help="of one turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both sides on the CPU")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="builds at once")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="end after so long")
    parser.add_argument("--out", type=Path, help="append the rows to this file, and leave out those that it has")
    parser.add_argument("--json", action="store_true", help="print a row as a line of JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="no measurement: the slow cases of a file's rows")
    return parser.parse_args(words)


def wanted(asked: argparse.Namespace) -> list[Run]:
    """The runs that the arguments select."""
    dtypes = (asked.dtype or _DTYPES[asked.device]).split(",")
    found = list(runs(cases_of(asked.sizes or asked.device), dtypes))
    only = {name for name in asked.only.split(",") if name}
    unknown = only - {run.case.function for run in found}
    if unknown:
        raise SystemExit(
            f"no cases of {', '.join(sorted(unknown))}; functions: {sorted({r.case.function for r in found})}"
        )
    lines = [""] if asked.cases is None else asked.cases.read_text(encoding="utf-8").splitlines()
    begins = tuple(line for line in lines if line.strip() or asked.cases is None)
    return [
        run for run in found
        if run.name.startswith(begins) and (not only or run.case.function in only) and (run.quick or not asked.quick)
        and asked.shape in f"{run.case.shape} {run.case.layout}"
    ]  # fmt: skip


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of lines of JSON."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main(words: list[str] | None = None) -> int:
    """The command; 1 if a case failed or its results differ."""
    asked = parsed(words)
    if asked.report is not None:
        print(report(read_rows(asked.report)))
        return 0
    done = read_rows(asked.out) if asked.out is not None and asked.out.exists() else []
    known = {row["case"] for row in done}
    todo = [run for run in wanted(asked) if run.name not in known]
    begun, rows = time.monotonic(), []
    target = "cpu" if asked.device == "cpu" else asked.target or "sm_90"
    with tempfile.TemporaryDirectory(prefix="op-sweep-") as folder:
        job = (asked.sizes or asked.device, target, asked.provider, folder)
        with Builds(todo, job, asked.jobs) as builds, Sides(asked, folder) as sides:
            if asked.device == "cpu":
                builds.wait(_left(asked, begun), _progress)  # a build would disturb the times
            for number, run in enumerate(todo):
                path, why = builds.get(run, _left(asked, begun))
                if _left(asked, begun) <= 0:
                    print(f"the limit of {asked.limit:g} s: {len(todo) - number} cases are left", file=sys.stderr)
                    break
                rows.append(sides.row(run, path, why))
                _keep(rows[-1], asked)
                _progress("timed", number + 1, len(todo))
    if not asked.json:
        print(table(rows))
    return int(any("failed" in row or not row.get("right", True) for row in rows))


def _left(asked: argparse.Namespace, begun: float) -> float:
    return float(asked.limit) - (time.monotonic() - begun)


def _keep(row: dict[str, Any], asked: argparse.Namespace) -> None:
    text = json.dumps(row)
    if asked.out is not None:
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    if asked.json:
        print(text, flush=True)


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{what} {done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)
