"""Plots loss and metrics over the epochs from a run's log: as an SVG picture and as a few lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, TypeAlias

from dslc.base.errors import DslcError
from dslc.base.publish import publish_bytes
from dslc.base.visible import one_line
from dslc.runtime.train.metrics import read_log

Points: TypeAlias = list[tuple[float, float]]
Curves: TypeAlias = "Mapping[str, Mapping[str, Points]]"  # metric -> "train" or "eval" -> (step, value)

PLOT_NAME: Final = "plot.svg"
_NOT_DRAWN: Final = ("kind", "step", "epoch", "rows", "seconds", "samples_per_s", "lr", "loss_scale", "skipped")
_COLORS: Final = {"train": "#1f77b4", "eval": "#d62728"}
_LEGEND: Final = 16  # pixels of a line
_PANEL: Final = (360, 220)  # pixels
_MARGIN: Final = (56, 30, 14, 34)  # left, top, right, bottom
_MOST_PANELS: Final = 12
_MOST_POINTS: Final = 1000  # points per curve; the others are dropped evenly
_MOST_HELD: Final = 16 * _MOST_POINTS  # points per curve while a log is read
_MOST_CURVES: Final = 64  # names that are read
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class Picture:
    """The curves of a run, redrawn in its folder as they grow. The first failed write is reported."""

    def __init__(self, folder: Path, log: str, wanted: bool, warn: Callable[[str], None]) -> None:
        self.folder, self.log, self.wanted, self.warn = folder, log, wanted, warn

    def draw(self) -> None:
        if not self.wanted:
            return
        try:
            publish_bytes(self.folder / PLOT_NAME, svg(curves(self.folder / self.log)).encode(), point="plot")
        except (DslcError, OSError) as error:
            self.wanted = False
            self.warn(f"{PLOT_NAME} cannot be written: {getattr(error, 'message', error)}")

    def text(self) -> str:
        """The curves as text for a terminal."""
        return terminal(curves(self.folder / self.log))


class _Curve:
    """The points of a curve of any length, of which it holds at most ``_MOST_HELD``, at equal distances."""

    def __init__(self) -> None:
        self._points: Points = []
        self._every, self._count = 1, 0
        self._last = (0.0, 0.0)

    def add(self, step: float, value: float) -> None:
        self._last = (step, value)
        if self._count % self._every == 0:
            self._points.append(self._last)
            if len(self._points) > _MOST_HELD:
                self._points, self._every = self._points[::2], 2 * self._every
        self._count += 1

    def thinned(self) -> Points:
        """At most ``_MOST_POINTS`` and the last one."""
        every = -(-len(self._points) // _MOST_POINTS)
        points = self._points[::every]
        return points if (self._count - 1) % (every * self._every) == 0 else [*points, self._last]


def curves(log: Path) -> Curves:
    """The finite values of a log's epochs and evaluations, the loss first. Empty if there is no log."""
    found: dict[str, dict[str, _Curve]] = {"loss": {}}
    try:
        for entry in read_log(log):
            which = {"epoch": "train", "eval": "eval"}.get(str(entry.get("kind")))
            if which is None:
                continue
            for name, value in entry.items():
                if name in _NOT_DRAWN or not _drawable(value) or not _drawable(entry["step"]):
                    continue
                if name in found or len(found) < _MOST_CURVES:
                    found.setdefault(name, {}).setdefault(which, _Curve()).add(float(entry["step"]), float(value))
    except OSError:
        return {}  # the log was never written, which was reported at that time
    return {name: {which: curve.thinned() for which, curve in of.items()} for name, of in found.items() if of}


