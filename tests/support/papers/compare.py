"""The papers next to PyTorch, in f32 and in 16 bits: outputs and gradients of one step, on the CPU or a GPU.

    PYTHONPATH=tests/support python -m papers.compare --torch ~/torchenv/bin/python                        on the CPU
    PYTHONPATH=tests/support python -m papers.compare --torch ... --device gpu --json                      on a GPU
    PYTHONPATH=tests/support python -m papers.compare --torch ... --device gpu --dtypes f32,bf16,f16

Errors are against PyTorch in f64: ours, and then PyTorch's own in f32, or in bf16 or f16 under ``torch.autocast``.
``output``: the norm of the difference by the norm, of the worst output. ``gradient``: of the worst parameter, by its
norm plus a thousandth of that of all gradients. ``median``: of the middle parameter. ``times`` is the greatest of ours
by PyTorch's, where ours is more than rounding (``FLOORS``); rows above ``MOST`` are marked and make the exit status 1.

All artifacts are built first, one on each core, while PyTorch computes. With ``--folder`` they stay, and what is there
is not built again: build with ``--device gpu --target sm_90 --build`` where no GPU is, and run where one is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import DslcError
from papers.cases import FOLDER, PAPERS, given, parameter

SUPPORT: Final = Path(__file__).resolve().parents[1]
RATE: Final = 2.0**14  # a learning rate with which rounded parameters show their gradients to the last bits
#: Errors that rounding alone makes in these small models: a multiple of the unit roundoff.
FLOORS: Final = {"f32": 3e-5, "bf16": 3e-2, "f16": 4e-3}
MOST: Final = 3.0
COLUMNS: Final = (
    "paper", "dtype", "output", "torch output", "loss", "torch loss", "gradient", "torch gradient", "worst", "median",
    "torch median", "times",
)  # fmt: skip

Arrays = Mapping[str, NDArray[Any]]


def pinned(core: int) -> None:
    """Keeps this process, and the compilers that it starts, on one core."""
    os.sched_setaffinity(0, {core})


def file_of(folder: Path, paper: str, dtype: str, end: str) -> Path:
    return folder / f"{paper.replace('/', '-')}.{dtype}.{end}"


def build_one(paper: str, dtype: str, target: str, providers: str, path: Path) -> float:
    """Writes the artifact; returns the seconds that it took."""
    from dslc.compiler.check.model import check_file
    from dslc.compiler.codegen.cpu.levels import ALL, LEVELS
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build
    from dslc.runtime.cpu.levels import machine_level

    begin = time.perf_counter()
    checked = check_file(FOLDER / f"{paper}.nn")
    sizes = {dim.name: (dim.default,) for dim in checked.dims}
    each = {family: sizes for family in ("train", "eval", "predict")}
    level = machine_level(LEVELS) if target == "cpu" and providers != "reference" else ALL
    options = Options(target=target, precision=dtype, provider=providers, sizes=each, level=level)
    made = build(checked, options)
    path.with_suffix(".part").write_bytes(made.artifact)
    path.with_suffix(".part").replace(path)
    return time.perf_counter() - begin


def build_all(asked: argparse.Namespace, folder: Path) -> None:
    """The artifacts that are not in the folder yet, one on each core."""
    target = asked.target or ("cpu" if asked.device == "cpu" else architecture())
    wanted = [(p, d, file_of(folder, p, d, "dslc")) for p in asked.papers for d in asked.dtypes]
    wanted = [each for each in wanted if not each[2].exists()]
    cores = sorted(os.sched_getaffinity(0))[: asked.jobs]
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for core in cores:
        free.put(core)
    with ProcessPoolExecutor(len(cores), context, initializer=_take_core, initargs=(free,)) as pool:
        running = {pool.submit(build_one, p, d, target, asked.providers, path): (p, d) for p, d, path in wanted}
        for count, job in enumerate(as_completed(running), 1):
            paper, dtype = running[job]
            error = job.exception()  # of one build: its row says that the artifact is missing
            outcome = f"{job.result():.1f} s" if error is None else f"{type(error).__name__}: {error}"
            say(f"built {count}/{len(wanted)}: {paper} in {dtype}, {outcome}")


def _take_core(free: Any) -> None:
    pinned(free.get())


def architecture() -> str:
    """The target of this machine's GPU."""
    from real_gpu.launcher import Gpu

    return Gpu().architecture


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ours(paper: str, shapes: Mapping[str, Any], artifact: Path, device: str) -> dict[str, NDArray[Any]]:
    """Outputs, loss and gradients as ``papers.autocast`` writes them."""
    import dslc
    from dslc.runtime.artifact.dtypes import numpy_dtype

    with dslc.load(artifact, device=device, weights="init") as session:
        state = {
            n: parameter(paper, n, x.shape).astype(x.dtype) if n in shapes["state"] else x
            for n, x in session.state_tensors().items()
        }
        session.restore(state, 0)
        interface = session.artifact.header["interface"]
        dtypes = {port["name"]: port["dtype"] for port in (*interface["inputs"], *interface["train"]["inputs"])}
        x, y = (
            {n: given(paper, n, size, ints).astype(numpy_dtype(dtypes[n])) for n, (size, ints) in shapes[each].items()}
            for each in ("inputs", "labels")
        )
        predicted = session.predict(**x)
        found = {f"output {i}": o for i, o in enumerate(predicted if isinstance(predicted, tuple) else (predicted,))}
        result = session.train_step(**x, **y, lr=RATE)
        assert not result.skipped, "the loss scale skipped the step"
        after = session.state_tensors()
    found["loss"] = np.asarray(result.loss)
    return found | {f"gradient {n}": (state[n].astype(np.float64) - after[n]) / RATE for n in shapes["state"]}


