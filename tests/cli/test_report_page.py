"""``report.html``: whole and closed HTML, numbers of the plan, names that stay text, small and the same every time."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from places import MODELS

from dslc.base.words import size_text
from dslc.compiler.build_result import BuildResult, EntryReport
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.program import Program
from dslc.compiler.options import Options, entry_sizes
from dslc.compiler.passes.plan.allocate import Buffer, lower_bound
from dslc.compiler.pipeline import compile_entry
from dslc.compiler.report.facts import Facts
from dslc.compiler.report.page import report

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """What a browser would find: elements that are closed in turn, ids, links, the text of every tag."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def built(checked: Checked, options: Options, entries: set[str] | None = None) -> BuildResult:
    """A build without its kernels' code, of which the report tells nothing but the number."""
    found = []
    for target in options.targets:
        for entry, sizes in entry_sizes(checked, options):
            if entries is None or entry in entries:
                found.append((*compile_entry(checked, entry, sizes, options, target=target), entry, target, sizes))
    reports = [
        EntryReport(entry, target, sizes, len(p.graph.nodes), p.memory.io_bytes, p.memory.work_bytes,  # type: ignore[union-attr]
                    p.memory.lower_bound, p.mirrored, passes)  # type: ignore[union-attr]
        for p, passes, entry, target, sizes in found
    ]  # fmt: skip
    header: dict[str, Any] = {
        "state": {"bytes": 1 << 20},
        "model": checked.name,
        "interface": {"train": None},
        "toolchain": {"dslc": "0.1.0"},
        "source_sha256": checked.digest,
        "options": {"precision": {"compute": "f32"}, "target": "cpu", "providers": "auto", "mirror": "auto"},
    }
    from dslc.base.cache import Counts

    programs = tuple(p for p, *_ in found)
    return BuildResult(
        checked.name.lower(), b"artifact", header, programs, tuple(reports), 1.25, 12, Counts(), loose=False, origins={}
    )


@pytest.fixture(scope="module")
def lenet() -> tuple[Checked, BuildResult]:
    checked = check_file(str(MODELS / "lenet.nn"))
    return checked, built(checked, Options(target="cpu,sm_90"))


def train_step(result: BuildResult, target: str = "cpu") -> Program:
    [found] = [p for p in result.programs if p.entry == "train_step" and p.target == target]
    return found


def test_a_page_that_is_whole_and_needs_nothing_else(lenet: tuple[Checked, BuildResult]) -> None:
    checked, result = lenet
    text = report(result, checked.graph)
    page = Page(text)
    ids = page.all("id")
    assert len(ids) == len(set(ids)) == len(result.programs) + 1
    assert {href.removeprefix("#") for href in page.all("href") if href.startswith("#")} <= set(ids)
    assert not re.search(r"(?<!xmlns=\")(https?:)?//(?!www\.w3\.org/2000/svg)[a-z]", text.partition("<script>")[0])
    assert not page.all("src") and "fetch(" not in text and "import(" not in text
    assert page.tags["script"] == page.tags["style"] == 1 and page.tags["svg"] > len(result.programs)
    assert text.startswith("<!doctype html>\n<!-- Written by dslc build -->")  # by which a build knows its own


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_the_numbers_are_those_of_the_plan(lenet: tuple[Checked, BuildResult], target: str) -> None:
    checked, result = lenet
    for program in result.programs:
        if program.target == target:
            facts, memory = Facts(program), program.memory
            assert memory is not None
            assert max(facts.alive) == memory.lower_bound == facts.alive[facts.peak]
            top = max((b.offset + b.bytes for b in facts.blocks), default=0)
            assert memory.work_bytes - 64 < top <= memory.work_bytes or memory.work_bytes == top == 0
    program = train_step(result, target)
    facts = Facts(program)
    working = [n for n in program.schedule or () if not n.op.view]
    assert [w.step for w in facts.work] == list(range(len(working)))
    assert sum(w.flops for w in facts.work) == sum(n.op.cost(n).flops for n in working)
    assert sum(row.nodes for row in facts.lines) == len(working)
    assert sum(row.at_peak for row in facts.lines) <= facts.alive[facts.peak]
    text = report(result, checked.graph)
    for size in (facts.memory.work_bytes, facts.memory.io_bytes, facts.alive[facts.peak]):
        assert size_text(size) in text
    conv = next(b for b in facts.blocks if b.line.number == 7)
    assert f"steps {conv.start} to {conv.end} · at {conv.offset:,} · lenet.nn:7" in text


