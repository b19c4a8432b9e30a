"""The site: it is built, its links lead somewhere, and no page is left out."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def site() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("site_builder", DOCS / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))  # as for the script
        spec.loader.exec_module(module)
        yield module


@pytest.mark.slow
def test_the_site_is_built_and_its_links_lead_somewhere(site: ModuleType, tmp_path: Path) -> None:
    html = site.build(tmp_path)
    assert list(site.broken_links(html)) == []
    assert list(site.broken_blocks(html)) == []
    assert list(site.other_servers(html)) == []
    index = (html / "index.html").read_text()
    assert '<svg class="diagram"' in index and '<span class="nc">LeNet</span>' in index
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


def test_what_pages_load_from_other_servers_is_found(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="https://x.y/z.js"></script><script src="own.js"></script><a href="https://x.y">link</a>'
        '<link rel="stylesheet" href="//x.y/z.css"><link rel="canonical" href="https://x.y/a.html">'
    )
    assert list(site.other_servers(tmp_path)) == ["a.html: https://x.y/z.js", "a.html: //x.y/z.css"]


def _blocks(language: str) -> Iterator[str]:
    for path in (*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"):
        yield from re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def test_each_diagram_is_drawn(site: ModuleType) -> None:
    drawn = [site.diagram.svg(source) for source in _blocks("mermaid")]
    assert len(drawn) >= 2 and all("\n" not in picture for picture in drawn)


def test_a_diagram_has_its_boxes_lines_and_frame(site: ModuleType) -> None:
    source = (
        'flowchart LR\n  subgraph f["a frame"]\n    a[one] -- x, y --> b["2 < 3<br/>lines"]\n  end\n  a -->|"z"| c\n'
    )
    picture = site.diagram.svg(source)
    assert [picture.count(f'class="{name}"') for name in ("box", "edge", "frame", "label")] == [3, 2, 1, 3]
    assert "2 &lt; 3" in picture and picture.index(">one<") < picture.index(">lines<")


@pytest.mark.parametrize(("source", "why"), [("a --> b\nb --> a", "circle"), ("a ==> b", "is not read: a ==> b")])
def test_a_diagram_that_cannot_be_drawn_is_refused(source: str, why: str, site: ModuleType) -> None:
    with pytest.raises(ValueError, match=why):
        site.diagram.svg(source)


def test_models_are_coloured(site: ModuleType) -> None:
    from nn_lexer import NnLexer
    from pygments.token import Error, Keyword, Name

    sources = [*_blocks("nn"), *(path.read_text() for path in DOCS.parent.glob("examples/*/*.nn"))]
    assert len(sources) > 20
    for source in sources:
        tokens = list(NnLexer().get_tokens(source))
        assert "".join(text for _, text in tokens).strip() == source.strip()
        assert [text for kind, text in tokens if kind in Error] == []
    found = list(NnLexer().get_tokens("model Net(x: [B]) {\n  return x |> relu as a  # model\n}\n"))
    assert (Keyword, "return") in found and (Name.Class, "Net") in found and (Name.Function, "relu") in found
    assert [text for kind, text in found if kind is Keyword] == ["model", "return", "as"]


def test_a_model_without_a_language_gets_one(site: ModuleType) -> None:
    assert site._staged(Path("docs/a.md"), "```\nnn 1\n```\n```\ntext\n```\n") == "```nn\nnn 1\n```\n```\ntext\n```\n"


def test_a_diagram_is_a_picture_on_its_page(site: ModuleType) -> None:
    page = site._staged(Path("docs/a.md"), "a\n\n```mermaid\nflowchart LR\n  a --> b\n```\n\n```sh\nls\n```\n")
    assert page.startswith('a\n\n<div class="diagram"><svg ') and page.endswith("</svg></div>\n\n```sh\nls\n```\n")
