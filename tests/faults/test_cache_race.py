"""Many processes on one cache, with a killer, an evictor and a clock that jumps: never a wrong byte, never a fault."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dslc.base.cache import Cache

pytestmark = pytest.mark.slow

# Fetches entries in a random order until it is told to stop; a line of counts after every few.
WORKER = """
import hashlib, json, random, sys, time, warnings
from pathlib import Path
from dslc.base.cache import Cache
from dslc.base.cache_entry import key_of, name_of
folder, seed, kind, keys = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
once = sys.argv[5] == "once"
warnings.simplefilter("error")
rng = random.Random(seed)
bad = 0

def payload(key):
    return hashlib.sha256(str(key).encode()).digest() * (100 + 37 * key % 1000)

def make(key):
    time.sleep(0.002)
    return payload(key)

def fetch(key):
    if kind == "cache":
        return cache.fetch("race", (str(key),), lambda: make(key))
    path = folder / "cache" / name_of("race", key_of("race", (str(key),)))
    try:
        return path.read_bytes()
    except FileNotFoundError:
        data = make(key)
        with open(path, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            time.sleep(0.001)
            file.write(data[len(data) // 2 :])
        return data

order = list(range(keys))
rng.shuffle(order)
cache = Cache(folder / "cache", 1 << 40 if once else keys * 32 * 300)
print("ready", flush=True)
while not (folder / "go").exists():
    time.sleep(0.005)
while not (folder / "stop").exists():
    for key in order if once else [rng.randrange(keys) for _ in range(20)]:
        bad += fetch(key) != payload(key)
    print(json.dumps({"ops": len(order) if once else 20, "bad": bad, **cache.counts.as_json()}), flush=True)
    bad = 0
    if once:
        break
"""


class Race:
    """Workers on one cache, started again when they are killed."""

    def __init__(self, folder: Path, count: int, keys: int, kind: str = "cache", once: bool = False) -> None:
        self.folder, self.keys, self.kind, self.once = folder, keys, kind, once
        (folder / "cache").mkdir(mode=0o700)
        self.logs: list[Path] = []
        self.workers = [self._start() for _ in range(count)]
        while any("ready" not in log.read_text() for log in self.logs):
            assert all(w.poll() is None for w in self.workers), self.logs[0].read_text()
            time.sleep(0.01)
        (folder / "go").touch()

    def _start(self) -> subprocess.Popen[bytes]:
        log = self.folder / f"log.{len(self.logs)}"
        self.logs.append(log)
        mode = "once" if self.once else "on"
        args = [str(self.folder), str(len(self.logs)), self.kind, str(self.keys), mode]
        with log.open("wb") as file:
            return subprocess.Popen([sys.executable, "-c", WORKER, *args], stdout=file, stderr=subprocess.STDOUT)

    def kill(self, rng: random.Random) -> None:
        number = rng.randrange(len(self.workers))
        self.workers[number].kill()
        assert self.workers[number].wait() == -9
        self.workers[number] = self._start()

    def counts(self) -> list[dict[str, int]]:
        """Every whole line of counts; anything else that a worker printed is an error of its own."""
        found = []
        for log in self.logs:
            *lines, _ = [*log.read_text().split("\n")]
            assert not lines or lines[0] == "ready", lines
            found += [json.loads(line) for line in lines[1:]]
        return found

    def close(self) -> None:
        """Kill the workers that still run."""
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for worker in self.workers:
            assert worker.wait(timeout=100) == 0, [log.read_text()[-500:] for log in self.logs]


def test_with_a_killer_an_evictor_and_a_clock(tmp_path: Path, fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    soak = os.environ.get("DSLC_SOAK") == "1"
    operations, kills, processes = (60_000, 200, 32) if soak else (3_000, 12, 4)
    rng = random.Random(fuzz_seed)
    with closing(Race(tmp_path, processes, keys=200)) as race:
        cache = Cache(tmp_path / "cache")
        deadline = time.monotonic() + (1800 if soak else 500)
        killed = evicted = jumped = done = 0
        while done < operations or killed < kills:
            assert time.monotonic() < deadline, f"only {done} operations, {killed} kills"
            time.sleep(rng.uniform(0, 0.2))
            for entry in rng.sample(entries := cache.entries(), min(3, len(entries))):
                with suppress(FileNotFoundError):
                    if rng.random() < 0.5:
                        os.unlink(tmp_path / "cache" / entry.name)
                        evicted += 1
                    else:
                        when = rng.choice([0, 1, 10**9, 2 * 10**9, 4 * 10**9])
                        os.utime(tmp_path / "cache" / rng.choice([entry.name, "runs"]), (when, when))
                        jumped += 1
            if killed < kills:
                race.kill(rng)
                killed += 1
            done = sum(line["ops"] for line in race.counts())
        race.stop()
        counts = race.counts()
        done, bad, faults = (sum(line[name] for line in counts) for name in ("ops", "bad", "faults"))
        print(f"{done} operations, {killed} kills, {evicted} evicted and {jumped} clocks by hand")
        assert bad == 0 and faults == 0 and evicted > 0 and jumped > 0
        assert any(line["evicted"] for line in counts), "the limit was never reached"
        last = Cache(tmp_path / "cache")
        last.put("race", ("last",), b"so that the dead are swept")
        assert not [n for n in os.listdir(tmp_path / "cache") if n.startswith(".") and n != ".evict.lock"]
        assert last.counts.faults == 0


def test_a_cold_cache_is_filled_once(tmp_path: Path) -> None:
    """Each key is compiled by one process, while the others wait or do other keys: at most 5 % more."""
    processes = 32 if os.environ.get("DSLC_SOAK") == "1" else 6
    with closing(Race(tmp_path, processes, keys=60, once=True)) as race:
        for worker in race.workers:
            assert worker.wait(timeout=100) == 0, [log.read_text()[-500:] for log in race.logs]
        counts = race.counts()
        assert len(counts) == processes and sum(c["bad"] for c in counts) == sum(c["faults"] for c in counts) == 0
        compiled = sum(c["compiled"] for c in counts)
        print(f"{compiled} compilations of 60 keys by {processes} processes")
        assert 60 <= compiled <= 63


def test_a_cache_that_is_not_atomic_would_be_seen(tmp_path: Path) -> None:
    """The control: entries written where they stand, and read as they are."""
    with closing(Race(tmp_path, 4, keys=200, kind="naive")) as race:
        rng = random.Random(1)
        until = time.monotonic() + 60
        while time.monotonic() < until and not any(line["bad"] for line in race.counts()):
            time.sleep(0.05)
            with suppress(FileNotFoundError, IndexError):
                os.unlink(tmp_path / "cache" / rng.choice(os.listdir(tmp_path / "cache")))
        race.stop()
        assert any(line["bad"] for line in race.counts())
