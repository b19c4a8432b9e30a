"""The part of a report about one program: its memory, time, source lines, kernels and passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dslc.base.words import rate_text, size_text, time_text
from dslc.compiler.report.facts import Facts, Line, LineRow, Work, ranked
from dslc.compiler.report.markup import cell, number, plain, share, table, tag, tiles
from dslc.compiler.report.pictures import memory_svg, time_rows, time_svg

if TYPE_CHECKING:
    from dslc.compiler.build_result import EntryReport
    from dslc.compiler.passes.runner import PassReport

_COLOURS: Final = 10
_PHASES: Final = ("forward", "mirror", "backward", "update")


class Section:
    """The part of the page about one program."""

    def __init__(
        self, facts: Facts, told: EntryReport, rectangles: int, rows: int, *, coarse: bool, times: bool
    ) -> None:
        """``rectangles`` of memory and ``rows`` of nodes and of lines, at most; the rest is summarised. ``coarse``:
        smaller pictures. ``times``: show how long each pass took."""
        self.facts, self.told, self.rectangles, self.rows, self.times = facts, told, rectangles, rows, times
        self.coarse = coarse
        lines = list(dict.fromkeys([*ranked(facts, _COLOURS), *(r.line for r in facts.lines if r.line.number)]))
        self.shown = lines[:_COLOURS]
        self.colours = {line: f"c{i}" for i, line in enumerate(self.shown)}

    def colour(self, line: Line) -> str:
        return self.colours.get(line, "cx")

    def summary(self) -> str:
        target = self.facts.program.target
        return f"{target} · {size_text(self.facts.context_bytes)} · {time_text(self.facts.seconds)} modelled"

    def text(self) -> str:
        parts = (self._totals(), self._memory(), self._time(), self._lines(), self._nodes(), self._passes())
        return "\n".join(part for part in parts if part)

    def _totals(self) -> str:
        memory, work = self.facts.memory, self.facts.work
        flops = sum(w.flops for w in work)
        return tiles(
            [
                ("work", size_text(memory.work_bytes)),
                ("alive at the peak", size_text(memory.lower_bound)),
                ("inputs and results", size_text(memory.io_bytes)),
                ("nodes at work", f"{len(work):,}"),
                ("moved", size_text(sum(w.bytes for w in work))),
                ("arithmetic", rate_text(flops, "FLOP")),
                ("modelled step", time_text(self.facts.seconds)),
            ]
        )

    def _memory(self) -> str:
        facts = self.facts
        if not facts.blocks:
            return tag("h3", "Memory") + tag(
                "p", "The work region is empty: every result is computed in its final buffer."
            )
        peak = f"peak {size_text(max(facts.alive))} at step {facts.peak}"
        at_peak = [w for w in facts.work if w.step == facts.peak]
        if at_peak:
            peak += f", {at_peak[0].what} {at_peak[0].name}"
        picture = memory_svg(facts, self.colour, self.rectangles, coarse=self.coarse)
        return "\n".join(
            [
                tag("h3", "Memory"),
                tag("p", "Each rectangle is a buffer of the work region: steps to the right, addresses upwards, "
                         f"{size_text(facts.memory.work_bytes)} in total. The line shows the bytes in use."),
                tag(
                    "figure",
                    tag("div", picture, class_="plot memory"),
                    tag("div", tag("span", "step 0"), tag("span", plain(peak), class_="peak"),
                        tag("span", f"{facts.steps - 1}"), class_="axis"),
                    tag("p", class_="told", aria_live="polite"),
                    self._key(),
                ),
            ]
        )  # fmt: skip

    def _key(self) -> str:
        items = [_swatch(self.colours[line]) + plain(f"{line}  {_cut(line.text, 60)}") for line in self.shown]
        return tag("ul", *(tag("li", item) for item in (*items, _swatch("cx") + "other")), class_="key")

    def _time(self) -> str:
        facts = self.facts
        if not facts.work:
            return ""
        phases = dict.fromkeys(w.phase for w in facts.work)
        key = [tag("li", _swatch(p) + p) for p in _PHASES if p in phases]
        streams = len({w.stream for w in facts.work})
        picture = time_svg(facts, self.colour, coarse=self.coarse)
        return "\n".join(
            [
                tag("h3", "Time"),
                tag("p", f"Roofline estimates for {plain(facts.program.target)}: a launch plus the larger of memory "
                         "and arithmetic time. They are for comparison; dslc bench measures."),
                tag(
                    "figure",
                    tag("div", picture, class_="plot time", style=f"--rows:{time_rows(facts)}px"),
                    tag("div", tag("span", "0"), tag("span", f"{streams} stream{'s' * (streams > 1)}"),
                        tag("span", plain(time_text(facts.seconds))), class_="axis"),
                    tag("p", class_="told", aria_live="polite"),
                    tag("ul", *key, class_="key"),
                ),
            ]
        )  # fmt: skip

    def _lines(self) -> str:
        rows = self.facts.lines
        if not rows:
            return ""
        total = sum(r.seconds for r in rows)
        longest, most = rows[0].seconds, max(r.at_peak for r in rows)
        head = ("line", "modelled", "at the peak", "moved", "FLOP", "nodes")
        text = table(head, (self._line(r, total, longest, most) for r in rows[: self.rows]), (1, 2, 3, 4, 5))
        return "\n".join([tag("h3", "Source lines"), text, _rest(rows[self.rows :], "lines")])

    def _line(self, row: LineRow, total: float, longest: float, most: int) -> Sequence[str]:
        return (
            _named(_swatch(self.colour(row.line)), str(row.line), _cut(row.line.text, 100)),
            share(row.seconds / longest, f"{time_text(row.seconds)} {row.seconds / total:.1%}"),
            share(row.at_peak / most if most else 0.0, size_text(row.at_peak)),
            number(size_text(row.bytes)),
            number(_count(row.flops)),
            number(f"{row.nodes:,}"),
        )

    def _nodes(self) -> str:
        work = sorted(self.facts.work, key=lambda w: (-w.seconds, w.step))
        if not work:
            return ""
        shown = work[: self.rows]
        head = ("step", "node", "modelled", "bound by", "at the roof", "moved", "FLOP", "runs as", "line")
        total, longest = sum(w.seconds for w in work), work[0].seconds
        rows = (self._node(w, total, longest) for w in shown)
        return "\n".join([tag("h3", "Kernels"), table(head, rows, (0, 2, 4, 5, 6)), _rest(work[len(shown) :], "nodes")])

    def _node(self, work: Work, total: float, longest: float) -> Sequence[str]:
        return (
            number(work.step),
            _named(_swatch(work.phase), work.name, work.what),
            share(work.seconds / longest, f"{time_text(work.seconds)} {work.seconds / total:.1%}"),
            cell(work.bound),
            number(f"{work.roof / work.seconds:.0%}"),
            number(size_text(work.bytes)),
            number(_count(work.flops)),
            cell(work.where),
            tag("td", _swatch(self.colour(work.line)), plain(work.line)),
        )

    def _passes(self) -> str:
        head = ("pass", "nodes", "", "moved", "", *(("seconds",) if self.times else ()))
        rows = [self._pass(p) for p in self.told.passes]
        said = self.told.mirrored
        again = "" if said is None else tag(
            "p",
            f"Mirroring: {said.nodes:,} nodes recompute values that would take "
            f"{size_text(said.bytes_before - said.bytes_after)} ({size_text(said.bytes_before)} to "
            f"{size_text(said.bytes_after)} at the peak), for {said.share:+.1%} of the modelled step.",
        )  # fmt: skip
        return "\n".join([tag("h3", "Passes"), again, table(head, rows, (1, 3, *((5,) if self.times else ())))])

    def _pass(self, step: PassReport) -> Sequence[str]:
        return (
            cell(step.name),
            number(_change(f"{step.nodes_before:,}", f"{step.nodes_after:,}")),
            cell(_difference(step.nodes_after - step.nodes_before, "{:+,}")),
            number(_change(size_text(step.moved_before), size_text(step.moved_after))),
            cell("" if step.moved_before == step.moved_after else _saved(step.moved_after - step.moved_before)),
            *((number(f"{step.seconds:.3f}"),) if self.times else ()),
        )


def _named(mark: str, name: str, code: str) -> str:
    """A cell with a name, followed (on a narrow screen: below) by its op as code."""
    return tag("td", mark, plain(name), " ", tag("code", plain(code)), class_="text")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _count(flops: int) -> str:
    return rate_text(flops, "").rstrip()


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _difference(change: int, form: str) -> str:
    return form.format(change) if change else ""


def _saved(change: int) -> str:
    return f"{'-' if change < 0 else '+'}{size_text(abs(change))}"


def _swatch(mark: str) -> str:
    return f'<svg viewBox="0 0 1 1" aria-hidden="true"><rect class="{mark}" width="1" height="1"/></svg>'


def _rest(left: Sequence[LineRow | Work], name: str) -> str:
    """A line that summarises the rows left out of a table."""
    return tag("p", f"and {len(left):,} more {name}, {time_text(sum(r.seconds for r in left))}") if left else ""
