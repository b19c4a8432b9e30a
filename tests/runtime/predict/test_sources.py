"""The data of each input, from texts of the command line and the sources of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import DslcError, InputError
from dslc.runtime.data.source import Source
from dslc.runtime.predict.sources import sources


def of(text: str) -> Source:
    path, _, key = text.partition(":")
    return Source(Path(path), key or None, text)


KNOWN = {"a": of("old.csv:p,q"), "b": of("old.csv:r"), "c": of("old.npy"), "d": of("pics/:image")}


@pytest.mark.parametrize(
    ("texts", "inputs", "expected"),
    [
        ([], ["a", "c"], {"a": "old.csv:p,q", "c": "old.npy"}),
        (["new.csv"], ["a"], {"a": "new.csv:p,q"}),
        (["new.csv"], ["a", "b"], {"a": "new.csv:p,q", "b": "new.csv:r"}),
        (["b=new.csv", "a=new.csv:x"], ["a", "b"], {"a": "new.csv:x", "b": "new.csv:r"}),
        (["new.csv", "c=x.npy"], ["a", "b", "c"], {"a": "new.csv:p,q", "b": "new.csv:r", "c": "x.npy"}),
        (["photos/"], ["d"], {"d": "photos:image"}),
        (["k=v.npy"], ["k"], {"k": "v.npy"}),
        (["dir/k=v.npy"], ["a"], {"a": "dir/k=v.npy"}),
    ],
)
def test_an_input_gets_its_source(texts: list[str], inputs: list[str], expected: dict[str, str]) -> None:
    found = sources(texts, inputs, KNOWN)
    assert {name: f"{s.path}" + (f":{s.key}" if s.key else "") for name, s in found.items()} == expected


@pytest.mark.parametrize(
    ("texts", "inputs", "words"),
    [
        ([], ["a", "z"], "no data for z"),
        (["x.npy"], ["a", "c"], "has the inputs a, c"),
        (["x.npz"], ["a", "c"], "has the inputs a, c"),
        (["new.csv"], ["c"], "the columns|missing|name"),
        (["new.csv", "a=x.csv:y"], ["a", "b"], "`a` is given twice"),
        (["z=x.npy"], ["a"], "no input `z`"),
        (["x.txt.gz"], ["a"], "does not name any data"),
    ],
)
def test_a_wrong_text_is_told(texts: list[str], inputs: list[str], words: str) -> None:
    with pytest.raises(DslcError, match=words) as caught:
        sources(texts, inputs, KNOWN)
    assert caught.value.code in ("R101", "R105") and caught.value.help


def test_without_a_source_the_help_says_which_data_is_missing() -> None:
    with pytest.raises(InputError) as error:
        sources([], ["x"], {})
    assert "`data.eval` of dslc.yaml has none" in str(error.value.help) and "dslc predict FILE" in str(error.value.help)
