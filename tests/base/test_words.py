"""What other libraries say is shown as a person reads it: one line, no object of ours."""

from __future__ import annotations

import io
import re

import pytest
from places import ROOT

from dslc.base.words import reason, yaml_key
from dslc.runtime.config.yaml import parse_yaml


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError(f"cannot identify image file {io.BytesIO()!r}"), "cannot identify image file it"),
        (TypeError(f"{object()!r} is not callable"), "it is not callable"),
        (ValueError(f"{(lambda: 0)!r}"), "<function <lambda> at"),
        (ValueError("a\nb"), "a"),
        (ValueError(""), "ValueError"),
        (KeyError(), "KeyError"),
        (ValueError(" \n x"), "x"),
        (OSError("y" * 900), "y" * 200),
    ],
)
def test_the_reason_is_one_line_without_objects(error: Exception, shown: str) -> None:
    if "lambda" in shown:
        assert "0x" not in reason(error)
    else:
        assert reason(error) == shown


def test_what_a_library_says_passes_through_reason() -> None:
    """A part of an error's text is what a message of another library is cut to."""
    cut = re.compile(r"(str|repr)\((error|failed|wrong)\)\s*(\.strip\(\))?\s*(\[|\.split)")
    allowed = {
        "dslc/base/words.py",  # `reason` itself
        "dslc/cli/__init__.py",  # what reports that nothing could be loaded
        "dslc/cli/surroundings.py",  # an OSError's first line
        "compiler/lock/text.py",  # the messages of our own reader
    }
    files = [
        p
        for f in ("runtime", "compiler", "dsl", "dslc/base", "dslc/cli", "dslc/own_ops", "dslc/testing", "dslc/tune")
        for p in (ROOT / f).rglob("*.py")
    ]
    found = {str(p.relative_to(ROOT)) for p in files if cut.search(p.read_text(encoding="utf-8"))}
    assert len(files) > 400 and found <= allowed, sorted(found - allowed)


@pytest.mark.parametrize("name", ["area", "Fläche", "two words", "no", "On", "y", "_1"])
def test_a_plain_key_of_yaml(name: str) -> None:
    assert yaml_key(name) == name and keys_of(yaml_key(name)) == [name]


@pytest.mark.parametrize(
    "name",
    ["null", "True", "0", "1_0", "2020-01-01", ".5", "1e3", "emb[0]", "a: b", "a #b", "price, EUR", "{x}", 'say "hi"']
    + ["it's", "%a", "&a", "*a", "!a", "-", "~", "=", " a", "a ", "a  b", "a\\b"],
)
def test_a_key_of_yaml_in_quotes(name: str) -> None:
    assert yaml_key(name)[0] == '"' and keys_of(yaml_key(name)) == [name]


def keys_of(key: str) -> list[str]:
    """The columns that dslc.yaml describes if it has this key on one line, or on a line of its own."""
    found = []
    for text in (f"{{{key}: {{missing: median}}}}", f"{{\n  {key}:\n    {{missing: median}}\n}}"):
        columns = parse_yaml(f"columns: {text}".encode(), "dslc.yaml").data["columns"].data
        found.append(list(columns))
    assert found[0] == found[1]
    return found[0]
