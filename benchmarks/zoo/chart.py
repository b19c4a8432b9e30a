"""The rows of a comparison as a table in Markdown, and as a chart in SVG and HTML."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
COLUMNS: Final = (
    "model", "sizes", "output", "torch output", "onnx output", "gradient", "torch gradient", "launches",
    "ours ms", "torch ms", "onnx ms", "ratio", "onnx ratio", "ours kernels ms", "torch kernels ms", "kernels ratio",
    "ours cpu ms", "torch cpu ms", "cpu ratio", "ours MiB", "ours driver MiB", "torch MiB", "torch reserved MiB",
    "ours first s", "torch first s", "load",
)  # fmt: skip
_WIDTH, _LINE, _LEFT, _RIGHT = 760, 22, 150, 130
_LABELS: Final = "font-family='sans-serif' font-size='12'"


def mean(rows: Sequence[Row], column: str = "ratio") -> float:
    """The geometric mean."""
    return statistics.geometric_mean(row[column] for row in rows)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, without columns that no row has, and the geometric means of the ratios."""
    columns = [c for c in COLUMNS if any(c in row for row in rows)]
    if any(row["device"] == "gpu" for row in rows):
        columns = [c for c in columns if "cpu" not in c]
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    lines += [[_cell(c, row.get(c, "")) for c in columns] for row in rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    ratios = [c for c in columns if c.endswith("ratio")]
    means = ", ".join(f"{c} {mean([row for row in rows if c in row], c):.2f}" for c in ratios)
    return f"{text}\n\nGeometric mean of {len(rows)} models: {means}."


def _cell(column: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {n}" for name, n in value.items())
    if column.endswith(("output", "gradient")) and value != "":
        return f"{value:.1e}"
    return f"{value:.2f}" if column.endswith("ratio") else str(value)


def svg(rows: Sequence[Row]) -> str:
    """A bar for each model, the fastest first: PyTorch's time by ours. The line is at 1."""
    ordered = sorted(rows, key=lambda row: -row["ratio"])
    most = max(1.0, *(row["ratio"] for row in ordered))
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    height = _LINE * (len(ordered) + 2)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' {_LABELS}>",
        f"<rect width='{_WIDTH}' height='{height}' fill='white'/>",
        f"<text x='{_LEFT}' y='15'>{escape(title(rows))}</text>",
    ]
    for place, row in enumerate(ordered, 1):
        y, width = place * _LINE, row["ratio"] * scale
        fill = "#2f7d4f" if row["ratio"] >= 1 else "#b5482f"
        times = f"{row['ratio']:.2f}x  {row['ours ms']:.4g} / {row['torch ms']:.4g} ms"
        parts += [
            f"<text x='{_LEFT - 8}' y='{y + 15}' text-anchor='end'>{escape(row['model'])}</text>",
            f"<rect x='{_LEFT}' y='{y + 3}' width='{width:.1f}' height='{_LINE - 6}' fill='{fill}'/>",
            f"<text x='{_LEFT + width + 6:.1f}' y='{y + 15}' font-size='11'>{escape(times)}</text>",
        ]
    one = _LEFT + scale
    parts.append(f"<line x1='{one:.1f}' x2='{one:.1f}' y1='{_LINE}' y2='{height - _LINE}' stroke='black'/></svg>")
    return "\n".join(parts)


def title(rows: Sequence[Row]) -> str:
    """What was measured."""
    first = rows[0]
    mode = "compile" if first.get("compile") else "eager"
    mode += " and CUDA graph" if first["device"] == "gpu" else f", {first['threads']} threads"
    work = "predictions" if first.get("entry") == "predict" else "training"
    return f"PyTorch's time by dslc's, {work}, {first['device']} {first['dtype']}, {mode}; mean {mean(rows):.2f}"


def write(folder: Path, rows: Sequence[Row]) -> None:
    """``table.md``, ``chart.svg`` and ``chart.html`` in a folder."""
    (folder / "table.md").write_text(table(rows) + "\n", encoding="utf-8")
    (folder / "chart.svg").write_text(svg(rows) + "\n", encoding="utf-8")
    page = f"<!doctype html>\n<meta charset='utf-8'>\n<title>{escape(title(rows))}</title>\n{svg(rows)}\n"
    (folder / "chart.html").write_text(page + _rows(rows), encoding="utf-8")


def _rows(rows: Sequence[Row]) -> str:
    columns = [c for c in COLUMNS if any(c in row for row in rows)]
    body = "\n".join(_line("td", [_cell(c, row.get(c, "")) for c in columns]) for row in rows)
    return f"<table {_LABELS.split()[0]}>\n{_line('th', columns)}\n{body}\n</table>\n"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