def test_lifetimes_do_not_clash(lenet: tuple[Checked, BuildResult]) -> None:
    """No two blocks of one step share bytes, but for what is computed in the place of what it reads."""
    for program in lenet[1].programs:
        facts = Facts(program)
        turns = list(facts._in_turn())
        for i, (a, a_end) in enumerate(turns):
            for b, b_end in turns[:i]:
                apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
                assert apart or a_end < b.start or b_end < a.start, (a, b)
        aligned = [Buffer(-(-b.bytes // 64) * 64, b.start, end) for b, end in turns if b.start <= end]
        assert lower_bound(aligned) == max(facts.alive)


def test_the_same_build_gives_the_same_page_and_times_only_when_asked(lenet: tuple[Checked, BuildResult]) -> None:
    checked, result = lenet
    slower = tuple(
        dataclasses.replace(r, passes=tuple(dataclasses.replace(p, seconds=77.125) for p in r.passes))
        for r in result.reports
    )
    other = dataclasses.replace(result, seconds=99.0, reports=slower)
    assert report(result, checked.graph) == report(other, checked.graph)
    told = report(other, checked.graph, times=True)
    assert "77.125" in told and "seconds" not in [t for tag, t in Page(report(result)).texts if tag == "th"]


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    """File names, comments and strings of a source come from anywhere."""
    source = tmp_path / 'a"><script>alert(1)<!--body--><img src=x onerror=alert(2)>\u202e.nn'
    source.write_text(
        "nn 1\ndim B in 1..4 = 2\nmodel M(x: [B, 4]) -> [B, 3] {\n"
        "  return x |> linear(3) as out  # </style><script>alert(3)</script> & <!--title-->\n}\n",
        encoding="utf-8",
    )
    checked = check_file(str(source))
    result = dataclasses.replace(built(checked, Options()), name="<b>&amp;")
    text = report(result, checked.graph)
    page = Page(text)
    assert page.tags["script"] == page.tags["style"] == 1 and not page.tags["img"] and not page.tags["b"]
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert any("</style><script>alert(3)</script>" in t for _, t in page.texts)
    assert "\u202e" not in text and "<b>&amp; · dslc" in [t for _, t in page.texts]


def test_a_large_model_gives_a_small_page_soon(allowed: Callable[[float, float], bool]) -> None:
    checked = check_file(str(MODELS / "resnet50.nn"))
    result = built(checked, Options(target="sm_90", mirror="never"), {"train_step", "predict"})
    took = []
    for _ in range(2):
        start = time.process_time()
        text = report(result, checked.graph)
        took.append(time.process_time() - start)
    Page(text)
    assert len(text) < 700_000 and allowed(min(took), 1.0)
    facts = Facts(train_step(result, "sm_90"))
    rectangles = text.count("<rect") - text.count('aria-hidden="true"><rect')
    assert len(facts.blocks) > 900 and 500 < rectangles < 3_000


def test_small_buffers_together_hold_all_bytes() -> None:
    """What is not drawn by itself is told in sum."""
    from dslc.compiler.report.pictures import memory_svg

    checked = check_file(str(MODELS / "lenet.nn"))
    facts = Facts(train_step(built(checked, Options(), {"train_step"})))
    drawn = memory_svg(facts, lambda _: "cx", 3)
    counted = sum(int(n) for n in re.findall(r"(\d+) small buffers", drawn))
    alone = len(re.findall(r"<title>(?!\d+ small)", drawn))
    assert counted + alone == len(facts.blocks) and 3 <= alone < len(facts.blocks)
    whole = memory_svg(facts, lambda _: "cx", 10_000)
    assert all(f"<title>{b.what} · " in whole for b in facts.blocks if b.bytes * 300 > facts.memory.work_bytes)


def test_two_streams_stand_in_two_rows() -> None:
    from dslc.compiler.report.pictures import time_svg

    checked = check_file(str(MODELS / "lenet.nn"))
    options = Options(target="sm_90", streams=2)
    facts = Facts(train_step(built(checked, options, {"train_step"}), "sm_90"))
    streams = {w.stream for w in facts.work}
    assert streams == {0, 1} and max(facts.alive) == facts.memory.lower_bound
    assert facts.seconds < sum(w.seconds for w in facts.work)  # some run concurrently
    assert len(set(re.findall(r'y="([\d.]+)"', time_svg(facts, lambda _: "cx")))) == 3  # phases and two streams


def test_build_writes_it_and_a_copy_with_times(
    dslc: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.nn").write_text("nn 1\ndim B in 1..4 = 2\nmodel Net(x: [B, 4]) -> [B, 3] {\n  return x |> linear(3)\n}\n")
    ran = dslc("build", "net.nn", "--report", "copy.html", "--json")
    assert ran.code == 0 and ran.json["report"] == "build/net/report.html"
    first = Path("build/net/report.html").read_text(encoding="utf-8")
    assert "seconds</th>" in Path("copy.html").read_text(encoding="utf-8") and "seconds</th>" not in first
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert dslc("build", "../net.nn").code == 0
    assert Path("build/net/report.html").read_text(encoding="utf-8") == first
