"""Notes: every file that carries weights carries their notes, and a damaged note is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.session.session import Session
from dslc.runtime.train.checkpoint import Position, read_checkpoint, write_checkpoint
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import checked, of_metadata, to_metadata

Open = Callable[..., Session]
NOTES = {"dslc.data": '{"columns":{"straße":[1.5,"\\u00e9\\n"]}}', "dslc.run.name": "first \U0001f600"}


def test_notes_are_saved_loaded_merged_and_replaced(open_line: Open, tmp_path: Path) -> None:
    session = open_line(seed=1)
    assert session.weights.notes == {}
    session.weights.save(tmp_path / "w", notes=NOTES)
    assert session.weights.notes == {}  # writing a file does not change the session
    session.weights.load(tmp_path / "w")
    assert session.weights.notes == NOTES
    session.weights.notes["dslc.data"] = "a copy"
    assert session.weights.notes == NOTES
    session.weights.save(tmp_path / "more", notes={"dslc.run.name": "second", "dslc.x": ""})
    session.weights.load(tmp_path / "more")
    assert session.weights.notes == {**NOTES, "dslc.run.name": "second", "dslc.x": ""}
    session.weights.notes = {}
    session.weights.save(tmp_path / "none")
    session.weights.load(tmp_path / "more")
    session.weights.load(tmp_path / "none")
    assert session.weights.notes == {}


def test_every_checkpoint_carries_the_notes_of_the_weights(open_line: Open, tmp_path: Path) -> None:
    session, other = open_line(seed=1), open_line(seed=2)
    session.weights.notes = NOTES
    session.save_checkpoint(tmp_path / "c")
    other.load_checkpoint(tmp_path / "c")
    assert other.weights.notes == NOTES
    position = Position(0, 0, 0, 1, 4, 4, "", "")
    write_checkpoint(tmp_path / "t", session.state_tensors(), position, notes=NOTES)
    assert read_checkpoint(tmp_path / "t").notes == NOTES
    other.initialise()
    assert other.weights.notes == {}  # initial weights were fitted to no data
    other.load_checkpoint(tmp_path / "t")
    assert other.weights.notes == NOTES


def test_notes_do_not_change_the_tensors_bytes(open_line: Open, tmp_path: Path) -> None:
    session = open_line(seed=1)
    session.weights.save(tmp_path / "a")
    session.weights.save(tmp_path / "b", notes=NOTES)
    a, b = (tensorfile.read(tmp_path / name) for name in "ab")
    assert b.verified and a.tensors.keys() == b.tensors.keys()
    assert all(np.array_equal(a.tensors[name].raw, b.tensors[name].raw) for name in a.tensors)


@pytest.mark.parametrize(
    "name", ["data", "dslc", "dslc.", "dslc.Data", "dslc.position", "dslc.session", "dslc.a.sha256"]
)
def test_names_that_are_not_notes_are_refused(open_line: Open, tmp_path: Path, name: str) -> None:
    session = open_line(seed=1)
    with pytest.raises(InputError, match="R105"):
        session.weights.save(tmp_path / "w", notes={name: "x"})
    with pytest.raises(InputError, match="R105"):
        session.weights.notes = {name: "x"}
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("text", [1, None, b"x", "\ud800", "x" * ((4 << 20) + 1)])
def test_values_that_are_not_text_or_too_long_are_refused(text: object) -> None:
    with pytest.raises(InputError, match="R105"):
        checked({"dslc.data": text}, "here")  # type: ignore[dict-item]


def test_a_changed_note_is_damage_for_every_reader(open_line: Open, tmp_path: Path) -> None:
    session = open_line(seed=1)
    metadata = {**to_metadata(NOTES), "dslc.data": "changed"}
    with pytest.raises(ArtifactError, match="R306"):
        of_metadata(metadata, "w")
    tensors = {name: session.weights[name] for name in session.weights}
    (tmp_path / "w").write_bytes(tensorfile.encode(tensors, metadata))
    session.weights.notes = {"dslc.kept": "yes"}
    before = {name: session.weights[name] for name in session.weights}
    with pytest.raises(ArtifactError, match="does not match its digest"):
        session.weights.load(tmp_path / "w")
    assert session.weights.notes == {"dslc.kept": "yes"}  # all or nothing
    assert all(np.array_equal(session.weights[name], before[name]) for name in before)
