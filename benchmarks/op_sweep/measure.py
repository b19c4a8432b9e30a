"""The two processes of a sweep, and the row of a case that they give in turns."""

from __future__ import annotations

import os
import statistics
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from op_sweep.peer import Failed, Peer

if TYPE_CHECKING:
    import argparse

    from op_sweep.case import Run

_HERE: Final = Path(__file__).parent
#: The largest difference by the largest result: some hundred roundings, of sums that are long or cancel more.
TOLERANCES: Final = {"f64": 1e-6, "f32": 2e-3, "bf16": 0.05, "f16": 0.01}


class Sides:
    """Both processes, in ``with sides:``."""

    def __init__(self, asked: argparse.Namespace, folder: str) -> None:
        self._asked, self._folder = asked, Path(folder)

    def __enter__(self) -> Self:
        asked = self._asked
        threads = {"OMP_NUM_THREADS": str(asked.threads), "DSLC_THREADS": str(asked.threads)}
        words = [asked.device, asked.sizes or asked.device]
        self._peers = {
            "ours": Peer([sys.executable, str(_HERE / "ours.py"), *words], threads),
            "torch": Peer([asked.torch, str(_HERE / "theirs.py"), *words], threads),
        }
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers.values():
            peer.close()

    def row(self, run: Run, path: str, why: str) -> dict[str, Any]:
        """The row of a case: times in microseconds, memory in bytes."""
        case = run.case
        shape = [list(x.shape) for x in case.inputs.values()]
        row: dict[str, Any] = {
            "case": run.name, "function": case.function, "shape": case.shape, "layout": case.layout,
            "dtype": run.dtype, "direction": run.direction, "sizes": shape, "quick": run.quick,
        }  # fmt: skip
        try:
            if why:
                raise Failed(f"build: {why}")
            return row | self._measured(run, path)
        except Failed as error:
            return row | {"failed": str(error)}
        finally:
            for peer in self._peers.values():
                with suppress(Failed):  # then it is a new process, which holds nothing
                    peer.ask({"do": "close"})

    def _measured(self, run: Run, path: str) -> dict[str, Any]:
        files = {who: str(self._folder / f"{who}.npz") for who in self._peers}
        found: dict[str, Any] = {}
        for who, peer in self._peers.items():
            try:
                found |= peer.ask({"do": "open", "name": run.name, "path": path, "out": files[who]})
            except Failed as error:
                raise Failed(f"{who}: {error}") from error
        if run.case.compared:
            apart = difference(*(_read(file) for file in files.values()))
            found |= {"error": apart, "right": bool(apart <= TOLERANCES[run.dtype])}
        times: dict[str, list[float]] = {who: [] for who in self._peers}
        for _ in range(self._asked.rounds):
            for who, peer in self._peers.items():
                times[who] += peer.ask({"do": "time", "seconds": self._asked.seconds})["times"]
        for who, all in times.items():
            found |= {f"{who} us": round(1e6 * statistics.median(all), 3), f"{who} least us": round(1e6 * min(all), 3)}
        least = found["ours least us"]
        roof = found.pop("roof")
        return found | {
            "ratio": round(found["torch least us"] / least, 3),
            "median ratio": round(found["torch us"] / found["ours us"], 3), "roof": round(roof * 1e6 / least, 4),
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip


def _read(path: str) -> list[Any]:
    with np.load(path, allow_pickle=False) as file:
        return [file[name] for name in file.files]


def difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest difference by the largest result, of all results. Infinite if their number or sizes differ, or a
    result is infinite or no number on one side alone."""
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return float("inf")
    worst = 0.0
    for x, y in zip((x.astype(float) for x in ours), (y.astype(float) for y in theirs)):
        ends = ~np.isfinite(y)
        if not np.array_equal(x[ends], y[ends], equal_nan=True) or not np.isfinite(x[~ends]).all():
            return float("inf")
        if not ends.all():
            x, y = x[~ends], y[~ends]
            worst = max(worst, float(np.abs(x - y).max()) / (float(np.abs(y).max()) or 1.0))
    return worst
