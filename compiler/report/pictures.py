"""A Program's memory over its steps and its streams over modelled time, as SVG of rectangles.

Items that would be too small to see are merged with their neighbours, so a picture stays small for any number of nodes.
Widths and heights are those of a canvas of 1000 x 400, which the page stretches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dslc.base.words import size_text, time_text
from dslc.compiler.report.facts import NO_LINE, Block, Facts, Line, Work
from dslc.compiler.report.markup import plain, tag

WIDTH: Final = 1000
HEIGHT: Final = 400
_THIN: Final = 1.2  # units; thinner items are not visible on their own
_CELLS: Final = (
    (50, 10),
    (100, 25),
)  # units of the grid for small buffers: of a fine picture, of a coarse one
_SHORT: Final = (1.2, 4.0)  # units of time below which nodes are merged, likewise
_ROW: Final = 26  # height of a stream's row with its gap, in units
_PHASES: Final = 8  # height of the row of phases, in units

#: Maps a source line to the CSS class of its colour.
Colour = Callable[[Line], str]


def memory_svg(facts: Facts, colour: Colour, most: int, *, coarse: bool = False) -> str:
    """The work region: each rectangle is a buffer, with steps to the right and addresses upwards. The ``most`` largest
    buffers have rectangles of their own."""
    cell = _CELLS[coarse]
    high = facts.memory.work_bytes
    across, up = WIDTH / facts.steps, HEIGHT / high

    def box(b: Block) -> tuple[float, float, float, float]:
        height = b.bytes * up
        return b.start * across, HEIGHT - b.offset * up - height, (b.end - b.start + 1) * across, height

    def is_seen(b: Block) -> bool:
        _, _, width, height = box(b)
        return width >= _THIN and height >= _THIN

    ranked = sorted((b for b in facts.blocks if is_seen(b)), key=lambda b: -b.bytes * (b.end - b.start + 1))
    own = set(ranked[:most])
    cells: dict[tuple[int, int], list[Block]] = defaultdict(list)
    for block in facts.blocks:
        if block not in own:
            x, y, width, height = box(block)
            cells[int((x + width / 2) // cell[0]), int((y + height / 2) // cell[1])].append(block)
    marks = []
    for (column, row), members in sorted(cells.items()):
        if len(members) == 1:
            own.add(members[0])
            continue
        told = f"{len(members)} small buffers, {size_text(sum(b.bytes for b in members))} in all, " + _life(
            min(b.start for b in members), max(b.end for b in members)
        )
        marks.append(_rect(column * cell[0], row * cell[1], *cell, "cx", told))
    marks += [_rect(*box(b), colour(b.line), block_text(b)) for b in facts.blocks if b in own]
    x = (facts.peak + 0.5) * across
    points = _points(facts.alive, across, up)
    return _svg(
        HEIGHT,
        tag("g", "\n", "\n".join(marks), class_="marks"),
        f'<polyline class="alive" points="{points}"/>',
        f'<line class="at" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"/>',
        label=f"memory over {facts.steps} steps, {size_text(high)}",
    )


def block_text(block: Block) -> str:
    """The tooltip of a buffer."""
    parts = (block.what, block.type, size_text(block.bytes), _life(block.start, block.end), f"at {block.offset:,}",
             *_told(block.line))  # fmt: skip
    return " · ".join(part for part in parts if part)


def _life(start: int, end: int) -> str:
    return f"step {start}" if start == end else f"steps {start} to {end}"


def _told(line: Line) -> tuple[str, ...]:
    return () if line is NO_LINE else (str(line),)


def _points(alive: Sequence[int], across: float, up: float) -> str:
    """The curve of the bytes in use: constant over a step, without consecutive points at the same height."""
    found: list[str] = []
    for step, count in enumerate(alive):
        if step and alive[step - 1] == count:
            found.pop()
        else:
            found.append(f"{step * across:.1f},{HEIGHT - count * up:.1f}")
        found.append(f"{(step + 1) * across:.1f},{HEIGHT - count * up:.1f}")
    return " ".join(found)


def time_rows(facts: Facts) -> int:
    """The height of ``time_svg`` in units."""
    return _PHASES + _ROW * len({w.stream for w in facts.work})


def time_svg(facts: Facts, colour: Colour, *, coarse: bool = False) -> str:
    """Nodes over modelled time, one row per stream, with the phases above them."""
    across = WIDTH / facts.seconds
    streams = sorted({w.stream for w in facts.work})
    marks: list[str] = []
    for row, stream in enumerate(streams):
        top = _PHASES + 4 + row * _ROW
        for members in _seen((w for w in facts.work if w.stream == stream), _SHORT[coarse] / across):
            first, last = members[0], members[-1]
            alone = len(members) == 1
            told = work_text(first, facts.seconds) if alone else _many(members)
            mark = colour(first.line) if alone else "cx"
            width = (last.begin + last.seconds - first.begin) * across
            marks.append(_rect(first.begin * across, top, width, _ROW - 4, mark, told))
    return _svg(
        time_rows(facts),
        tag("g", "\n", "\n".join(_phases(facts, across)), class_="marks thin"),
        tag("g", "\n", "\n".join(marks), class_="marks"),
        label=f"{len(facts.work)} nodes over {time_text(facts.seconds)}",
    )


def work_text(work: Work, total: float) -> str:
    """The tooltip of a node."""
    parts = (f"{work.what} {work.name}", f"step {work.step}", work.phase, work.where,
             f"{time_text(work.seconds)}, {work.seconds / total:.1%} of the step, bound by {work.bound}",
             size_text(work.bytes), *_told(work.line))  # fmt: skip
    return " · ".join(parts)


def _many(members: Sequence[Work]) -> str:
    steps = f"steps {members[0].step} to {members[-1].step}"
    return f"{len(members)} short nodes, {steps}, {time_text(sum(w.seconds for w in members))} in all"


def _seen(works: Iterable[Work], least: float) -> list[list[Work]]:
    """Groups consecutive nodes that are too short to be seen; other nodes are alone in their group."""
    found: list[list[Work]] = []
    for work in works:
        group = found[-1] if found else None
        fits = group and work.seconds < least and all(w.seconds < least for w in group)
        if group and fits and work.begin + work.seconds - group[0].begin < 3 * least:
            group.append(work)
        else:
            found.append([work])
    return found


def _phases(facts: Facts, across: float) -> list[str]:
    """A bar for each run of one phase on stream 0; a run too short to be seen is merged with the previous one."""
    runs: list[list[Work]] = []
    for work in (w for w in facts.work if w.stream == 0):
        if runs and (runs[-1][0].phase == work.phase or work.seconds * across < _THIN / 2):
            runs[-1].append(work)
        else:
            runs.append([work])
    return [
        _rect(run[0].begin * across, 0, (run[-1].begin + run[-1].seconds - run[0].begin) * across, _PHASES,
              run[0].phase, f"{run[0].phase}, steps {run[0].step} to {run[-1].step}")
        for run in runs
    ]  # fmt: skip


def _rect(x: float, y: float, width: float, height: float, mark: str, told: str) -> str:
    where = f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
    return f'<rect class="{mark}" {where}><title>{plain(told)}</title></rect>'


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(height: int, *inside: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" role="img" aria-label="{plain(label)}">'
        + "\n".join(inside)
        + "</svg>"
    )
