"""The site: it is built, its links lead somewhere, and no page is left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_builder", DOCS / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_site_is_built_and_its_links_lead_somewhere(site: ModuleType, tmp_path: Path) -> None:
    html = site.build(tmp_path)
    assert list(site.broken_links(html)) == []
    assert list(site.broken_blocks(html)) == []
    assert "site.css" in (html / "docs/config.html").read_text()
    made = {path.relative_to(html).with_suffix(".md").as_posix() for path in html.rglob("*.html")}
    named = {name.replace("/README.md", "/index.md") for names in site.SECTIONS.values() for name in names}
    assert named | {"index.md"} <= made
    assert (html / "search.json").exists()


def test_each_page_of_docs_is_in_a_section(site: ModuleType) -> None:
    listed = {name for names in site.SECTIONS.values() for name in names}
    there = {f"docs/{path.name}" for path in DOCS.glob("*.md")} - {"docs/README.md"}
    assert there == {name for name in listed if name.startswith("docs/")}


@pytest.mark.parametrize("link", ["missing.html", "b.html#nothing", "../out.html", "pic.png"])
def test_a_broken_link_is_found(link: str, site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f'<a href="{link}">x</a><a href="b.html#here">y</a><a href="https://x.y">z</a>')
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1><a href="#here">a</a>')
    assert list(site.broken_links(tmp_path)) == [f"a.html: {link}"]


def test_blocks_keep_their_language_and_title(site: ModuleType) -> None:
    for words, kept in (
        ("sh", "sh"),
        ('sh test="skip"', "sh"),
        ("nn bad", "nn"),
        ('python title="a.py" test="skip"', 'python title="a.py"'),
        ('python test="skip" title="a.py"', 'python title="a.py"'),
    ):
        assert site._staged(Path("docs/a.md"), f"a\n```{words}\nx = 1\n```\nb\n") == f"a\n```{kept}\nx = 1\n```\nb\n"


def test_lists_follow_an_empty_line(site: ModuleType) -> None:
    page = "# Title\n\nText:\n- one\n  more\n- two\n\n1. first\n2. second\n\n```\nx\n- no list\n```\nEnd\n* star\n"
    found = site._staged(Path("docs/page.md"), page)
    assert found == page.replace("Text:\n", "Text:\n\n").replace("End\n", "End\n\n")


def test_a_block_that_is_shown_as_text_is_found(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>```nn bad model</p>")
    (tmp_path / "b.html").write_text("<pre>model</pre>")
    assert list(site.broken_blocks(tmp_path)) == ["a.html"]
