"""A log is read while it grows, and while others damage it; what was delivered is remembered."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from dslc.runtime.sinks.delivered import Delivered, read_delivered, write_delivered
from dslc.runtime.sinks.sink import Point
from dslc.runtime.sinks.tail import Tail
from dslc.runtime.train.metrics import Log


def line(step: int, kind: str = "step", **values: object) -> bytes:
    return json.dumps({"kind": kind, "step": step, "epoch": 0, **values}).encode() + b"\n"


def test_points_are_read_as_they_come(tmp_path: Path) -> None:
    path, told = tmp_path / "log.jsonl", list[str]()
    tail = Tail(path)
    assert tail.read() == []
    log = Log(path, told.append)
    for step in range(3):
        log.write("step", step, 0, {"loss": 1 / (step + 3), "ok": True, "of": "w"})
        assert tail.read() == [Point("step", step, 0, {"loss": 1 / (step + 3)})]
    log.write("eval", 3, 1, {"loss": math.inf, "a": math.nan, "b": -math.inf, "rows": 21})
    log.write("nonfinite", 3, 1, {"of": "loss", "loss": math.nan})
    [point] = tail.read()
    assert point.values["loss"] == math.inf and point.values["b"] == -math.inf and math.isnan(point.values["a"])
    assert set(point.values) == {"loss", "a", "b"} and tail.read() == [] and not told


def test_a_line_counts_when_it_is_complete(tmp_path: Path) -> None:
    path, tail = tmp_path / "log.jsonl", Tail(tmp_path / "log.jsonl")
    path.write_bytes(line(1) + line(2)[:-5])
    assert [point.step for point in tail.read()] == [1]
    with path.open("ab") as file:
        file.write(line(2)[-5:] + line(3))
    assert [point.step for point in tail.read()] == [2, 3]


@pytest.mark.parametrize(
    "bad",
    [b"{\n", b"3\n", b"[" * 100_000 + b"\n", b"\xff\xfe\n", line(2, kind="x"), line(2).replace(b'"epoch"', b'"e"'),
     line(2).replace(b"2", b'"2"'), line(2).replace(b"2", b"true"), b"x" * 3_000_000 + b"\n"],
)  # fmt: skip
def test_a_bad_line_is_passed_over(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(line(1) + bad + line(3))
    tail = Tail(path)
    assert [point.step for _ in range(8) for point in tail.read()] == [1, 3]


def test_a_long_log_comes_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(line(step, loss=0.5) for step in range(50_000)))
    tail, parts = Tail(path), list[int]()
    while points := tail.read():
        assert [point.step for point in points] == list(range(sum(parts), sum(parts) + len(points)))
        parts.append(len(points))
    assert sum(parts) == 50_000 and max(parts) < 25_000


def test_a_log_that_is_gone_or_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(line(1) + line(2))
    tail = Tail(path)
    assert len(tail.read()) == 2
    path.unlink()
    assert tail.read() == []
    path.write_bytes(line(1))
    assert [point.step for point in tail.read()] == [1], "the follower knows what it has delivered"
    path.unlink()
    os.mkfifo(path)
    assert tail.read() == []
    path.unlink()
    path.symlink_to(tmp_path / "other")
    (tmp_path / "other").write_bytes(line(1) * 9)
    assert tail.read() == []


def test_what_was_delivered(tmp_path: Path) -> None:
    points = [
        Point(kind, step, 0, {}) for step, kind in ((2, "step"), (4, "eval"), (4, "step"), (4, "epoch"), (6, "step"))
    ]
    there = Delivered()
    for at, point in enumerate(points):
        assert [there.has(each) for each in points] == [number < at for number in range(5)]
        there = there.after(point)
        write_delivered(tmp_path, "mine", there)
        assert read_delivered(tmp_path, "mine") == there
    assert read_delivered(tmp_path, "other") == Delivered()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"step": -1, "kinds": []}', '{"step": 1}', '{"step": true, "kinds": []}',
             '{"step": 1, "kinds": "step"}', '{"step": 1, "kinds": ["x"]}', '{"step": 1, "kinds": [[]]}', "[" * 4000,
             '{"step": 1e3, "kinds": []}', f'{{"step": {2**60}, "kinds": []}}', " " * 9000],
)  # fmt: skip
def test_a_damaged_note_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks/mine.json").write_text(text)
    assert read_delivered(tmp_path, "mine") == Delivered()
