"""A damaged or hostile record is told as such: it raises nothing, and hides no other run."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.base.errors import ArtifactError, DataError
from dslc.runtime.history.folders import CONFIG_NAME, StoredRun, _folders, all_runs, find_run, run_in
from dslc.runtime.train.plot import curves, svg
from dslc.runtime.train.rundir import RECORD_NAME

RECORD: dict[str, Any] = {
    "format": 1, "name": "toy", "state": "finished", "epochs": 4, "epoch": 4, "step": 24, "steps": 24, "seed": 3,
    "artifact": "sha256:aa", "interface": "ii", "versions": {"dslc": "1"},
    "best": {"metric": "accuracy", "highest": True, "step": 24, "value": 0.5}, "metrics": {"loss": 1.0},
    "weights": {"run": "toy", "step": 24, "metric": "accuracy", "highest": True, "value": 0.5, "data": "d"},
    "error": None, "times": {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:01:00+00:00"},
}  # fmt: skip
CONFIG: dict[str, Any] = {"format": 1, "values": {"train.epochs": {"value": 4, "origin": "default"}}}


def written(root: Path, name: str, record: bytes | str, config: bytes | str = json.dumps(CONFIG)) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for file, text in ((RECORD_NAME, record), (CONFIG_NAME, config)):
        (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def looked_at(run: StoredRun) -> None:
    """Everything that a list or a comparison reads; its numbers can be formatted."""
    assert isinstance(run.state, str) and isinstance(run.started, str) and isinstance(run.text("artifact"), str)
    for value in (*run.metrics.values(), run.number("step"), run.seconds, *(run.best or ())[1:]):
        assert value is None or f"{value:.4g}"
    json.dumps(run.config, allow_nan=False)
    svg(curves(run.folder / "log.jsonl"))


def test_a_good_record_is_read(tmp_path: Path) -> None:
    run = run_in(written(tmp_path, "toy", json.dumps(RECORD)))
    assert (run.state, run.best, run.seconds, run.config) == (
        "finished", ("accuracy", 0.5, 24), 60.0, {"train.epochs": 4},
    )  # fmt: skip


def test_a_folder_of_runs_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    assert all_runs(tmp_path / "none") == []
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(DataError, match="R101") as caught:
        all_runs(tmp_path / "runs")
    assert caught.value.place == str(tmp_path / "runs")


BAD = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "too deep to parse": b"[" * 200_000,
    "too deep": json.dumps({**RECORD, "x": None}).replace('"x": null', '"x": ' + "[" * 500 + "]" * 500),
    "too long": json.dumps({**RECORD, "x": "a" * (1 << 20)}),
    "no number": json.dumps({**RECORD, "step": float("nan")}),
    "too many digits": json.dumps(RECORD).replace('"step": 24', '"step": ' + "9" * 5000, 1),
    "another format": json.dumps({**RECORD, "format": 2}),
    "another state": json.dumps({**RECORD, "state": ["finished"]}),
    "without a name": json.dumps({**RECORD, "name": None}),
}


#: The last ones are about fields that only a record has.
PLACES = [(RECORD_NAME, kind) for kind in BAD] + [(CONFIG_NAME, kind) for kind in list(BAD)[:7]]


@pytest.mark.parametrize(("file", "kind"), PLACES)
def test_a_bad_file_hides_no_other_run(tmp_path: Path, kind: str, file: str) -> None:
    bad = BAD[kind]
    record, config = (bad, json.dumps(CONFIG)) if file == RECORD_NAME else (json.dumps(RECORD), bad)
    written(tmp_path, "bad", record, config)
    written(tmp_path, "good", json.dumps(RECORD))
    bad_run, good = all_runs(tmp_path)
    assert bad_run.state == "damaged" and bad_run.damaged and good.state == "finished"
    looked_at(bad_run)
    assert find_run(tmp_path, "good") == good and find_run(tmp_path, "bad").damaged == bad_run.damaged


def _link(path: Path) -> None:
    other = path.parent.parent / "elsewhere.json"
    other.write_text(json.dumps(RECORD))
    path.symlink_to(other)


ENTRIES: dict[str, Callable[[Path], None]] = {
    "a link": _link,
    "a dangling link": lambda path: path.symlink_to("/nowhere"),
    "a loop": lambda path: path.symlink_to(path.name),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("file", [RECORD_NAME, CONFIG_NAME, "log.jsonl", ".dslc-run"])
def test_what_is_no_regular_file_is_not_followed(tmp_path: Path, kind: str, file: str) -> None:
    folder = written(tmp_path, "bad", json.dumps({**RECORD, "state": "running"}))
    written(tmp_path, "good", json.dumps(RECORD))
    (folder / file).unlink(missing_ok=True)
    ENTRIES[kind](folder / file)
    bad_run, good = all_runs(tmp_path)
    assert bad_run.state == ("damaged" if file.endswith(".json") else "killed") and good.state == "finished"
    looked_at(bad_run)


def test_mutated_records_are_told_not_raised(tmp_path: Path, fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    strange = [None, True, -1, 10**30, 1e308, "", "\x1b[2J\ud800", [], {}, [[1]], {"a": {"value": 1e999}}, "9" * 99]
    text = json.dumps(RECORD).encode()
    folder = written(tmp_path, "bad", text)
    for _ in range(600):
        if rng.random() < 0.5:
            data = bytearray(text)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        else:
            record = json.loads(text)
            inside = rng.choice([record, record["best"], record["weights"], record["times"], record["metrics"]])
            inside[rng.choice([*inside, "new"])] = rng.choice(strange)
            data = bytearray(json.dumps(record).encode())
        (folder / RECORD_NAME).write_bytes(data)
        (folder / CONFIG_NAME).write_text(json.dumps({"values": rng.choice([*strange, CONFIG["values"]])}))
        for run in (run_in(folder), *all_runs(tmp_path)):
            looked_at(run)


@pytest.mark.parametrize(
    "line",
    ['{"step": 1, "kind": [], "loss": 1}', '{"step": 1, "kind": "eval", "loss": 1' + "0" * 400 + "}",
     '{"step": 1' + "0" * 400 + ', "kind": "eval", "loss": 1}', '{"step": 1, "kind": "eval", "loss": true}',
     '{"step": 1, "kind": "epoch", "loss": NaN}'],
)  # fmt: skip
def test_a_damaged_log_is_drawn_without_its_bad_values(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_text(line + '\n{"step": 2, "kind": "eval", "loss": 0.5}\n')
    assert curves(tmp_path / "log.jsonl") == {"loss": {"eval": [(2.0, 0.5)]}}


@pytest.mark.parametrize("name", ["", "a" * 5000, "a\0b", "no", "../nowhere", "x\ud800"])
def test_a_name_that_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    written(tmp_path, "good", json.dumps(RECORD))
    (tmp_path / "checkpoints").mkdir()  # the root itself is no run
    with pytest.raises(ArtifactError) as caught:
        find_run(tmp_path, name)
    assert caught.value.code == "R307"


def test_no_run_is_left_out_of_many(tmp_path: Path) -> None:
    for at in range(10_050):
        (tmp_path / f"{at}" / RECORD_NAME).mkdir(parents=True)  # a record of any kind: here one that cannot be read
    assert sum(1 for _ in _folders(tmp_path)) == 10_050
