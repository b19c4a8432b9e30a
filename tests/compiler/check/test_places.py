"""Every error of a program shows the line of the source that it is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import GOLDEN
from sources.bad_programs import BAD
from sources.in_memory import files

from dslc.base.errors import CODES
from dslc.base.explain import fences, page
from dslc.compiler.check.model import check_all, check_program
from dslc.dsl.diagnostics import CompileError, Diagnostic, render

PAGES = [(c, text) for c in CODES if c.startswith("E") for info, text in fences(page(c)) if info == "nn bad"]


def shows_its_line(diagnostic: Diagnostic) -> None:
    span = diagnostic.label.span
    text = render(diagnostic)
    shown = re.search(rf"^ *{span.line} \|(.*)$", text, re.MULTILINE)
    assert shown is not None, text
    assert span.text.split("\n")[0][:40] in shown.group(1), text
    assert re.search(r"^ +\| .*[\^]", text, re.MULTILINE), text
    assert diagnostic.as_json()["label"]["line"] == span.line


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_programs(name: str) -> None:
    with pytest.raises(CompileError) as caught:
        check_program(files(BAD[name][0]))
    for diagnostic in caught.value.diagnostics:
        shows_its_line(diagnostic)


@pytest.mark.parametrize(("code", "text"), PAGES, ids=[code for code, _ in PAGES])
def test_the_bad_examples_of_the_pages(code: str, text: str, tmp_path: Path) -> None:
    """All of them are found by the check, none only by a build."""
    (tmp_path / "page.nn").write_text(text)
    with pytest.raises(CompileError) as caught:
        check_all(tmp_path / "page.nn")
    assert code in [d.code for d in caught.value.diagnostics]
    for diagnostic in caught.value.diagnostics:
        shows_its_line(diagnostic)


def test_golden_messages() -> None:
    found = 0
    for path in (GOLDEN / "diagnostics").rglob("*.txt"):
        for message in re.split(r"\n(?=(?:error|warning)\[[EW]\d+\])", path.read_text(encoding="utf-8"))[1:]:
            found += 1
            assert re.search(r"^ *\d+ \|", message, re.MULTILINE), f"{path.name}: {message}"
    assert found > 200
