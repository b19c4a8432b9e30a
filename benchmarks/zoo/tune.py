"""Tunes models of the comparison on a GPU, and shows what that does to their training steps.

    python benchmarks/zoo/tune.py --locks LOCKS --model "MoE top-2" --model "GPT-2 124M" --budget 60s

For each model: `dslc tune` writes LOCKS/NAME.lock, or goes on with it; then artifacts without and with the lock are
timed in turns by `dslc bench`. ``compare.py --locks LOCKS`` compares the tuned model with its twin.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from entries import BY_NAME, Entry
from ours import arguments, build, in_file_names, source


def dslc(*words: str | Path, folder: Path) -> dict[str, Any]:
    """What a command says as data. CalledProcessError if it fails, which shows its error."""
    command = [sys.executable, "-m", "dslc", *map(str, words), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout)
    return found


def tuned(entry: Entry, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Tunes a model in a folder, with the lock of ``--locks`` if there is one, which is written back."""
    (folder / "net.nn").write_text(source(entry), encoding="utf-8")
    kept, lock = asked.locks / f"{in_file_names(entry.name)}.lock", folder / "dslc.lock"
    if kept.exists():
        shutil.copyfile(kept, lock)
    given = ["--precision", asked.dtype, "--providers", asked.providers, "--mode", asked.mode]
    given += [word for name, value in entry.arguments().items() for word in ("-D", f"{name}={value}")]
    for family in ("train", "predict"):
        given += [word for dim, size in entry.dims().items() for word in ("--size", f"{family}:{dim}={size}")]
    found = dslc("tune", f"net.nn:{entry.file.partition(':')[2]}", *given, "--budget", asked.budget, folder=folder)
    asked.locks.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(lock, kept)
    lock.unlink()
    return found


def times(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """The milliseconds of a step in each round, without and with the lock."""
    found: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        for each, name in zip(found, ("plain", "tuned"), strict=True):
            said = dslc("bench", folder / f"{name}.dslc", "--seconds", "0.5", "--trust", folder=folder)
            each.append(1000 * said["step"]["median"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="models of the comparison, before and after `dslc tune`")
    arguments(parser)
    parser.add_argument("--model", choices=list(BY_NAME), action="append", required=True)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--mode", choices=("limited", "fastest"), default="limited")
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(device="gpu", dtype="bf16", providers="vendor", locks=Path("locks"))
    asked = parser.parse_args()
    asked.locks = asked.locks.resolve()
    for name in asked.model:
        entry = BY_NAME[name].on("gpu")
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            found = tuned(entry, folder, asked)
            for kind, locks in (("plain", None), ("tuned", asked.locks)):
                build(entry, folder, argparse.Namespace(**{**vars(asked), "locks": locks}))
                (folder / "net.dslc").rename(folder / f"{kind}.dslc")
            plain, better = (statistics.median(each) for each in times(folder, asked.rounds))
        row = {"model": name, "plain ms": round(plain, 3), "tuned ms": round(better, 3)}
        row |= {key: found[key] for key in ("problems", "measured", "found", "seconds", "step")}
        row |= {"left": len(found["left"]), "refused": found["refused"], "rejected": found["rejected"]}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
