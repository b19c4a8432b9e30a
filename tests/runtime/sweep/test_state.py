"""sweep.json: what is written is read; what is damaged or hostile is refused, quickly and with a reason."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslc.base.errors import ArtifactError, DslcError
from dslc.runtime.config.load import config_source
from dslc.runtime.config.policies import Best
from dslc.runtime.sweep.plan import plan_sweep
from dslc.runtime.sweep.pool import Place, places
from dslc.runtime.sweep.resume import choose_folder
from dslc.runtime.sweep.state import FAILED, FINISHED, Entry, Result, State, read_state
from dslc.runtime.sweep.sweep import SweepResult


def example() -> State:
    state = State({"train.seed": 1, "sweep.space.train.lr": [0.1, {"x": None}]})
    done = state.add("a" * 64, {"train.lr": 0.1, "args.name": "é\u202e"})
    done.state, done.result = FINISHED, Result("accuracy", 0.1 + 0.2, 7, "d" * 64, {"loss": math.nan, "accuracy": 0.3})
    failed = state.add("b" * 64, {"train.lr": 1e-300})
    failed.state, failed.error = FAILED, "R501: the loss is not finite"
    state.add("c" * 64, {"train.lr": {"cosine": {"end": 0}}})
    return state


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    state = example()
    state.write(tmp_path)
    found = read_state(tmp_path)
    assert found is not None and repr(found) == repr(state)  # repr: a NaN does not equal itself
    before = (tmp_path / "sweep.json").read_bytes()
    found.write(tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == before


def changed(**values: Any) -> dict[str, Any]:
    """The example with other values: of the whole, or of the first trial by ``trial_NAME``."""
    state = example()
    data = {"format": 1, "of": dict(state.of), "next": state.next, "trials": [e.as_json() for e in state.entries]}
    for name, value in values.items():
        if name.startswith("trial_"):
            data["trials"][0][name.removeprefix("trial_")] = value
        else:
            data[name] = value
    return data


HOSTILE: list[Any] = [
    [], None, 3, "text", {},
    changed(format=2), changed(format=True), changed(of=[]), changed(next=0), changed(next=2), changed(next=10**30),
    changed(trials={}), changed(trials=[{}]), changed(more=1), changed(trials=[3]),
    changed(trial_folder="../../etc"), changed(trial_folder="/"), changed(trial_folder=""), changed(trial_folder="002"),
    changed(trial_folder="1"), changed(trial_folder=1), changed(trial_folder="000"), changed(trial_folder="٠٠١"),
    changed(trial_key="x"), changed(trial_key=None), changed(trial_values=[]), changed(trial_values={"a\x1b[2J": 1}),
    changed(trial_state="finish"), changed(trial_state="waiting"), changed(trial_error=3), changed(trial_result=None),
    changed(trial_error="and yet"), changed(trial_result={}), changed(trial_result=[1]),
    changed(trial_result={"metric": "m", "value": "nan", "step": 1, "data": "d" * 64, "metrics": {}}),
    changed(trial_result={"metric": "m", "value": 0.5, "step": -1, "data": "d" * 64, "metrics": {}}),
    changed(trial_result={"metric": "m\n", "value": 0.5, "step": 1, "data": "d" * 64, "metrics": {}}),
]  # fmt: skip
TEXTS = [
    b"", b"{", b"\xff\xfe", b"[" * 10**6, b'{"format": NaN}', b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"format": 1' + b"0" * 5000 + b"}", b'["' + b"x" * 10**6, b"[" + b"0," * 3 * 10**6 + b"0]",
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE) + len(TEXTS)))
def test_a_hostile_state_is_refused(tmp_path: Path, number: int, allowed: Callable[[float, float], bool]) -> None:
    text = json.dumps(HOSTILE[number]).encode() if number < len(HOSTILE) else TEXTS[number - len(HOSTILE)]
    (tmp_path / "sweep.json").write_bytes(text)
    begun = time.process_time()
    with pytest.raises(ArtifactError) as caught:
        read_state(tmp_path)
    assert allowed(time.process_time() - begun, 5)
    assert caught.value.code == "R307" and caught.value.help and "\x1b" not in caught.value.render()


def test_the_example_itself_is_not_hostile(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(changed()))
    assert read_state(tmp_path) is not None


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_state_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "sweep.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "other").write_text(json.dumps(changed()))
        path.symlink_to("other")
    with pytest.raises(ArtifactError, match="R307"):
        read_state(tmp_path)


def test_damaged_bytes_are_refused_or_read(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    rng = random.Random(fuzz_seed)
    example().write(tmp_path)
    path = tmp_path / "sweep.json"
    good = path.read_bytes()
    for _ in range(fuzz_count(2000)):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        path.write_bytes(data)
        try:
            found = read_state(tmp_path)
        except DslcError as error:
            assert error.code == "R307"
        else:
            assert found is not None and all(entry.folder.isdigit() for entry in found.entries)


def test_the_best_trial_is_the_first_of_equal_ones_and_never_a_nan() -> None:
    def entry(folder: str, value: float, data: str = "d" * 64) -> Entry:
        return Entry(folder, "a" * 64, {}, FINISHED, None, Result("m", value, 1, data, {}))

    entries = [entry("001", math.nan), entry("002", 0.5), entry("003", 0.7), entry("004", 0.7), entry("005", 0.1)]
    result = SweepResult(Path(), entries, Best("m", highest=True), 5, 0)
    assert result.best is entries[2] and result.comparable
    assert SweepResult(Path(), entries, Best("m", highest=False), 5, 0).best is entries[4]
    assert SweepResult(Path(), entries[:1], Best("m", highest=False), 5, 0).best is None
    assert not SweepResult(Path(), [*entries, entry("006", 1, "e" * 64)], Best("m", highest=True), 6, 0).comparable


def test_places_divide_the_machine() -> None:
    assert places("auto", 0, 8, 0) == [Place("auto", 8)]
    assert places("cpu", 3, 8, 0) == [Place("cpu", 2)] * 3
    assert places("auto", 4, 2, 0) == [Place("auto", 1)] * 4
    assert places("auto", 0, 16, 4) == [Place(f"gpu:{number}", 4) for number in range(4)]
    assert places("auto", 2, 16, 4) == [Place("gpu:0", 8), Place("gpu:1", 8)]
    assert places("auto", 9, 16, 4) == places("auto", 0, 16, 4)


def test_a_sweep_goes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (project / "dslc.yaml").write_text(
        "model: toy.nn\ndata: {train: {x: a.npz:x}, eval: {x: a.npz:x}}\nsweep: {space: {train.seed: [1, 2]}}\n"
    )
    plan = plan_sweep(config_source(project / "dslc.yaml"))
    runs = project / "runs"
    (runs / "sweep").mkdir(parents=True)
    assert choose_folder(plan, "sweep", fresh=False) == runs / "sweep"
    (runs / "sweep/run.json").write_text("{}")  # the run of a model that is called so
    assert choose_folder(plan, "sweep", fresh=False) == runs / "sweep-2"
    (runs / "sweep-2/sweep.json").write_text("{}")
    assert choose_folder(plan, "sweep", fresh=False) == runs / "sweep-2"
    assert choose_folder(plan, "sweep", fresh=True) == runs / "sweep-3"
    (runs / "sweep-3/.dslc-0123.tmp").write_text("")  # killed before it wrote its state
    assert choose_folder(plan, "sweep", fresh=True) == choose_folder(plan, "sweep", fresh=False) == runs / "sweep-3"
    (runs / "sweep-3/001").mkdir()
    assert choose_folder(plan, "sweep", fresh=False) == runs / "sweep-2"
    assert choose_folder(plan, "lr", fresh=False) == runs / "lr"
    for name in ("", "..", "a/b", "-x", ".x", "a\n", "x" * 65, "/"):
        with pytest.raises(DslcError, match="R105"):
            choose_folder(plan, name, fresh=False)
    (runs / "out").symlink_to(outside)
    (outside / "sweep.json").write_text("{}")
    with pytest.raises(DslcError, match="R403"):
        choose_folder(plan, "out", fresh=False)
