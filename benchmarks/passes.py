"""Seconds, and microseconds a node, of each step from text to plan, for a chain of layers.

    python benchmarks/passes.py [LAYERS]     # 10,000 by default

The model is ``linear |> relu`` repeated, with a training section; the table is that of its train step.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from dslc.cli.output import table
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

MODEL = """nn 1
dim B in 1..64 = 8

model Deep(x: [B, 8], layers: int = 2) -> [B, 8] {
  for i in 0..layers as hidden { x = x |> linear(8) as fc |> relu }
  return x
}

train Deep(y: [B, 8]) {
  loss      = mean((output - y)^2)
  optimizer = sgd(lr=0.01, momentum=0.9)
}
"""


def main(layers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep.nn"
        path.write_text(MODEL, encoding="utf-8")
        start = time.perf_counter()
        checked = check_file(str(path), None, {"layers": str(layers)})
        seconds = time.perf_counter() - start
    rows = [_row("check", 0, len(checked.graph.nodes), seconds, None)]
    program, reports = compile_entry(checked, "train_step", {"B": 8}, Options())
    rows += [_row(r.name, r.nodes_before, r.nodes_after, r.seconds, r.verify_seconds) for r in reports]
    before = time.perf_counter()
    plan = plan_of(program)
    rows.append(_row("plan", len(program.graph.nodes), len(plan.instructions), time.perf_counter() - before, None))
    total = time.perf_counter() - start
    print(table(("step", "nodes", "->", "s", "us a node", "verify s", "us a node"), rows, (1, 2, 3, 4, 5, 6)))
    print(f"{layers:,} layers: {total:.1f} s in all, {time.process_time():.1f} s of processor time with the imports")


def _row(name: str, before: int, after: int, seconds: float, verify: float | None) -> tuple[str, ...]:
    most = max(before, after, 1)
    checked = ("", "") if verify is None else (f"{verify:.2f}", f"{verify / max(after, 1) * 1e6:.1f}")
    return (
        name,
        f"{before:,}" if before else "",
        f"{after:,}",
        f"{seconds:.2f}",
        f"{seconds / most * 1e6:.1f}",
        *checked,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
