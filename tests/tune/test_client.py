"""A worker that cannot start, ends or says nothing is an error that says so, and leaves no process."""

from __future__ import annotations

import os
import sys

import pytest

from dslc.base.errors import EnvironmentFault, ResourceError
from dslc.tune.client import Client, Gone


def worker(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import json, sys, time\n{text}")


def test_one_that_ends_at_once_is_an_error() -> None:
    with Client({"gpu": 0}, worker("raise SystemExit('no module of that name')")) as client:
        with pytest.raises(ResourceError, match="no module of that name"):
            client.start()
        assert not client.running


def test_one_that_has_no_gpu_says_why() -> None:
    failing = worker("sys.stdin.readline(); print(json.dumps({'failed': ['R201', 'no driver']}), flush=True); input()")
    with Client({"gpu": 0}, failing) as client:
        with pytest.raises(EnvironmentFault, match="no driver") as caught:
            client.start()
        assert caught.value.code == "R201" and not client.running


ANSWERS = """
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "silent":
        print(json.dumps({"at": "own 3"}), flush=True)
        time.sleep(3600)
    if asked["do"] == "hang":
        print(json.dumps({"at": "own 4", "patience": 0.25}), flush=True)
        time.sleep(3600)
    if asked["do"] == "end":
        sys.exit("out of luck")
    print(json.dumps({"echo": asked}), flush=True)
"""


def test_a_request_has_one_answer_and_a_lost_worker_is_replaced() -> None:
    with Client({"gpu": 0}, worker(ANSWERS), patience=1.0) as client:
        assert client.start() == {"echo": {"do": "hello", "gpu": 0}}
        assert client.ask("check", name="a") == {"echo": {"do": "check", "name": "a"}}
        with pytest.raises(Gone, match="out of luck"):
            client.ask("end")
        assert not client.running
        client.start()
        with pytest.raises(Gone, match="did not end within 1 s") as caught:
            client.ask("silent")
        assert caught.value.at == "own 3" and not client.running
        client.start()
        assert client.starts == 3 and client.ask("check")
    assert not client.running


@pytest.mark.parametrize(("load", "said"), [(0.0, "0.25 s"), (3.0, "0.75 s")])
def test_a_step_gets_its_own_time_and_more_of_it_on_a_busy_machine(
    load: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = load * len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (processes, 0.0, 0.0))
    with Client({"gpu": 0}, worker(ANSWERS), patience=60.0) as client:
        client.start()
        with pytest.raises(Gone, match=f"did not end within {said}") as caught:
            client.ask("hang")
        assert caught.value.hung and caught.value.at == "own 4"


@pytest.mark.parametrize(
    ("raised", "code"),
    [("MemoryError()", "R401"), ("ImportError('libx.so: failed to map\\nsegment')", "R209")],
)
def test_one_whose_modules_cannot_be_loaded_says_why_without_a_traceback(
    raised: str, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = f"""
class Finder:
    def find_spec(self, name, *_):
        if name == "dslc.tune.answers":
            raise {raised}
import runpy
sys.meta_path.insert(0, Finder())
runpy.run_module("dslc.tune.worker", run_name="__main__")
"""
    with Client({"gpu": 0}, worker(failing)) as client:
        with pytest.raises(EnvironmentFault) as caught:
            client.start()
        assert caught.value.code == code and caught.value.place and not client.running
    assert "Traceback" not in capfd.readouterr().err