def _drawable(value: object) -> bool:
    """True for a finite f64; a log may be damaged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 1 << 63


def svg(found: Curves, colors: Mapping[str, str] | None = None) -> str:
    """A picture with one panel per metric, two panels in a row. ``colors``: those of the curves by name, which a
    legend above the panels then shows; None for "train" and "eval", which each panel names."""
    panels = list(found.items())[:_MOST_PANELS]
    above = 0 if colors is None else _LEGEND * len(colors) + 10
    width, height = 2 * _PANEL[0], max(1, -(-len(panels) // 2)) * _PANEL[1] + above
    label = f"{one_line(', '.join(name for name, _ in panels))[:200]}, by step"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11" role="img" aria-label="{escape(label)}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (name, color) in enumerate((colors or {}).items()):
        y = _LEGEND * (number + 1)
        lines.append(f'<path d="M10 {y - 4}H30" stroke="{color}" stroke-width="3"/>')
        lines.append(f'<text x="36" y="{y}">{escape(one_line(name)[:80])}</text>')
    for number, (name, of) in enumerate(panels):
        lines += _panel(name, of, number % 2 * _PANEL[0], above + number // 2 * _PANEL[1], colors)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(name: str, of: Mapping[str, Points], left: int, top: int, colors: Mapping[str, str] | None) -> list[str]:
    x0, x1 = left + _MARGIN[0], left + _PANEL[0] - _MARGIN[2]
    y0, y1 = top + _PANEL[1] - _MARGIN[3], top + _MARGIN[1]
    steps = [step for points in of.values() for step, _ in points]
    values = [value for points in of.values() for _, value in points]
    (low_x, high_x), (low, high) = _range(steps), _range(values)

    def at(step: float, value: float) -> tuple[float, float]:
        # Divide first: the difference of two finite values may overflow.
        return (
            x0 + (x1 - x0) * _part(step, low_x, high_x),
            y0 + (y1 - y0) * _part(value, low, high),
        )

    lines = [f'<text x="{x0}" y="{top + 18}" font-size="13" font-weight="bold">{escape(one_line(name))}</text>']
    for part in (0.0, 0.5, 1.0):
        y = y0 + (y1 - y0) * part
        lines.append(f'<path d="M{x0} {y:.1f}H{x1}" stroke="#ddd"/>')
        value = low * (1 - part) + high * part
        lines.append(f'<text x="{x0 - 5}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{value:.4g}</text>')
        step = low_x * (1 - part) + high_x * part
        x = x0 + (x1 - x0) * part
        lines.append(f'<text x="{x:.1f}" y="{y0 + 15}" text-anchor="middle" fill="#555">{step:.6g}</text>')
    lines.append(f'<text x="{(x0 + x1) / 2:.1f}" y="{y0 + 29}" text-anchor="middle" fill="#555">step</text>')
    for number, (which, points) in enumerate(of.items()):
        placed = [at(*point) for point in points]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        color = (colors or _COLORS)[which]
        if len(placed) == 1:
            lines.append(f'<circle cx="{placed[0][0]:.1f}" cy="{placed[0][1]:.1f}" r="2.5" fill="{color}"/>')
        else:
            lines.append(f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        if colors is None:
            key = x1 - 40 * (len(of) - number)
            lines.append(f'<text x="{key}" y="{top + 18}" fill="{color}">{which}</text>')
    return lines


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest value, widened if they are equal."""
    low, high = min(values), max(values)
    return (low, high) if low < high else (low - abs(low) * 0.5 - 0.5, high + abs(high) * 0.5 + 0.5)


def _part(value: float, low: float, high: float) -> float:
    scale = max(abs(low), abs(high))
    return (value / scale - low / scale) / (high / scale - low / scale)


def terminal(found: Curves, width: int = 60) -> str:
    """One line per curve: its first and last value, and block characters for the values between."""
    lines = []
    for name, of in found.items():
        values = [value for points in of.values() for _, value in points]
        low, high = _range(values)
        for which, points in of.items():
            if len(points) < 2:
                continue
            shown = (
                points
                if len(points) <= width
                else [points[at * (len(points) - 1) // (width - 1)] for at in range(width)]
            )
            blocks = "".join(_BLOCKS[min(7, int(8 * _part(value, low, high)))] for _, value in shown)
            lines.append(f"{name[:16]:>16} {which:5} {points[0][1]:>10.4g} {blocks} {points[-1][1]:.4g}")
    return "\n".join(lines)
