"""Variants of a training step that differ in what they compute again: built side by side, compared in turns."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dslc.compiler.ops.registry import meanings
from dslc.runtime.session import measure
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session


@dataclass(frozen=True)
class Variant:
    """An artifact; the bytes of state, io and work of its step; how many nodes compute something again, and what part
    of the step's modelled time that adds."""

    path: Path
    bytes: int
    again: int
    share: float


class Builder:
    """``dslc build`` in processes of their own, all at once: most of a build runs on one core."""

    def __init__(self, folder: Path, given: Sequence[str]) -> None:
        """``given``: options that all variants share."""
        self._folder, self._given = folder, given
        self._pool = ThreadPoolExecutor()
        self._count = 0

    def start(self, model: str, mirror: str) -> Future[Variant]:
        self._count += 1
        return self._pool.submit(self._built, model, mirror, f"v{self._count}")

    def _built(self, model: str, mirror: str, name: str) -> Variant:
        asked = [model, "--mirror", mirror, "--name", name, "-o", str(self._folder), "--json", *self._given]
        made = subprocess.run([sys.executable, "-m", "dslc", "build", *asked], capture_output=True, text=True)
        if made.returncode:
            raise SystemExit(f"{model} with --mirror {mirror}: {made.stdout}{made.stderr}")
        facts = json.loads(made.stdout)
        step = next(p for p in facts["programs"] if p["entry"] == "train_step")
        planned = facts["state_bytes"] + step["io_bytes"] + step["work_bytes"]
        said = step["mirrored"]
        share = said["seconds_after"] / said["seconds_before"] - 1 if said else 0.0
        return Variant(Path(facts["path"]), planned, said["nodes"] if said else 0, share)


def compared(variants: Mapping[str, Variant], device: str, turns: int, steps: int) -> dict[str, tuple[float, bool]]:
    """Seconds of a step, the least of the turns, and whether losses and all tensors after five steps have the bits of
    the first variant."""
    sessions: dict[str, Session] = {
        name: load(variant.path, device=device, weights="init", seed=1, meanings=meanings())
        for name, variant in variants.items()
    }
    first = next(iter(sessions.values()))
    inputs: dict[str, Any] = measure.random_inputs(first, measure.program_of(first, "train_step", {}))
    losses = {n: [float(s.train_step(**inputs).loss) for _ in range(5)] for n, s in sessions.items()}
    base, *others = sessions
    plain = {n: v.tobytes() for n, v in sessions[base].state_tensors().items()}
    same = {base: True}
    for name in others:
        state = sessions[name].state_tensors()
        same[name] = losses[name] == losses[base] and all(state[n].tobytes() == plain[n] for n in plain)
    least = dict.fromkeys(sessions, float("inf"))
    for _ in range(turns):
        for name, session in sessions.items():
            start = time.perf_counter()
            for _ in range(steps):
                result = session.train_step(**inputs)
            float(result.loss)
            least[name] = min(least[name], (time.perf_counter() - start) / steps)
    for session in sessions.values():
        session.close()
    return {name: (least[name], same[name]) for name in sessions}
