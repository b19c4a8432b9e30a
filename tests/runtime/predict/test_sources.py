"""The data of each input, from texts of the command line and the sources of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import DslcError, InputError
from dslc.runtime.data.source import Source
from dslc.runtime.predict.sources import naming, sources


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
        (["x.txt.gz"], ["a"], "no format has such a name"),
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


@pytest.mark.parametrize(
    ("texts", "inputs", "add"),
    [
        (["a=new.csv"], ["a", "b"], "b=new.csv"),
        (["c=x.npy"], ["a", "c"], "a=old.csv:p,q"),
        (["c=x.npy"], ["c", "d"], "d=pics/:image"),
        (["a=new.jsonl"], ["a", "b"], "b=new.jsonl"),
        (["a=new.csv"], ["a", "z"], "z=new.csv:COLUMN"),
        (["k=x.npz:k"], ["k", "z"], "z=x.npz:z"),
        (["k=x.npy"], ["k", "z"], "z=FILE.npz:KEY"),
    ],
)
def test_the_help_for_a_missing_input_names_the_file(texts: list[str], inputs: list[str], add: str) -> None:
    with pytest.raises(InputError) as error:
        sources(texts, inputs, KNOWN)
    assert error.value.help == f"add {add}"


@pytest.mark.parametrize(
    ("text", "found"),
    [("id", "new.csv:id"), ("a:b", "new.csv:a:b"), ("other.tsv:id", "other.tsv:id"), ("x.jsonl:id", "x.jsonl:id")],
)
def test_names_of_rows_are_a_column_of_the_data_or_of_another_table(text: str, found: str) -> None:
    given = sources(["c=x.npy", "a=new.csv"], ["a", "c"], KNOWN)
    source = naming(text, given)
    assert f"{source.path}:{source.key}" == source.name == found


def test_names_of_rows_need_a_table() -> None:
    with pytest.raises(DslcError, match="names no column") as error:
        naming("id", {"c": of("x.npy")})
    assert "TABLE.csv:COLUMN" in str(error.value.help)
    with pytest.raises(DslcError) as error:
        naming("ids.csv", {"a": of("new.csv:p")})
    assert error.value.help == "write `file.csv:columns`"
