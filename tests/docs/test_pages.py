"""The pages that teach: each of their code blocks is run, in order, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages.blocks import like, run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["tutorial.md", "pytorch.md", "cookbook.md", "sweep.md"])
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    assert run_page(DOCS / name, tmp_path) >= 4


def test_the_page_for_users_of_pytorch_names_everything() -> None:
    """Each function, optimizer and initialiser with a page of its own."""
    names = re.findall(r"^### (\w+)$", (DOCS / "ops.md").read_text(encoding="utf-8"), re.MULTILINE)
    code = " ".join(re.findall(r"`([^`\n]+)`", (DOCS / "pytorch.md").read_text(encoding="utf-8")))
    assert len(names) > 200
    assert not [name for name in names if not re.search(rf"\b{name}\b", code)]


def test_a_row_of_a_table_is_one_line() -> None:
    """Markdown ends a table at a row that is broken, as by a docstring of several lines."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))]
    rows = [
        line for page in pages for line in re.sub(r"(?ms)^```.*?^```$", "", page).split("\n") if line.startswith("|")
    ]
    assert len(rows) > 500
    assert not [row for row in rows if not row.endswith("|")]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb", "a\nc", False),
        ("...\nb", "a\na\nb", True),
        ("...\nb", "a\nb\nc", False),
        ("a\n...", "a\nb\nc", True),
        ("loss ...  (3 rows)", "loss 0.5  (3 rows)", True),
        ("loss ...  (3 rows)", "loss 0.5  (4 rows)", False),
        ("a", "ab", False),
    ],
)
def test_outputs_are_compared(expected: str, printed: str, same: bool) -> None:
    assert bool(like(expected).match(printed)) == same


@pytest.mark.parametrize(
    "page",
    ["```sh\nfalse\n```\n", "```sh\necho a\n```\n```text\nb\n```\n", "```yaml\na: 1\n```\n", "```text\na\n```\n"],
)
def test_a_page_that_is_wrong_fails(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=r"page\.md:"):
        run_page(tmp_path / "page.md", tmp_path)
