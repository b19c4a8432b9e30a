"""``report.html``: the result of a build, as one self-contained page.

The same build gives the same bytes: no time of day, no folder; the times of the passes appear only on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.words import rate_text, size_text, time_text
from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.cost import machine_of
from dslc.compiler.report.facts import Facts
from dslc.compiler.report.graph_svg import css, svg
from dslc.compiler.report.markup import cell, number, plain, table, tag, tiles
from dslc.compiler.report.section import Section
from dslc.compiler.report.slow import Slow, slow_table
from dslc.runtime.cuda.driver_bytes import Code
from dslc.runtime.cuda.sizes import Regions
from dslc.runtime.cuda.sums.layout import sums_of
from dslc.runtime.session.context import Loaded
from dslc.runtime.session.open import driver_needs_of, needs_of

if TYPE_CHECKING:
    from dslc.compiler.build_result import BuildResult
    from dslc.compiler.ir.graph import Graph

_RECTANGLES: Final = (500, 1200)  # for the largest program, and for all others together
_ROWS: Final = (60, 200)  # for a table of nodes or lines, likewise
_LIMITS_OF_OTHERS: Final = (120, 25)  # largest number of rectangles and of rows for each of the other programs
_LARGEST_GRAPH: Final = 256 << 10  # bytes of its picture; `dslc show --svg` draws a larger one


def report(result: BuildResult, graph: Graph | None = None, *, slow: Sequence[Slow] = (), times: bool = False) -> str:
    """The page. ``graph``: the checked model, drawn if given. ``slow``: the lines that W011 names. ``times``: show how
    long each pass took."""
    facts = [Facts(program) for program in result.programs]
    largest = max(range(len(facts)), key=lambda i: facts[i].context_bytes)
    limits = [min(most, total // len(facts)) for most, (_, total) in zip(_LIMITS_OF_OTHERS, (_RECTANGLES, _ROWS))]
    parts = [_head(result, facts), slow_table(slow)]
    for i in sorted(range(len(facts)), key=lambda i: i != largest):
        most = [_RECTANGLES[0], _ROWS[0]] if i == largest else limits
        section = Section(facts[i], result.reports[i], *most, coarse=i != largest, times=times)
        parts.append(_details(f"p{i}", _title(facts[i]), section.summary(), section.text(), open=i == largest))
    picture = None if graph is None else svg(graph, styled=False)
    if picture is not None and len(picture) <= _LARGEST_GRAPH:
        parts.append(
            _details("graph", "The graph", "as it was checked", tag("div", picture, class_="graph", tabindex=0))
        )
    parts.append(tag("footer", _footer(result, facts)))
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8").replace("/*graph*/", css())
    before, _, rest = page.partition("<!--title-->")
    middle, _, after = rest.partition("<!--body-->")
    return "".join([before, plain(f"{result.name} · dslc"), middle, "\n".join(parts), after])


def _title(facts: Facts) -> str:
    sizes = " ".join(f"{name}={value}" for name, value in facts.program.sizes.items())
    return f"{facts.program.title} {sizes}".strip()


def _head(result: BuildResult, facts: Sequence[Facts]) -> str:
    header = result.header
    state, context = header["state"]["bytes"], max(each.context_bytes for each in facts)
    steps = int(header["options"].get("steps_per_launch", 1))
    regions = (
        (
            f.program.target,
            Regions(f.program.entry, m.io_bytes, m.work_bytes, m.context_bytes, m.carried, m.prepared_bytes),
        )
        for f, m in ((f, f.memory) for f in facts)
    )
    on_gpus = _on_gpus(facts)
    driver = driver_needs_of(on_gpus, lambda _, held: Code.foreseen(held), steps)
    sums = {target: sums_of(programs, header["interface"]) for target, programs in on_gpus.items()}
    sessions = [
        (f"{what} to {use}" if use != "load" else f"{what} for all calls", f"{size_text(uses[use])} ({target})")
        for target, taken in needs_of(state, regions, steps, sums=sums).items()
        for use in taken
        for what, uses in (("memory", taken), ("driver: code and graphs", driver.get(target, {})))
        if use in uses
    ]
    toolchain = ", ".join(f"{tool} {version}" for tool, version in header["toolchain"].items())
    rows = [
        (
            tag("td", tag("a", plain(_title(each)), href=f"#p{i}")),
            cell(each.program.target),
            number(f"{len(each.work):,}"),
            number(size_text(each.memory.io_bytes)),
            number(size_text(each.memory.work_bytes)),
            number(f"{_ratio(each):.3f}"),
            number(time_text(each.seconds)),
        )
        for i, each in enumerate(facts)
    ]
    return "\n".join(
        [
            tag("header", tag("h1", plain(result.name)),
                tag("p", f"Model {plain(header['model'])}, {plain(_options(header['options']))}. Built by "
                         f"{plain(toolchain)} from source {tag('code', plain(header['source_sha256'][:16]))}.")),
            tiles([
                *sessions,
                ("state", size_text(state)),
                ("largest context", size_text(context)),
                ("artifact", size_text(len(result.artifact))),
                ("kernels", f"{result.kernels:,}"),
            ]),
            table(("program", "target", "nodes", "io", "work", "work / alive", "modelled"), rows, (2, 3, 4, 5, 6)),
        ]
    )  # fmt: skip


def _on_gpus(facts: Sequence[Facts]) -> dict[str, list[Loaded]]:
    """The programs of each target for GPUs, with their plans."""
    found: dict[str, list[Loaded]] = {}
    for program, memory in ((f.program, f.memory) for f in facts):
        if traits_of(program.target).has_device_memory:
            amounts = memory.io_bytes, memory.work_bytes
            each = Loaded(program.entry, program.sizes, *amounts, plan_of(program), memory.context_bytes,
                          turn=program.turn)  # fmt: skip
            found.setdefault(program.target, []).append(each)
    return found


def _options(options: Mapping[str, Any]) -> str:
    precision = options["precision"]["compute"]
    return f"{precision} for {options['target']}, providers {options['providers']}, mirror {options['mirror']}"


def _ratio(facts: Facts) -> float:
    """Planned bytes divided by the peak of live bytes: 1 is optimal."""
    return facts.memory.work_bytes / facts.memory.lower_bound if facts.memory.lower_bound else 1.0


def _details(name: str, title: str, more: str, *inside: str, open: bool = False) -> str:
    head = tag("summary", tag("h2", plain(title)), plain(more))
    text = tag("details", head, "\n", *inside, class_="program", id=name)
    return text.replace("<details ", "<details open ", 1) if open else text


def _footer(result: BuildResult, facts: Sequence[Facts]) -> str:
    machines = "; ".join(
        f"{target}: {rate_text(m.bandwidth, 'B/s')}, {rate_text(m.matrix32, 'FLOP/s')} for products of f32, "
        f"{time_text(m.launch)} a launch"
        for target, m in ((t, machine_of(t).device) for t in dict.fromkeys(f.program.target for f in facts))
    )
    return plain(f"The model's machines: {machines}. Written by dslc build for {result.name}.dslc.")
