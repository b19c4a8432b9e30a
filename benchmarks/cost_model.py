"""The time model next to measured kernels: how far it is off, by model and by kind of kernel, and fractions that fit.

    python benchmarks/cost_model.py bench/*.json           the files of: dslc bench ARTIFACT --json > bench/NAME.json
    python benchmarks/cost_model.py bench/*.json --fit     the fractions with the least sum of absolute differences
    python benchmarks/cost_model.py bench/*.json --json

``dslc bench`` runs each node alone; its bytes and operations are those of the plan. ``part``: of the bandwidth and of
the arithmetic rate, and the ``start`` in microseconds, as in ``codegen/device_model.py``. Kinds with fewer than ten
nodes are not fitted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dslc.compiler.codegen.device_model import GPU_LIBRARIES, H200, Reached
from dslc.compiler.cost import MATRIX_KINDS
from dslc.compiler.ops.compound.contraction import contraction
from dslc.compiler.ops.registry import ops

_PARTS: Final = tuple(n / 100 for n in (*range(2, 20), *range(20, 101, 5)))
_STARTS: Final = tuple(n * 5e-7 for n in range(25))
_FEWEST: Final = 10


@dataclass(frozen=True)
class Run:
    """A node that was measured alone."""

    model: str
    kind: str
    moving: float
    arithmetic: float
    seconds: float

    def modelled(self, reached: Reached) -> float:
        longest = max(self.moving / reached.bandwidth, self.arithmetic / reached.arithmetic)
        return H200.launch + reached.start + longest


def runs_of(path: Path) -> Iterator[Run]:
    """The nodes of a file of ``dslc bench --json``."""
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    half = told["precision"] in ("bf16", "f16")
    for node in told["nodes"]:
        op = node["what"].split()[0]
        kind = ops()[op].kernel_kind if op in ops() else "rest"
        rate = (
            (H200.matrix16 if half else H200.matrix32)
            if kind in MATRIX_KINDS or op == contraction.name
            else H200.scalar
        )
        yield Run(path.stem, kind, node["bytes"] / H200.bandwidth, node["flops"] / rate, node["seconds"])


def fitted(runs: Sequence[Run]) -> Reached:
    """The fractions and the start with the least sum of absolute differences."""

    def off(reached: Reached) -> float:
        return sum(abs(run.modelled(reached) - run.seconds) for run in runs)

    best = Reached()
    for _ in range(3):  # by turns, as the three hardly depend on each other
        best = min((Reached(p, best.arithmetic, best.start) for p in _PARTS), key=off)
        best = min((Reached(best.bandwidth, p, best.start) for p in reversed(_PARTS)), key=off)
        best = min((Reached(best.bandwidth, best.arithmetic, s) for s in _STARTS), key=off)
    return best


def rows(groups: Mapping[str, Sequence[Run]], fit: bool) -> Iterable[dict[str, Any]]:
    """One row a group: measured and modelled milliseconds, and with ``fit`` the fitted fractions."""
    for name, runs in groups.items():
        measured = sum(run.seconds for run in runs)
        modelled = sum(run.modelled(GPU_LIBRARIES.get(run.kind, Reached())) for run in runs)
        row: dict[str, Any] = {"group": name, "nodes": len(runs), "measured ms": round(1e3 * measured, 3)}
        row |= {"modelled ms": round(1e3 * modelled, 3), "ratio": round(modelled / measured, 3)}
        if fit and len(runs) >= _FEWEST:
            best = fitted(runs)
            row |= {"bandwidth": best.bandwidth, "arithmetic": best.arithmetic, "start us": round(1e6 * best.start, 1)}
            row |= {"fitted ms": round(1e3 * sum(run.modelled(best) for run in runs), 3)}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="the time model next to measured kernels")
    parser.add_argument("files", nargs="+", type=Path, help="files of dslc bench --json")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runs = [run for path in asked.files for run in runs_of(path)]
    by_model, by_kind = defaultdict(list), defaultdict(list)
    for run in runs:
        by_model[run.model].append(run)
        by_kind[run.kind].append(run)
    found = [*rows(by_model, False), *rows(dict(sorted(by_kind.items())), asked.fit)]
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':22} nodes  measured  modelled  ratio")
    for row in found:
        line = "{group:22}{nodes:6}{measured ms:10.3f}{modelled ms:10.3f}{ratio:7.2f}".format_map(row)
        if "start us" in row:
            line += "   {bandwidth:.2f} {arithmetic:.2f} {start us:4.1f} us{fitted ms:10.3f} ms".format_map(row)
        print(line)


if __name__ == "__main__":
    main()
