"""Every error code has a page."""

from __future__ import annotations

import pytest

from dslc.base.errors import CODES
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
