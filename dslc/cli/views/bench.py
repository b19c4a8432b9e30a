"""Formats the measurements of ``dslc bench``: rows per node and per source line, compared with the roof and with an
earlier measurement.

The roof of a node is a time: the longer of moving its bytes at the speed of a copy and doing its arithmetic at the
machine's peak (Williams, Waterman and Patterson 2009). The node's share of the roof is that time over its measured one.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import DataError
from dslc.base.words import rate_text as rate_text
from dslc.base.words import time_text as time_text
from dslc.cli.output import size_text, table
from dslc.runtime.artifact.instructions import Copy, Fill, Gemm, GraphOp, Kernel, Reference, accesses
from dslc.runtime.artifact.plan import Work

if TYPE_CHECKING:
    from dslc.runtime.artifact.instructions import Instruction
    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.session.backend import Measured

_CONTRACTION: Final = re.compile(r"matmul|contraction|sdpa(_grad)?|conv(_dgrad|_wgrad)?(_last)?")
_LINE: Final = re.compile(r"\S+:\d+")
_BITS: Final = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16}
_LARGEST: Final = 64 << 20  # largest file of an earlier measurement, in bytes
_KINDS: Final = {"kernels": Kernel, "library calls": Gemm | GraphOp, "copies and fills": Copy | Fill,
                 "ops through numpy": Reference}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A node of the graph, or all nodes of a source line: its name ``what``, its line, measured seconds, roof
    seconds."""

    what: str
    line: str
    seconds: float
    flops: int
    bytes: int
    roof: float

    @property
    def of_roof(self) -> float:
        return self.roof / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "line": self.line, "seconds": self.seconds, "flops": self.flops,
                "bytes": self.bytes, "of_roof": self.of_roof}  # fmt: skip


def node_rows(plan: Plan, measured: Measured, tf32: bool = False) -> list[Row]:
    """One row for each node that took time, in the order of the plan. A plan without a map from nodes to instructions
    gives one row per instruction. ``tf32``: f32 contractions use TF32."""
    work = plan.work or _each_alone(plan, measured)
    ends = [*(w.first for w in work[1:]), len(plan.instructions)]
    rows = []
    for node, end in zip(work, ends):
        timed = [measured.times[i] for i in range(node.first, end) if i in measured.times]
        if timed:
            seconds = statistics.median(map(sum, zip(*timed)))
            path, line = _where(plan, plan.instructions[node.first])
            roof = _roof(node, _float_bits(plan, plan.instructions[node.first]), measured.roof, tf32)
            rows.append(Row(f"{node.op} {path}".strip(), line, seconds, node.flops, node.bytes, roof))
    return rows


def line_rows(rows: Iterable[Row]) -> list[Row]:
    """The nodes of each source line combined, longest time first."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.line].append(row)
    together = [
        Row(f"{len(part)} nodes", line, sum(r.seconds for r in part), sum(r.flops for r in part),
            sum(r.bytes for r in part), sum(r.roof for r in part))
        for line, part in found.items()
    ]  # fmt: skip
    return sorted(together, key=lambda r: -r.seconds)


def _each_alone(plan: Plan, measured: Measured) -> tuple[Work, ...]:
    def moved(index: int) -> int:
        reads, writes = accesses(plan.instructions[index])
        return sum(plan.buffers[b].bytes for b in (*reads, *writes))

    return tuple(Work(i, type(plan.instructions[i]).__name__.lower(), 0, moved(i)) for i in sorted(measured.times))


def _where(plan: Plan, instruction: Instruction) -> tuple[str, str]:
    """A node's path and its line; ``-`` if it has no line."""
    index = getattr(instruction, "where", None)
    name = plan.names[index] if index is not None else ""
    path, _, line = name.rpartition(" ")
    return (path, line) if _LINE.fullmatch(line) else (name, "-")


def _float_bits(plan: Plan, instruction: Instruction) -> int:
    """Bits of the first float that a node reads, else of the first that it writes; 32 if it has none."""
    reads, writes = accesses(instruction)
    return next((_BITS[d] for d in (plan.buffers[b].dtype for b in (*reads, *writes)) if d in _BITS), 32)


def _roof(node: Work, bits: int, roof: Mapping[str, float], tf32: bool) -> float:
    kind = f"matrix{bits}" if _CONTRACTION.fullmatch(node.op) else f"f{max(32, bits)}"
    rate = roof.get(kind)
    if tf32 and kind == "matrix32" and "matrix16" in roof:  # on all GPUs that support it, half the 16-bit rate
        rate = roof["matrix16"] / 2
    return max(node.bytes / roof["copy"], node.flops / rate if rate else 0.0)


def census(plan: Plan) -> dict[str, int]:
    """The number of instructions of each kind in a step."""
    return {name: sum(isinstance(i, kind) for i in plan.instructions) for name, kind in _KINDS.items()}


def rows_table(rows: Sequence[Row], total: float, top: int, first: str) -> str:
    """A table of the first ``top`` rows; ``total`` is the time of all rows in seconds."""
    shown = [
        (r.line if first == "line" else r.what, r.what if first == "line" else r.line, time_text(r.seconds),
         f"{r.seconds / total:.1%}" if total else "-", rate_text(r.flops / r.seconds, "FLOP/s") if r.seconds else "-",
         size_text(r.bytes), f"{r.of_roof:.0%}")
        for r in rows[:top]
    ]  # fmt: skip
    head = (first, "" if first == "line" else "line", "time", "share", "arithmetic", "bytes", "of roof")
    text = table(head, shown, (2, 3, 4, 5, 6))
    left = rows[top:]
    return text + (f"\nand {len(left)} more: {time_text(sum(r.seconds for r in left))}" if left else "")


def read_earlier(path: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier ``dslc bench --json`` of the same call. DataError R101 if the file does not contain one."""

    from dslc.runtime.data.file import open_file

    def refuse(why: str) -> DataError:
        return DataError("R101", why, place=path, help="make it with: dslc bench ... --json > FILE.json")

    try:
        with open_file(Path(path)) as file:
            text = file.read(_LARGEST + 1)
        found = json.loads(text) if len(text) <= _LARGEST else None
    except OSError as error:
        raise refuse(f"the earlier measurement cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise refuse("this is not JSON") from error
    if not isinstance(found, dict) or not _is_measurement(found):
        raise refuse("this is not a measurement of `dslc bench`")
    for field in ("name", "entry", "sizes", "device", "precision"):
        if found.get(field) != now[field]:
            raise refuse(f"it measured {field} {str(found.get(field))[:80]}, this is {now[field]}")
    return found


def _is_measurement(found: Mapping[str, Any]) -> bool:
    step, lines = found.get("step"), found.get("lines")
    return (
        isinstance(step, dict)
        and isinstance(lines, list)
        and _seconds(step.get("median"))
        and all(isinstance(r, dict) and isinstance(r.get("line"), str) and _seconds(r.get("seconds")) for r in lines)
    )


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9


def comparison(earlier: Mapping[str, Any], now: Mapping[str, Any], top: int) -> tuple[float, str]:
    """This step's time divided by the earlier one, and a table of the step and of the lines that take longest now."""
    before = {row["line"]: row["seconds"] for row in earlier["lines"]}
    pairs = [("step", earlier["step"]["median"], now["step"]["median"])]
    pairs += [(r["line"], before[r["line"]], r["seconds"]) for r in now["lines"][:top] if r["line"] in before]
    rows = [(name, time_text(a), time_text(b), f"{b / a:.3f}") for name, a, b in pairs]
    return pairs[0][2] / pairs[0][1], table(("", "earlier", "now", "ratio"), rows, (1, 2, 3))
