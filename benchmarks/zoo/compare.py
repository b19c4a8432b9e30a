"""Published models next to their PyTorch twins: the same weights, outputs, gradients, time and memory.

    python benchmarks/zoo/compare.py --torch ~/torchenv/bin/python            all on the CPU, as a table
    python benchmarks/zoo/compare.py --torch ... --model DLRM --json          one JSON line a model
    python benchmarks/zoo/compare.py --device gpu --dtype bf16 --compile --providers vendor --together 12 \\
        --limit 560 --out results                                             on a GPU: torch.compile and a CUDA graph
    python benchmarks/zoo/compare.py --entry predict --batch 1 --batch 32 ...    predictions instead of training steps
    python benchmarks/zoo/compare.py --sizes gpu --batch 16 --only-time ...   on a CPU the sizes of papers, 16 rows
    python benchmarks/zoo/compare.py --read results/rows.jsonl --out results  the table and the chart of earlier rows

The twin (``twin.py``) writes its weights, what it predicts from them in a wider dtype (f64 on a CPU, f32 on a GPU),
and the gradients of one training step. Ours (``ours.py``) loads the weights and makes the same step. Then both make
training steps in turns, each in a process of its own, so that a slow spell of the machine hits both. ``--together N``
builds and compiles N models at once, and then measures them one at a time. ``--limit`` ends in time with the models
that are done.

With ``--entry predict`` (``predict_ours.py``, ``predict_twin.py``, and ``predict_onnx.py`` on a CPU) a call takes
arrays of the host and gives arrays of the host on all sides; ``kernels ms`` is a run on a GPU without these copies.
Texts have at most 128 tokens.

Errors are those of the asked dtype against the wider one, ours and then the twin's own. ``output``: the largest error
of a prediction, by the largest prediction. ``gradient``: the largest norm of the error of a parameter's gradient, by
its norm plus a thousandth of the norm of all gradients. ``MiB``: on a CPU the most memory of each process while it
trains, above what its imports take; on a GPU what the session's plan takes and what the driver says is gone, and of
PyTorch max_memory_allocated and memory_reserved for the captured step. ``first s``: a first step of training with all
that comes before it: ours build and load, PyTorch's compilation; it depends on ``--together``. ``cpu ms``: the
processor's time of all threads. The load of the machine is printed: numbers measured during other work are not
reliable.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chart import Row, table, write
from entries import BY_NAME, ENTRIES, Entry
from ours import arguments
from peer import Failed, Peer

HERE: Final = Path(__file__).parent
ROOM: Final = 120.0  # GiB of an H200 for the models of a wave, both sides
#: The scripts of both sides.
SIDES: Final = {"train_step": ("ours.py", "twin.py"), "predict": ("predict_ours.py", "predict_twin.py")}
Times = dict[str, list[tuple[float, float]]]
LAST: Final = 25.0  # seconds before the limit in which no further model is measured
#: The part of the time that is left in which a wave builds and compiles: a model that takes longer is not waited for.
GETTING_READY: Final = 0.6


@dataclass
class Pair:
    """A model's two processes. ``build`` and ``twin`` are what they said when they were ready."""

    entry: Entry
    folder: Path
    asked: argparse.Namespace
    peers: list[Peer] = field(default_factory=list)
    built: dict[str, Any] = field(default_factory=dict)
    twin: dict[str, Any] = field(default_factory=dict)
    theirs: Peer | None = None
    ours: Peer | None = None
    onnx: Peer | None = None
    without: dict[str, str] = field(default_factory=dict)  # why a third peer has no numbers
    late: bool = False  # it was not ready in time

    def _peer(self, command: Sequence[str | Path], log: str) -> Peer:
        counts = dict.fromkeys(("OMP_NUM_THREADS", "DSLC_THREADS"), str(self.asked.threads))
        counts["TORCHINDUCTOR_COMPILE_THREADS"] = str(max(1, self.asked.threads // self.asked.together))
        self.peers.append(Peer(command, self.folder / log, counts))
        return self.peers[-1]

    def start(self) -> None:
        """Builds ours while the twin compiles; both are ready afterwards. Raises Failed."""
        asked = self.asked
        mine, other = SIDES[asked.entry]
        job: list[str | Path] = [self.entry.name, self.folder]
        rows = ["--batch", str(self.entry.sizes.get("B", 1))]
        given = ["--device", asked.device, "--dtype", asked.dtype, *(["--only-time"] if asked.only_time else [])]
        given += ["--entry", asked.entry, "--sizes", asked.sizes or asked.device, *rows]
        extra = [f"--{name}" for name in ("compile", "freeze") if getattr(asked, name)]
        self.theirs = self._peer([asked.torch, HERE / other, *job, *given, *extra], "twin.log")
        if asked.entry == "predict" and asked.device == "cpu":
            threads = ["--threads", str(asked.threads)]
            self.onnx = self._peer([asked.torch, HERE / "predict_onnx.py", *job, *rows, *threads], "onnx.log")
        folders = {"--artifacts": asked.artifacts, "--locks": asked.locks}
        kept = [word for option, folder in folders.items() if folder for word in (option, folder)]
        given += ["--providers", asked.providers]
        building = self._peer([sys.executable, HERE / "ours.py", "build", *job, *given, *kept], "build.log")
        self.built = building.answer()
        building.close()
        if asked.only_build:
            return
        self.ours = self._peer([sys.executable, HERE / mine, "run", *job, *given], "ours.log")
        self.ours.answer()
        self.twin = self.theirs.answer()
        self._third()

    def _third(self) -> None:
        """Waits for onnxruntime; it need not know a model."""
        if self.onnx is not None:
            try:
                self.onnx.answer()
            except Failed as error:
                self.onnx, self.without = None, {"onnx error": str(error)}

    def measure(self) -> Row:
        """The row of the table: agreement, and the time of steps in turns."""
        assert self.ours is not None and self.theirs is not None
        asked, entry = self.asked, self.entry
        mine = self.ours.ask("open")
        peers = {"torch": self.theirs, "ours": self.ours}
        row: Row = {"model": entry.name, "entry": asked.entry, "device": asked.device, "dtype": asked.dtype}
        row |= {"compile": asked.compile, "freeze": asked.freeze}
        row |= {"providers": asked.providers, "threads": asked.threads, "sizes": dict(entry.sizes)}
        row |= {"ours first s": round(self.built["build s"] + mine.pop("loaded s") + mine.pop("step s"), 1)}
        row |= {"build s": self.built["build s"], "torch first s": round(self.twin["step s"], 1)}
        row |= mine | {"parameters": self.twin["parameters"]} | self.without
        row |= {f"torch {k}": self.twin[k] for k in ("output", "gradient", "loss") if k in self.twin}
        if self.onnx is not None and not asked.only_time:
            row["onnx output"] = self.onnx.ask("open")["output"]
        others = {} if self.onnx is None else {"onnx": self.onnx}
        row |= compared(self._turns(peers | others, "time"), ("ms", "cpu ms"))
        if asked.entry == "predict" and asked.device == "gpu":
            row |= compared(self._turns(peers, "kernels"), ("kernels ms",))
        for who, peer in peers.items():
            row |= {f"{who} {unit}": n for unit, n in peer.ask("memory").items()}
        return row | {"load": round(os.getloadavg()[0], 1)}

    def _turns(self, peers: Mapping[str, Peer], command: str) -> Times:
        """What each peer answered, round by round; the first round warms up."""
        times: Times = {who: [] for who in peers}
        for turn in range(self.asked.rounds + 1):
            for who, peer in peers.items():
                found = peer.ask(command, self.asked.seconds if turn else 0)
                times[who] += found if turn else []
        return times

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


def compared(times: Times, units: Sequence[str]) -> Row:
    """The median and the least of each peer, and the ratios to ours; ``units`` are those of the pairs of numbers."""
    row: Row = {}
    for at, unit in enumerate(units):
        middle = {who: statistics.median(each[at] for each in found) for who, found in times.items()}
        row |= {f"{who} {unit}": round(ms, 4) for who, ms in middle.items()}
        row |= {f"{who} least {unit}": round(min(each[at] for each in found), 4) for who, found in times.items()}
        for who in middle.keys() - {"ours"}:
            name = unit.replace("ms", "ratio") if who == "torch" else f"{who} {unit.replace('ms', 'ratio')}"
            row[name] = round(middle[who] / max(middle["ours"], 1e-9), 3)
    return row


def waves(entries: Sequence[Entry], together: int, room: float = ROOM) -> Iterator[list[Entry]]:
    """The entries in their order, as many at once as asked and as ``room`` GiB of a GPU's memory hold."""
    wave: list[Entry] = []
    for entry in entries:
        if wave and (len(wave) == together or sum(2 * e.gib for e in [*wave, entry]) > room):
            yield wave
            wave = []
        wave.append(entry)
    if wave:
        yield wave


def compare(entries: Sequence[Entry], asked: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """A row for each model, as they come; ``error`` says why a model has no numbers. Nothing runs after the limit."""
    end = time.monotonic() + (asked.limit or 1e9)
    for number, wave in enumerate(waves(entries, asked.together, asked.room)):
        pairs: list[Pair] = []
        for entry in wave:
            own = folder / f"{number}-{len(pairs)}"
            own.mkdir()
            pairs.append(Pair(entry, own, asked))
        threads = ThreadPoolExecutor(len(pairs))
        started: list[Future[None]] = [threads.submit(pair.start) for pair in pairs]
        try:
            wait(started, timeout=max(0.0, GETTING_READY * (end - LAST - time.monotonic())))
            for pair, begun in zip(pairs, started, strict=True):  # those that are late no longer disturb
                if not begun.done():
                    pair.late = True
                    pair.close()
            for pair, begun in zip(pairs, started, strict=True):
                yield outcome(pair, begun, end)
                pair.close()
        finally:
            for pair in pairs:
                pair.close()
            threads.shutdown(cancel_futures=True)


def outcome(pair: Pair, started: Future[None], end: float) -> Row:
    """The row of a pair that has been started."""
    row: Row = {"model": pair.entry.name, "device": pair.asked.device, "dtype": pair.asked.dtype}
    row |= {"sizes": dict(pair.entry.sizes)}
    late = time.monotonic() > end - LAST
    try:
        started.result(timeout=1)
        if pair.asked.only_build:
            return row | pair.built
        return row | {"error": "no time was left to measure it"} if late else pair.measure()
    except (Failed, TimeoutError, OSError, ValueError) as error:
        said = "it was not ready in time" if late or pair.late else f"{error or type(error).__name__}"
        return row | {"error": said}


def shown(row: Row) -> str:
    """A line for the terminal."""
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    if "ratio" not in row:
        return f"{row['model']}: built in {row['build s']} s"
    errors = "".join(f"  {k} {row[k]:.1e} ({row['torch ' + k]:.1e})" for k in ("output", "gradient") if k in row)
    rest = "".join(f"  {name} {row[name]:.2f}" for name in ("kernels ratio", "onnx ratio") if name in row)
    times = f"{row['ours ms']} ms, torch {row['torch ms']} ms, ratio {row['ratio']:.2f}"
    return f"{row['model']} {row['sizes']}: {times}{rest}{errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description="published models next to their PyTorch twins")
    arguments(parser)
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch, torchvision and transformers")
    parser.add_argument("--model", choices=list(BY_NAME), action="append")
    parser.add_argument("--part", help="2/3: the second third of the models")
    parser.add_argument("--batch", type=int, action="append", help="rows; of a prediction 1; repeatable")
    parser.add_argument("--freeze", action="store_true", help="torch.compile makes weights constants, for predictions")
    parser.add_argument("--compile", action="store_true", help="torch.compile, instead of eager")
    parser.add_argument("--together", type=int, default=1, help="so many models are built and compiled at once")
    parser.add_argument("--room", type=float, default=ROOM, metavar="GIB", help="memory of the GPU for models at once")
    parser.add_argument("--limit", type=float, help="seconds after which it ends, with what is done")
    parser.add_argument("--only-build", action="store_true", help="fill --artifacts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, help="of each side and round: 1, on a GPU 0.3")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder for rows.jsonl, table.md, chart.svg and chart.html")
    parser.add_argument("--read", type=Path, action="append", help="rows of earlier comparisons instead of new ones")
    asked = parser.parse_args()
    asked.seconds = asked.seconds if asked.seconds is not None else 0.3 if asked.device == "gpu" else 1.0
    rows = [json.loads(line) for path in asked.read or () for line in path.read_text().splitlines()]
    entries = [BY_NAME[name] for name in asked.model] if asked.model else list(ENTRIES)
    entries = [entry.on(asked.sizes or asked.device) for entry in entries]
    batches = asked.batch or ([1] if asked.entry == "predict" else [])
    if batches:
        entries = [
            e.predicting(b) if asked.entry == "predict" else e.of(B=b)
            for b in batches for e in entries if "B" in e.sizes or b == batches[0]
        ]  # fmt: skip
    if asked.part:
        part, of = map(int, asked.part.split("/"))
        entries = entries[part - 1 :: of]
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in () if asked.read else compare(entries, asked, Path(folder)):
            rows.append(row)
            print(json.dumps(row) if asked.json else shown(row), flush=True)
            if asked.out:
                with (asked.out / "rows.jsonl").open("a", encoding="utf-8") as file:
                    print(json.dumps(row), file=file)
    measured = [row for row in rows if "ratio" in row]
    if asked.out and measured:
        write(asked.out, measured)
    if not asked.json and measured:
        print(table(measured))


if __name__ == "__main__":
    main()
