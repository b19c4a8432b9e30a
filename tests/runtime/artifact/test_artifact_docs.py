"""docs/artifact.md says what the code does: its tables are compared with the schemas."""

from __future__ import annotations

import json
import re

import pytest
from places import ROOT

from dslc.base.schema import ListOf, Record, Row, checker
from dslc.runtime.artifact import container, header_schema, plan_schema
from dslc.runtime.artifact.instructions import INSTRUCTIONS
from dslc.runtime.extents import LETTERS

TEXT = (ROOT / "docs" / "artifact.md").read_text()


def table(title: str, text: str = TEXT) -> dict[str, list[str]]:
    """A table by its header line: first cell -> the words in backticks of the second."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(title):
            break
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = line.strip("|").split("|")
        for name in re.findall(r"`([^`]+)`", cells[0]):
            rows[name] = re.findall(r"`([^`]+)`", cells[1])
    return rows


def row_fields(schema: object) -> list[str]:
    assert isinstance(schema, Row)
    return [name for name in schema.fields if name != "tag"]


def test_every_instruction_stands_there() -> None:
    found = table("| tag |")
    assert found == {tag: row_fields(row) for tag, row in plan_schema.INSTRUCTION.kinds.items()}
    assert found.keys() == INSTRUCTIONS.keys()


def test_the_comparison_can_fail() -> None:
    assert table("| tag |", TEXT.replace("`shared_bytes`, ", "")) != table("| tag |")


def test_every_table_of_a_plan_stands_there() -> None:
    found = table("| table |")
    tables = {**plan_schema.PLAN.fields, **plan_schema.PLAN.optional}
    assert found.keys() == tables.keys()
    for name in found.keys() - {"instructions", "names"}:
        schema = tables[name]
        assert isinstance(schema, ListOf)
        assert found[name] == row_fields(schema.of)


def test_every_field_of_the_header_stands_there() -> None:
    assert table("| field |").keys() == {*header_schema.HEADER.fields, *header_schema.HEADER.optional}


def test_every_field_of_a_kernels_row_stands_there() -> None:
    [told] = re.findall(r"^`kernels`:.*?\n\n", TEXT, flags=re.DOTALL | re.MULTILINE)
    places = [told.index(f"`{name}`") for name in row_fields(plan_schema.LAUNCH)]
    assert places == sorted(places)
    [example] = re.findall(r"`(\[.*?\])`", told, flags=re.DOTALL)
    row = json.loads(example)
    checker(plan_schema.LAUNCH)(row)
    assert all(f"{letter} `{kind}`" in told for kind, letter in LETTERS.items() if letter != "v")
    for part in ("state", "programs", "interface"):
        schema = header_schema.HEADER.fields[part]
        if isinstance(schema, ListOf):
            schema = schema.of
        assert isinstance(schema, Record)
        paragraph = next(p for p in TEXT.split("\n\n") if p.startswith(f"`{part}`:"))
        for name in [*schema.fields, *schema.optional]:
            assert f"`{name}`" in paragraph, (part, name)


@pytest.mark.parametrize("entry", header_schema.ENTRIES)
def test_every_entry_stands_there(entry: str) -> None:
    assert entry in table("| entry |")


def test_words_and_limits_stand_there() -> None:
    words = (
        *plan_schema.REGIONS, *plan_schema.PROVIDERS, *plan_schema.EPILOGUES, *plan_schema.COLLECTIVES,
        *plan_schema.REDUCTIONS, *plan_schema.OUTPUT_KINDS, *header_schema.BLOB_KINDS, *header_schema.FEATURES,
        container.END.decode(), container.MAGIC.hex(" "), str(plan_schema.SHARED_BYTES), str(plan_schema.GRID[0]),
    )  # fmt: skip
    assert not [word for word in words if word not in TEXT]