def errors(found: Arrays, wanted: Arrays) -> dict[str, Any]:
    """Of one run: ``output``, ``loss``, ``gradient`` with ``worst``, and ``median``."""
    outputs = {n: wanted[n] for n in wanted if n.startswith("output")}
    slopes = {n: wanted[n] for n in wanted if n.startswith("gradient")}
    least = 1e-3 * float(np.sqrt(sum(float(np.sum(x**2)) for x in slopes.values())))
    apart = {n: float(np.linalg.norm(found[n] - x)) / (float(np.linalg.norm(x)) + least) for n, x in slopes.items()}
    apart = {n: error if np.isfinite(error) else float("inf") for n, error in apart.items()}
    worst = max(apart, key=apart.__getitem__)
    return {
        "output": max(float(np.linalg.norm(found[n] - x) / np.linalg.norm(x)) for n, x in outputs.items()),
        "loss": float(np.abs(found["loss"] - wanted["loss"]) / np.abs(wanted["loss"])),
        "gradient": apart[worst],
        "worst": worst.removeprefix("gradient "),
        "median": statistics.median(apart.values()),
    }


def row(paper: str, dtype: str, mine: Arrays, theirs: Arrays, wanted: Arrays) -> dict[str, Any]:
    """The errors of both, and how many times those of PyTorch ours are at most."""
    own, peer = errors(mine, wanted), errors(theirs, wanted)
    floor = FLOORS[dtype]
    times = [own[n] / max(peer[n], floor) for n in ("output", "loss", "gradient", "median")]
    times = [t if np.isfinite(t) else float("inf") for t in times]
    found = {"paper": paper, "dtype": dtype, **own, **{f"torch {n}": value for n, value in peer.items()}}
    return found | {"times": max(times), "passed": max(times) <= MOST}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [list(COLUMNS), ["---"] * 2 + ["---:"] * (len(COLUMNS) - 2)]
    for each in rows:
        if "failed" in each:
            lines.append([each["paper"], each["dtype"], each["failed"], *[""] * (len(COLUMNS) - 4), "!"])
            continue
        shown = [f"{v:.1e}" if isinstance(v := each[c], float) and c != "times" else str(v) for c in COLUMNS[:-1]]
        lines.append([*shown, f"{each['times']:.2f}" + ("" if each["passed"] else " !")])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def compared(asked: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each paper and dtype, as soon as it is there."""
    from papers.shapes import shapes

    known = {paper: shapes(paper) for paper in asked.papers}
    (folder / "shapes.json").write_text(json.dumps(known), encoding="utf-8")
    command = [
        asked.torch, "-m", "papers.autocast", str(folder), "--device", "cpu" if asked.device == "cpu" else "cuda",
        "--dtypes", ",".join(d for d in asked.dtypes if d != "f32"), "--papers", ",".join(asked.papers),
    ]  # fmt: skip
    peer = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SUPPORT)}, stdout=subprocess.DEVNULL)
    try:
        build_all(asked, folder)
        peer.wait()  # its own lines say which papers failed; their rows say that the arrays are missing
    finally:
        peer.kill()
        peer.wait()
    for paper in asked.papers:
        for dtype in asked.dtypes:
            try:
                wanted = dict(np.load(file_of(folder, paper, "f64", "npz"), allow_pickle=False))
                theirs = dict(np.load(file_of(folder, paper, dtype, "npz"), allow_pickle=False))
                mine = ours(paper, known[paper], file_of(folder, paper, dtype, "dslc"), asked.device)
                yield row(paper, dtype, mine, theirs, wanted)
            except (OSError, DslcError, AssertionError) as error:  # the other papers are compared all the same
                yield {"paper": paper, "dtype": dtype, "passed": False, "failed": f"{type(error).__name__}: {error}"}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="the papers next to PyTorch in f32 and in 16 bits")
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--target", help="of the build; that of the device by default")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["f32", "bf16"])
    parser.add_argument("--papers", type=lambda text: text.split(","), default=list(PAPERS))
    parser.add_argument("--providers", default="auto")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="builds at a time")
    parser.add_argument("--folder", type=Path, help="keeps artifacts and arrays there")
    parser.add_argument("--build", action="store_true", help="only build")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if asked.build:
            build_all(asked, folder)
            return 0
        rows = []
        for found in compared(asked, folder):
            rows.append(found)
            if asked.json:
                print(json.dumps(found), flush=True)
    if not asked.json:
        print(table(rows))
    wrong = [f"{each['paper']} in {each['dtype']}" for each in rows if not each["passed"]]
    say(f"{len(rows) - len(wrong)} of {len(rows)} are as near as PyTorch's" + "".join(f"; not {w}" for w in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
