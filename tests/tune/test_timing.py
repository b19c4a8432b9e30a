"""Rounds of candidates on a fake GPU: who gets turns for how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver

from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.owned import Owned
from dslc.tune.timing import Turns, entrants, hopeful


class Graph:
    """Takes so many milliseconds, one after another, again and again."""

    def __init__(self, fake: FakeDriver, *durations: int) -> None:
        self.fake, self.durations, self.launches = fake, durations, 0

    def launch(self, stream: Any) -> None:
        taken = self.durations[self.launches % len(self.durations)]
        self.launches += 1

        def run() -> None:
            self.fake.clock += taken - 2  # the op itself and the event after it are one each

        self.fake._put(stream, run)


class NoFlush:
    def enqueue(self, stream: Any) -> None:
        pass


@pytest.fixture
def owned(gpu: tuple[FakeDriver, Device]) -> Iterator[Owned]:
    _, device = gpu
    with device:
        made = Owned(device)
        yield made
        made.close()


def rounds(gpu: tuple[FakeDriver, Device], owned: Owned, **graphs: Graph) -> dict[str, list[float]]:
    _, device = gpu
    stream = device.driver.stream(owned.noted)
    named: Any = {f"own {name}": (graph, 1) for name, graph in graphs.items()}
    flush: Any = NoFlush()
    turns = Turns(device, stream, owned, flush, named, lambda name: None)
    turns.run(60.0)
    return turns.rounds


def test_rounds_end_when_each_time_is_steady(gpu: tuple[FakeDriver, Device], owned: Owned) -> None:
    found = rounds(gpu, owned, a=Graph(gpu[0], 20), b=Graph(gpu[0], 21))
    assert {name: len(each) for name, each in found.items()} == {"own a": 5, "own b": 5}
    assert found["own a"][0] == pytest.approx(0.020)


def test_slower_ones_get_fewer_turns(gpu: tuple[FakeDriver, Device], owned: Owned) -> None:
    fake, _ = gpu
    unsteady = Graph(fake, 20, 24)
    found = rounds(gpu, owned, best=unsteady, near=Graph(fake, 23), slower=Graph(fake, 28), slow=Graph(fake, 40))
    assert {name: len(each) for name, each in found.items()} == {
        "own best": 200,
        "own near": 200,
        "own slower": 8,
        "own slow": 3,
    }


def test_each_provider_has_its_own_best_one() -> None:
    seen = {"own 1": 3.0, "own 2": 5.0, "own 3": 7.0, "cudnn 1": 1.0, "cudnn 2": 2.5}
    assert hopeful(seen, 2.0) == ["own 1", "own 2", "cudnn 1"]


def test_the_first_one_gets_rounds_however_long_its_single_call_took() -> None:
    assert entrants({"own 0": 9.0, "own 1": 3.0, "own 2": 7.0}, 2.0) == ["own 0", "own 1"]
    assert entrants({"own 0": 3.0, "own 1": 7.0, "cudnn 0": 5.0}, 2.0) == ["own 0", "cudnn 0"]
