"""One measurement for each problem, however many threads and processes ask for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from dslc.base.cache import Cache
from dslc.compiler.ir.choice import Choice, Measured
from dslc.compiler.lock.model import Block
from dslc.tune.registry import Registry

GPU = "Fake GPU, 132 SMs, sm_90"
THREADS, PROCESSES, KEYS = 32, 8, ("matmul a", "matmul b", 'a "quoted" \\ key')


def block(key: str) -> Block:
    way = Measured(Choice("own", "rows=4", 128), 4.12e-05)
    return Block(key, GPU, (way,), way, 0.004, 0.0012, ("cudnn eng9: wrong result",), "dslc 0.1.0")


def tuned_slowly(key: str, tunings: list[str]) -> Block:
    tunings.append(key)
    time.sleep(0.05)
    return block(key)


def test_32_threads_measure_each_problem_once(tmp_path: Path) -> None:
    registry, tunings = Registry(Cache(tmp_path / "cache"), ("gpu",)), list[str]()
    start = threading.Barrier(THREADS)
    found: list[Block] = []

    def ask() -> None:
        start.wait()
        for key in KEYS:
            found.append(registry.find_or_register(key, partial(tuned_slowly, key, tunings)))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tunings) == sorted(KEYS)
    assert (registry.tuned, registry.found) == (len(KEYS), (THREADS - 1) * len(KEYS))
    assert len(found) == THREADS * len(KEYS) and all(each == block(each.key) for each in found)


_ASK = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_registry import KEYS, Cache, Registry, tuned_slowly
registry, tunings = Registry(Cache(Path(sys.argv[2])), ("gpu",)), []
while not Path(sys.argv[3]).exists():
    time.sleep(0.001)
for key in KEYS:
    registry.find_or_register(key, lambda: tuned_slowly(key, tunings))
print(len(tunings), registry.tuned, registry.found)
"""


def test_8_processes_measure_each_problem_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = [sys.executable, "-c", _ASK, str(Path(__file__).parent), str(tmp_path / "cache"), str(go)]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    go.touch()
    counted = [tuple(map(int, process.communicate()[0].split())) for process in asking]
    assert [process.returncode for process in asking] == [0] * PROCESSES
    assert sum(tunings for tunings, _, _ in counted) == len(KEYS)
    assert sum(tuned for _, tuned, _ in counted) == len(KEYS)
    assert sum(found for _, _, found in counted) == (PROCESSES - 1) * len(KEYS)


def test_what_was_measured_is_found_by_a_later_run_with_equal_fields_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert Registry(Cache(folder), ("gpu", "1")).find_or_register("k", lambda: block("k")) == block("k")
    later = Registry(Cache(folder), ("gpu", "1"))
    assert later.stored("k") == block("k")
    assert later.find_or_register("k", _never) == block("k")
    assert (later.tuned, later.found) == (0, 1)
    assert Registry(Cache(folder), ("gpu", "2")).stored("k") is None


def test_again_measures_once_more_in_each_registry(tmp_path: Path) -> None:
    tunings: list[str] = []
    for _ in range(2):
        registry = Registry(Cache(tmp_path / "cache"), ("gpu",))
        for _ in range(3):
            registry.find_or_register("k", lambda: tuned_slowly("k", tunings), again=True)
    assert tunings == ["k", "k"]


def test_a_tuning_that_fails_is_tried_by_the_next_one_who_asks(tmp_path: Path) -> None:
    registry = Registry(Cache(tmp_path / "cache"), ("gpu",))

    def fails() -> Block:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        registry.find_or_register("k", fails)
    assert registry.find_or_register("k", lambda: block("k")) == block("k")
    assert registry.tuned == 1


def test_it_works_without_a_cache() -> None:
    registry = Registry(Cache(None), ("gpu",))
    assert registry.find_or_register("k", lambda: block("k")) == block("k")
    assert registry.find_or_register("k", _never) == block("k")


def _never() -> Block:
    raise AssertionError("measured again")
