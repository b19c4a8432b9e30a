"""Published models next to their PyTorch twins on the CPU: the same weights, outputs, gradients, time and memory.

    python benchmarks/zoo/compare.py --torch ~/torchenv/bin/python            all, as a table
    python benchmarks/zoo/compare.py --torch ... --model DLRM --json          one JSON line a model

The twin (``twins.py``) writes its weights, what it predicts from them in f64, and the gradients of one training step in
f64. Ours is built with the provider ``own``, loads the weights and makes the same step with SGD in f32. Then both make
training steps in f32 in turns, each in a process of its own, so that a slow spell of the machine hits both.

Errors are those of f32 against the f64 of the twin, ours and then the twin's own. ``output``: the largest error of a
prediction, by the largest prediction. ``gradient``: the largest norm of the error of a parameter's gradient, by its
norm plus a thousandth of the norm of all gradients. ``MiB``: the most memory of each process while it trains, above
what its imports take. ``cpu ms``: the processor's time of all threads; with ``--threads 1`` it is near the time on an
idle machine. The load of the machine is printed: numbers measured during other work are not reliable.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from entries import ENTRIES, Entry
from steps import answer, norm_errors, resident, serve

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
FAR: Final = 2.0**14  # a learning rate with which rounded weights show their gradients to the last bits
COLUMNS: Final = (
    "model", "output", "torch output", "gradient", "torch gradient", "ours ms", "torch ms", "ratio", "ours cpu ms",
    "torch cpu ms", "cpu ratio", "ours MiB", "torch MiB", "build s", "load",
)  # fmt: skip


def source(entry: Entry) -> str:
    """The model's file with the entry's train section instead of its own."""
    file, _, model = entry.file.partition(":")
    text = (ROOT / f"{file}.nn").read_text(encoding="utf-8")
    text = re.sub(r"^train .*?^}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    kinds = {"i32": "i32", "f32": ""}
    labels = ", ".join(
        f"{n}: {kinds[kind]}[{', '.join(map(str, shape))}]" for n, (shape, kind, _) in entry.labels.items()
    )
    return f"{text}\ntrain {model}({labels}) {{\n  loss = {entry.loss}\n  optimizer = sgd(lr=1e-4)\n}}\n"


def build(entry: Entry, folder: Path, provider: str) -> tuple[Path, float]:
    """The artifact's path, and the seconds of the build."""
    from dslc.compiler.check.model import check_file
    from dslc.compiler.options import Options
    from dslc.compiler.pipeline import build

    started = time.perf_counter()
    (folder / "net.nn").write_text(source(entry), encoding="utf-8")
    checked = check_file(folder / "net.nn", entry.file.partition(":")[2], entry.args)
    sizes = {"train": {dim: [size] for dim, size in entry.sizes.items()}}
    made = build(checked, Options(provider=provider, sizes={**sizes, "predict": sizes["train"]}))
    path = folder / "net.dslc"
    path.write_bytes(made.artifact)
    return path, time.perf_counter() - started


def ours(entry: Entry, folder: Path) -> None:
    """Our process: the agreement, then commands (``steps.py``)."""
    import numpy as np

    import dslc

    before = resident()
    inputs, labels = entry.drawn()
    want = np.load(folder / "prediction.npy")
    with dslc.load(folder / "net.dslc", device="cpu", weights="init") as session:
        session.weights.load(folder / "gradients.safetensors", map=entry.map)
        gradients = {n: x.copy() for n, x in session.state_tensors().items()}
        session.weights.load(folder / "weights.safetensors", map=entry.map)
        state = {n: x.copy() for n, x in session.state_tensors().items()}
        found = session.predict(**inputs)
        loss = float(session.train_step(**inputs, **labels, lr=FAR).loss)
        after = session.state_tensors()
        given = {n: (state[n].astype(np.float64) - after[n]) / FAR for n in gradients if "running_" not in n}
        errors = norm_errors(given, gradients)
        worst = max(errors, key=errors.__getitem__)
        output = float(np.abs(found - want).max() / np.abs(want).max())
        answer({"output": output, "gradient": errors[worst], "worst": worst, "loss": loss})
        session.restore(state, 0)
        del gradients, state, after, given
        serve(lambda: session.train_step(**inputs, **labels, lr=1e-4), before)


class Peer:
    """A process that answers a command with a line of JSON."""

    def __init__(self, command: list[str], threads: int) -> None:
        counts = {"OMP_NUM_THREADS": str(threads), "DSLC_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, env={**os.environ, **counts}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended with code {self.process.wait()}")
        return json.loads(line)

    def ask(self, command: str) -> Any:
        assert self.process.stdin is not None
        print(command, file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        self.process.communicate()


def compare(entry: Entry, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """One model's row."""
    twin = [asked.torch, str(HERE / "twins.py"), entry.name, str(folder), "--mode", asked.mode]
    peers = {"torch": Peer(twin, asked.threads)}
    _, built = build(entry, folder, asked.provider)
    mine = [sys.executable, __file__, "--torch", asked.torch, "--job", entry.name, str(folder)]
    peers["ours"] = Peer(mine, asked.threads)
    times: dict[str, list[tuple[float, float]]] = {who: [] for who in peers}
    for turn in range(asked.rounds + 1):
        for who, peer in peers.items():
            found = peer.ask(f"time {asked.seconds if turn else 0}")
            times[who] += found if turn else []  # the first round warms up
    theirs = {f"torch {name}": value for name, value in peers["torch"].first.items()}
    row = {"model": entry.name, **peers["ours"].first, "parameters": theirs.pop("torch parameters"), **theirs}
    row |= {"sizes": dict(entry.sizes), "threads": asked.threads, "mode": asked.mode}
    for at, unit in enumerate(("ms", "cpu ms")):
        middle = {who: statistics.median(each[at] for each in found) for who, found in times.items()}
        row |= {f"{who} {unit}": round(ms, 2) for who, ms in middle.items()}
        row |= {f"{who} least {unit}": round(min(each[at] for each in found), 2) for who, found in times.items()}
        row |= {unit.replace("ms", "ratio"): round(middle["torch"] / middle["ours"], 2)}
    row |= {f"{who} MiB": round(peer.ask("memory")) for who, peer in peers.items()}
    for peer in peers.values():
        peer.close()
    return row | {"build s": round(built, 1), "load": round(os.getloadavg()[0], 1)}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    shown = [[f"{row[c]:.1e}" if c.endswith(("output", "gradient")) else str(row[c]) for c in COLUMNS] for row in rows]
    lines = [list(COLUMNS), ["---", *["---:"] * (len(COLUMNS) - 1)], *shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="published models next to their PyTorch twins, on the CPU")
    parser.add_argument("--torch", required=True, help="a Python with torch, torchvision and transformers")
    parser.add_argument("--model", choices=[entry.name for entry in ENTRIES], action="append")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager", help="of PyTorch")
    parser.add_argument("--provider", default="own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", nargs=2, metavar=("MODEL", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    entries = {entry.name: entry for entry in ENTRIES}
    if asked.job:
        ours(entries[asked.job[0]], Path(asked.job[1]))
        return
    rows = []
    for name in asked.model or entries:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(entries[name], Path(folder), asked))
        print(json.dumps(rows[-1]) if asked.json else f"{name}: {table(rows[-1:]).splitlines()[-1]}", flush=True)
    if not asked.json:
        print(table(rows))


if __name__ == "__main__":
    main()
