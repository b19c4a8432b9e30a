"""Every error code has a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import ROOT

from dslc.base.errors import CODES, DslcError
from dslc.base.explain import PAGES, fences, page


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page(code: str) -> None:
    text = page(code)
    assert text.startswith(f"# {code}: {CODES[code]}\n\n") and text.endswith("\n")
    assert 4 <= text.count("\n") <= 60
    assert max(map(len, text.splitlines())) <= 110
    assert text.count("```") % 2 == 0
    assert all(info in ("nn", "nn bad", "text") for info, _ in fences(text))


def test_there_is_no_page_without_a_code() -> None:
    assert {path.stem for path in PAGES.iterdir()} == set(CODES)
    with pytest.raises(KeyError):
        page("E9999")


def test_fences() -> None:
    assert fences("a\n```nn bad\nx\n```\n```\n```\n") == [("nn bad", "x\n"), ("", "")]


EXAMPLES = [(code, info, text) for code in CODES for info, text in fences(page(code)) if info.startswith("nn")]


@pytest.mark.parametrize(("code", "info", "text"), EXAMPLES, ids=[f"{c}-{i.replace(' ', '-')}" for c, i, _ in EXAMPLES])
def test_bad_examples_give_their_code_and_mended_ones_none(code: str, info: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "page.nn"
    file.write_text(text, encoding="utf-8")
    assert found_in(file) == ([code] if info == "nn bad" else [])


def found_in(file: Path) -> list[str]:
    """The codes that checking the file, or else the graph of its training step, gives."""
    from dslc.compiler.check.model import check_all
    from dslc.compiler.options import Options, entry_sizes
    from dslc.compiler.pipeline import compile_entry

    try:
        for checked in check_all(file):
            for entry, sizes in entry_sizes(checked, Options(provider="reference")):
                compile_entry(checked, entry, sizes, Options(provider="reference"), after="autodiff")
    except DslcError as error:
        return [item["code"] for item in error.as_json()]
    return []


def test_most_codes_of_the_language_have_an_example() -> None:
    shown = {code for code, info, _ in EXAMPLES if info == "nn bad"}
    language = {code for code in CODES if code.startswith("E") and not code.startswith(("E04", "E06"))}
    # Too long, too deep or too many to print; a circle of files; a choice of models; none that a user reaches so far.
    assert language - shown == {"E0002", "E0004", "E0107", "E0111", "E0114", "E0507"}
    mended = {code for code, info, _ in EXAMPLES if info == "nn"}
    assert shown - mended == {"E0108"}


def test_the_guide_to_the_language_checks(tmp_path: Path) -> None:
    guide = ROOT / "docs" / "language.md"
    examples = [text for info, text in fences(guide.read_text(encoding="utf-8")) if info == "nn"]
    assert len(examples) >= 3
    for text in examples:
        (tmp_path / "guide.nn").write_text(text, encoding="utf-8")
        assert found_in(tmp_path / "guide.nn") == []
