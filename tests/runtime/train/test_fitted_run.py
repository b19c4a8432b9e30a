"""Runs on a table: what is fitted belongs to the run, the same for resume, evaluation and every later use."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.project import FILE, SPLIT, project
from tables.written import WRITERS, random_table
from thinning import taken
from training.fake_session import FakeSession

from dslc.base.errors import DataError
from dslc.runtime.config.load import load_config
from dslc.runtime.data.columns.fitted import NOTE, Fitted
from dslc.runtime.train.checkpoint import CheckpointStore, read_checkpoint
from dslc.runtime.train.loop import evaluate, train
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.notes import of_metadata


def run(folder: Path, *, resume: bool = False, stop: int | None = None, **flags: Any) -> FakeSession:
    session = FakeSession(3)
    config = load_config(folder / "dslc.yaml", {key.replace("__", "."): value for key, value in flags.items()})
    if stop is not None:

        def interrupt(step: int) -> None:
            if step == stop:
                raise RuntimeError("killed")

        session.after_step = interrupt
        with pytest.raises(RuntimeError):
            train(config, session, folder / "build", resume, io.StringIO())
    else:
        train(config, session, folder / "build", resume, io.StringIO())
    return session


@pytest.mark.parametrize(("evaluation", "name"), taken(product((FILE, SPLIT), ("csv", "parquet", "jsonl")), 4))
def test_a_resumed_run_takes_the_facts_of_its_checkpoint(tmp_path: Path, name: str, evaluation: str) -> None:
    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()
        project(tmp_path / folder, name, evaluation)
    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", stop=4)
    resumed = run(tmp_path / "parts", resume=True)
    assert all(whole.state[n].tobytes() == resumed.state[n].tobytes() for n in whole.state)
    assert whole.weights.notes == resumed.weights.notes and NOTE in whole.weights.notes
    published = [tmp_path / folder / "build/toy.safetensors" for folder in ("whole", "parts")]
    assert published[0].read_bytes() == published[1].read_bytes()
    notes = of_metadata(tensorfile.read(published[0]).metadata, "w")
    checkpoint = read_checkpoint(CheckpointStore(tmp_path / "whole/runs/toy", 2).path(4))
    assert dict(checkpoint.notes) == notes == whole.weights.notes
    fitted = Fitted.of_notes(notes, "w")
    assert fitted is not None and fitted.class_names("label") == ("farm", "flat", "house")


def test_a_resume_never_fits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    run(tmp_path, stop=4)
    [step, *_] = CheckpointStore(tmp_path / "runs/toy", 9).steps()
    before = read_checkpoint(CheckpointStore(tmp_path / "runs/toy", 9).path(step)).notes
    table = random_table(1, 40)
    table["area"] = [None if value is None else value * 3 for value in table["area"]]
    WRITERS["t.csv"](tmp_path / "train.csv", table)  # other values, as many rows
    assert run(tmp_path, resume=True).weights.notes == before


def test_evaluation_takes_the_facts_of_the_weights(tmp_path: Path) -> None:
    project(tmp_path)
    trained = run(tmp_path)
    config = load_config(tmp_path / "dslc.yaml")
    expected = evaluate(config, trained, io.StringIO())
    table = random_table(9, 40)
    WRITERS["t.csv"](tmp_path / "train.csv", table)  # another training file changes nothing
    assert evaluate(config, trained, io.StringIO()) == expected
    bare = FakeSession(3)
    with pytest.raises(DataError, match="hold nothing that was fitted to the column `area`"):
        evaluate(config, bare, io.StringIO())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("missing: mean, ", "missing: 0, ", "other options of the column `rooms`"),
        ("    garden: {missing: 0}\n", "", "trained with `data.columns.garden`, which the configuration lacks"),
        (
            "kind: {categories: index}",
            "kind: {categories: index, unknown: other}",
            "other options of the column `kind`",
        ),
    ],
)
def test_another_configuration_than_the_weights_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    project(tmp_path)
    trained = run(tmp_path, stop=4)
    text = (tmp_path / "dslc.yaml").read_text()
    assert old in text
    (tmp_path / "dslc.yaml").write_text(text.replace(old, new))
    config = load_config(tmp_path / "dslc.yaml")
    for attempt in (lambda: evaluate(config, trained, io.StringIO()), lambda: run(tmp_path, resume=True)):
        with pytest.raises(DataError, match=says) as caught:
            attempt()
        assert caught.value.code == "R104"


def test_other_columns_for_an_input_are_refused(tmp_path: Path) -> None:
    project(tmp_path)
    trained = run(tmp_path)
    config = load_config(tmp_path / "dslc.yaml", {"data.eval.x": str(tmp_path / "eval.csv") + ":area,garden,rooms"})
    with pytest.raises(DataError, match="the training read area, rooms, garden"):
        evaluate(config, trained, io.StringIO())


def test_a_plain_table_names_its_columns_and_needs_no_facts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{a:.3f},{b:.3f},{c:.3f},{d:.3f},{i % 3}" for i, (a, b, c, d) in enumerate(rng.random((40, 4))))
    (tmp_path / "t.csv").write_text("a,b,c,d,y\n" + rows)
    (tmp_path / "dslc.yaml").write_text(
        "model: toy.nn\ndata: {train: {x: 't.csv:a..d', label: t.csv:y}, eval: {x: 't.csv:a..d', label: t.csv:y}}\n"
        "train: {seed: 3}\nsave: {dir: runs/toy}\n"
    )
    trained = run(tmp_path)
    fitted = Fitted.of_notes(trained.weights.notes, "w")
    assert fitted == Fitted({}, {"x": ("a", "b", "c", "d"), "label": ("y",)}, {})
    bare = FakeSession(3)
    bare.state = trained.state
    config = load_config(tmp_path / "dslc.yaml")
    assert evaluate(config, bare, io.StringIO()) == evaluate(config, trained, io.StringIO())
