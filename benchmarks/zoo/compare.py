"""Published models next to their PyTorch twins: the same weights, outputs, gradients, time and memory.

    python benchmarks/zoo/compare.py --torch ~/torchenv/bin/python            all on the CPU, as a table
    python benchmarks/zoo/compare.py --torch ... --model DLRM --json          one JSON line a model
    python benchmarks/zoo/compare.py --device gpu --dtype bf16 --compile --providers vendor --together 12 \\
        --limit 560 --out results                                             on a GPU: torch.compile and a CUDA graph
    python benchmarks/zoo/compare.py --read results/rows.jsonl --out results  the table and the chart of earlier rows

The twin (``twin.py``) writes its weights, what it predicts from them in a wider dtype (f64 on a CPU, f32 on a GPU),
and the gradients of one training step. Ours (``ours.py``) loads the weights and makes the same step. Then both make
training steps in turns, each in a process of its own, so that a slow spell of the machine hits both. ``--together N``
builds and compiles N models at once, and then measures them one at a time. ``--limit`` ends in time with the models
that are done.

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
from collections.abc import Iterator, Sequence
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
LAST: Final = 25.0  # seconds before the limit in which no further model is measured


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

    def _peer(self, command: Sequence[str | Path], log: str) -> Peer:
        counts = dict.fromkeys(("OMP_NUM_THREADS", "DSLC_THREADS"), str(self.asked.threads))
        counts["TORCHINDUCTOR_COMPILE_THREADS"] = str(max(1, self.asked.threads // self.asked.together))
        self.peers.append(Peer(command, self.folder / log, counts))
        return self.peers[-1]

    def start(self) -> None:
        """Builds ours while the twin compiles; both are ready afterwards. Raises Failed."""
        asked = self.asked
        given = ["--device", asked.device, "--dtype", asked.dtype, *(["--only-time"] if asked.only_time else [])]
        twin: list[str | Path] = [asked.torch, HERE / "twin.py", self.entry.name, self.folder, *given]
        self.theirs = self._peer([*twin, *(["--compile"] if asked.compile else [])], "twin.log")
        folders = {"--artifacts": asked.artifacts, "--locks": asked.locks}
        kept = [word for option, folder in folders.items() if folder for word in (option, folder)]
        mine: list[str | Path] = [sys.executable, HERE / "ours.py"]
        job = [self.entry.name, self.folder, *given, "--providers", asked.providers]
        building = self._peer([*mine, "build", *job, *kept], "build.log")
        self.built = building.answer()
        building.close()
        if asked.only_build:
            return
        self.ours = self._peer([*mine, "run", *job], "ours.log")
        self.ours.answer()
        self.twin = self.theirs.answer()

    def measure(self) -> Row:
        """The row of the table: agreement, and the time of steps in turns."""
        assert self.ours is not None and self.theirs is not None
        asked, entry = self.asked, self.entry
        mine = self.ours.ask("open")
        peers = {"torch": self.theirs, "ours": self.ours}
        times: dict[str, list[tuple[float, float]]] = {who: [] for who in peers}
        for turn in range(asked.rounds + 1):
            for who, peer in peers.items():
                found = peer.ask("time", asked.seconds if turn else 0)
                times[who] += found if turn else []  # the first round warms up
        row: Row = {"model": entry.name, "device": asked.device, "dtype": asked.dtype, "compile": asked.compile}
        row |= {"providers": asked.providers, "threads": asked.threads, "sizes": dict(entry.sizes)}
        row |= {"ours first s": round(self.built["build s"] + mine.pop("loaded s") + mine.pop("step s"), 1)}
        row |= {"build s": self.built["build s"], "torch first s": round(self.twin["step s"], 1)}
        row |= mine | {"parameters": self.twin["parameters"]}
        row |= {f"torch {k}": self.twin[k] for k in ("output", "gradient", "loss") if k in self.twin}
        for at, unit in enumerate(("ms", "cpu ms")):
            middle = {who: statistics.median(each[at] for each in found) for who, found in times.items()}
            row |= {f"{who} {unit}": round(ms, 3) for who, ms in middle.items()}
            row |= {f"{who} least {unit}": round(min(each[at] for each in found), 3) for who, found in times.items()}
            row |= {unit.replace("ms", "ratio"): round(middle["torch"] / max(middle["ours"], 1e-9), 3)}
        for who, peer in peers.items():
            row |= {f"{who} {unit}": n for unit, n in peer.ask("memory").items()}
        return row | {"load": round(os.getloadavg()[0], 1)}

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


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
            pairs.append(Pair(entry.on(asked.device), own, asked))
        threads = ThreadPoolExecutor(len(pairs))
        started: dict[str, Future[None]] = {pair.entry.name: threads.submit(pair.start) for pair in pairs}
        try:
            wait(started.values(), timeout=max(0.0, end - LAST - time.monotonic()))
            for pair in pairs:  # those that are late no longer disturb
                if not started[pair.entry.name].done():
                    pair.close()
            for pair in pairs:
                yield outcome(pair, started[pair.entry.name], end)
                pair.close()
        finally:
            for pair in pairs:
                pair.close()
            threads.shutdown(cancel_futures=True)


def outcome(pair: Pair, started: Future[None], end: float) -> Row:
    """The row of a pair that has been started."""
    row: Row = {"model": pair.entry.name, "device": pair.asked.device, "dtype": pair.asked.dtype}
    late = time.monotonic() > end - LAST
    try:
        started.result(timeout=1)
        if pair.asked.only_build:
            return row | pair.built
        return row | {"error": "no time was left to measure it"} if late else pair.measure()
    except (Failed, TimeoutError, OSError, ValueError) as error:
        return row | {"error": "it was not ready in time" if late else f"{error or type(error).__name__}"}


def shown(row: Row) -> str:
    """A line for the terminal."""
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    if "ratio" not in row:
        return f"{row['model']}: built in {row['build s']} s"
    errors = "".join(f"  {k} {row[k]:.1e} ({row['torch ' + k]:.1e})" for k in ("output", "gradient") if k in row)
    return f"{row['model']}: {row['ours ms']} ms, torch {row['torch ms']} ms, ratio {row['ratio']:.2f}{errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description="published models next to their PyTorch twins")
    arguments(parser)
    parser.add_argument("--torch", default=sys.executable, help="a Python with torch, torchvision and transformers")
    parser.add_argument("--model", choices=list(BY_NAME), action="append")
    parser.add_argument("--part", help="2/3: the second third of the models")
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
