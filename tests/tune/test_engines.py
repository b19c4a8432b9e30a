"""Ways that other ways of their engine speak for, and what a new worker is told; the worker is a substitute here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dslc.compiler.ir.choice import Choice
from dslc.tune.client import Gone
from dslc.tune.judge import Judged, Opening, Trial, engine_of, judge
from dslc.tune.settings import UNTRIED
from dslc.tune.tune import in_order


class Worker:
    """``seconds``: of a call by algorithm; of those that hang, inf. ``lost``: the way that ends the worker when it is
    loaded again."""

    def __init__(self, seconds: dict[str, float], lost: str = "") -> None:
        self.seconds, self.lost, self.patience, self.running = seconds, lost, 30.0, True
        self.asked: list[tuple[str, str]] = []
        self.right: dict[str, float] = {}

    def start(self) -> dict[str, Any]:
        return {}

    def ask(self, do: str, patience: float | None = None, path: str = "", **fields: Any) -> dict[str, Any]:
        self.asked.append((do, path))
        if do == "open":
            self.right.clear()
        elif do == "time":
            return {"rounds": {name: [each] for name, each in self.right.items()}}
        elif do == "accept":
            if path == self.lost:
                raise Gone("ended with SIGSEGV", None)
            assert fields["seconds"] == self.seconds[path]
            self.right[fields["name"]] = fields["seconds"]
        elif do == "check":
            seconds = self.seconds[path]
            if seconds == float("inf"):
                raise Gone("did not end within 2 s", fields["name"], hung=True)
            outdone = bool(self.right) and seconds > 2 * min(self.right.values())
            if not outdone:
                self.right[fields["name"]] = seconds
            return {"error": 0.0, "refused": None, "seconds": seconds, "outdone": outdone}
        return {}

    def all(self, do: str) -> list[str]:
        return [path for each, path in self.asked if each == do]


def judged(worker: Worker, hung: set[str] | None = None, provider: str = "cudnn", checks: float = 60.0) -> Judged:
    trials = [Trial(Choice(provider, name), Path(name)) for name in worker.seconds]
    opening = Opening(Path("reference"), Path("comparer"), "sm_90")
    return judge(worker, opening, trials, 1.0, hung, checks)  # type: ignore[arg-type]


def test_an_engine_is_a_way_without_its_knobs() -> None:
    assert engine_of(Choice("cudnn", "eng62_k2=5_k13=0")) == "cudnn eng62"
    assert engine_of(Choice("cublaslt", "id=66 tile=20")) == "cublaslt id=66"
    assert engine_of(Choice("own", "split=2 tile=64x64")) == "own split=2 tile=64x64"


def test_other_knobs_of_an_engine_that_is_twenty_times_as_slow_are_not_tried() -> None:
    worker = Worker({"eng1_k2=0": 1.0, "eng2_k2=0": 19.0, "eng2_k2=1": 1.5, "eng3_k2=0": 21.0, "eng3_k2=1": 1.0})
    found = judged(worker)
    assert worker.all("check") == ["eng1_k2=0", "eng2_k2=0", "eng2_k2=1", "eng3_k2=0"]
    assert [way.choice.algorithm for way in found.times] == ["eng1_k2=0", "eng2_k2=1"] and not found.rejected


def test_when_the_time_for_checks_is_up_one_right_way_of_each_provider_suffices() -> None:
    worker = Worker({"eng1": 1.0, "eng2": 1.0, "": 1.0, "split=2": 1.0, "eng3": 1.0})
    library, own = ([Trial(Choice(provider, name), Path(name or "own")) for name in names]
                    for provider, names in (("cudnn", ("eng1", "eng2", "eng3")), ("own", ("", "split=2"))))  # fmt: skip
    trials = in_order(library, own, own[0].choice)
    worker.seconds["own"] = 1.0
    opening = Opening(Path("reference"), Path("comparer"), "sm_90")
    found = judge(worker, opening, trials, 1.0, checks=0.0)  # type: ignore[arg-type]
    assert worker.all("check") == ["own", "eng1"] and len(found.times) == 2
    assert found.rejected == [f"3 ways {UNTRIED}"]


def test_ways_of_a_library_and_own_ones_take_turns_after_the_default() -> None:
    a, b, c, d, e = (Trial(Choice(p, n), Path(n)) for p, n in zip(("cudnn",) * 3 + ("own",) * 2, "abcde"))
    assert in_order([a, b, c], [d, e], d.choice) == [d, a, b, e, c]
    assert in_order([a, b, c], [d, e], a.choice) == [a, d, b, e, c]
    assert in_order([], [d, e], e.choice) == [e, d]


def test_own_ways_speak_for_themselves_alone() -> None:
    worker = Worker({"split=1": 1.0, "split=2 stages=3": 50.0, "split=2 stages=4": 1.0})
    assert len(judged(worker, provider="own").times) == 2 and len(worker.all("check")) == 3


def test_an_engine_that_hung_is_not_tried_again_for_the_next_problem() -> None:
    hung: set[str] = set()
    first = judged(Worker({"eng1": 1.0, "eng0_k2=0": float("inf"), "eng0_k2=1": 1.0, "eng2": 1.0}), hung)
    assert hung == {"cudnn eng0"} and [way.choice.algorithm for way in first.times] == ["eng1", "eng2"]
    assert first.rejected == [
        "cudnn eng0_k2=0: did not end within 2 s",
        "cudnn eng0_k2=1: was not tried: its engine did not end with other knobs, or for another problem",
    ]
    next_one = Worker({"eng1": 1.0, "eng0": 1.0})
    assert len(judged(next_one, hung).times) == 1 and next_one.all("check") == ["eng1"]
    default = Worker({"eng0": 1.0, "eng1": 1.0})  # what a build takes is measured nevertheless
    assert len(judged(default, hung).times) == 2


def test_a_new_worker_loads_the_right_ones_without_a_check() -> None:
    worker = Worker({"eng1": 1.0, "eng2": 1.25, "eng0": float("inf"), "eng3": 1.5})
    assert len(judged(worker).times) == 3
    assert worker.all("check") == ["eng1", "eng2", "eng0", "eng3"] and worker.all("accept") == ["eng1", "eng2"]


def test_one_that_ends_the_new_worker_is_rejected_and_the_others_go_on() -> None:
    worker = Worker({"eng1": 1.0, "eng2": 1.25, "eng0": float("inf"), "eng3": 1.5}, lost="eng2")
    found = judged(worker)
    assert [way.choice.algorithm for way in found.times] == ["eng1", "eng3"]
    assert found.rejected == ["cudnn eng0: did not end within 2 s", "cudnn eng2: ended with SIGSEGV"]
