"""The canonical layout: what is changed, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from places import MODELS

from dslc.dsl.diagnostics import CompileError
from dslc.dsl.format import printer
from dslc.dsl.format.printer import format_file
from dslc.dsl.span import Source

SOURCES = sorted(MODELS.glob("*.nn"))
CASES = sorted((Path(__file__).parent / "format").glob("*.nn"))


@pytest.mark.parametrize("path", [*SOURCES, *CASES], ids=lambda path: path.stem)
def test_layout(path: Path, golden: Callable[[str, str], None]) -> None:
    text = format_file(Source(path.name, path.read_text()))
    golden(f"format/{path.name}", text)
    assert format_file(Source(path.name, text)) == text
    assert max(len(line.partition("#")[0]) for line in text.splitlines()) <= 102


def test_layout_is_the_same_whatever_it_was_before() -> None:
    for path in SOURCES:
        text = path.read_text()
        wanted = format_file(Source(path.name, text))
        squeezed = "\n".join(line.strip() for line in text.splitlines())
        spread = "\r\n".join(line if "#" in line else line.replace(",", "  ,\t") for line in text.splitlines())
        for other in (squeezed, spread):
            assert format_file(Source(path.name, other)) == wanted, path.name


def test_a_text_that_does_not_parse_is_refused() -> None:
    with pytest.raises(CompileError):
        format_file(Source("a.nn", "nn 1\nconst a = = 3\n"))


def test_a_lost_comment_or_a_changed_tree_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for spoil in (lambda text: text.replace("# b", ""), lambda text: text.replace("3", "4")):
        run = printer._Formatter.run
        with monkeypatch.context() as patch:
            patch.setattr(printer._Formatter, "run", lambda self, spoil=spoil, run=run: spoil(run(self)))
            with pytest.raises(AssertionError, match="left as it is"):
                format_file(Source("a.nn", "nn 1\nconst a = 3  # b\n"))
