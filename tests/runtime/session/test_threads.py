"""Many callers at once, closing under their feet, and forks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from artifacts.line_model import BATCH, FEATURES, MEANINGS, write_line
from places import with_support

from dslc.base.errors import DslcError
from dslc.base.turns import Turns
from dslc.runtime.session.context_pool import Pool
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session

Open = Callable[..., Session]
THREADS = 8


def data(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("contexts", [1, 3])
def test_results_of_many_threads_are_those_of_one(
    open_line: Open, contexts: int, fuzz_count: Callable[[int], int]
) -> None:
    session = open_line(contexts=contexts)
    sizes = [1, 3, 4, 9]
    serial = {n: session.predict(x=data(n), row=n) for n in sizes}
    start = threading.Barrier(THREADS)

    def work(thread: int) -> int:
        start.wait()
        wrong = 0
        for turn in range(fuzz_count(1000)):
            rows = sizes[(thread + turn) % len(sizes)]
            if turn % 16 == 7:  # the weights may be read meanwhile
                session.weights["b"]
            result = session.predict(x=data(rows), row=rows)
            wrong += any(a.tobytes() != b.tobytes() for a, b in zip(result, serial[rows], strict=True))
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(THREADS))) == 0


def test_contexts_run_side_by_side_up_to_their_number(line: Path) -> None:
    lock, running, most = threading.Lock(), [0], [0]
    together = threading.Barrier(1)

    def counted(inputs: object, attrs: object) -> object:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(60)  # until as many run as there are contexts
        with lock:
            running[0] -= 1
        return MEANINGS["linear"](inputs, attrs)  # type: ignore[operator]

    for contexts in (1, 3):
        most[0], together = 0, threading.Barrier(contexts)
        with (
            load(line, weights="init", meanings=MEANINGS | {"linear": counted}, contexts=contexts) as session,
            ThreadPoolExecutor(THREADS) as pool,
        ):
            list(pool.map(lambda _, s=session: s.predict(x=data(1)), range(24)))  # type: ignore[misc]
        assert most[0] == contexts


def test_nothing_runs_during_a_training_step(line: Path) -> None:
    training, overlapping = [False], [0]

    def descend(inputs: object, attrs: object) -> object:
        training[0] = True
        time.sleep(0.01)
        training[0] = False
        return MEANINGS["descend"](inputs, attrs)  # type: ignore[operator]

    def linear(inputs: object, attrs: object) -> object:
        overlapping[0] += training[0]
        return MEANINGS["linear"](inputs, attrs)  # type: ignore[operator]

    meanings = MEANINGS | {"descend": descend, "linear": linear}
    with load(line, weights="init", meanings=meanings, contexts=3) as session, ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(lambda: [session.predict(x=data(1)) for _ in range(100)]) for _ in range(3)]
        for _ in range(5):
            session.train_step(x=data(BATCH), target=np.zeros(BATCH, np.int32))
        for job in jobs:
            job.result()
    assert overlapping == [0]


def test_training_gives_whole_steps(open_line: Open) -> None:
    """Predictions during training steps: each is that of a whole step, never of a mix of old and new values."""
    session, alone = open_line(contexts=3), open_line()
    x, target, probe = data(BATCH), np.zeros(BATCH, np.int32), data(1)
    possible = {alone.predict(x=probe).y.tobytes()}
    for _ in range(40):
        alone.train_step(x=x, target=target)
        possible.add(alone.predict(x=probe).y.tobytes())
    done = threading.Event()

    def watch(_: int) -> set[bytes]:
        seen = set()
        while not done.is_set():
            seen.add(session.predict(x=probe).y.tobytes())
        return seen

    with ThreadPoolExecutor(3) as pool:
        watchers = [pool.submit(watch, i) for i in range(3)]
        for _ in range(40):
            session.train_step(x=x, target=target)
        done.set()
        seen = set().union(*(w.result() for w in watchers))
    assert seen <= possible
    assert all(np.array_equal(v, alone.weights[k]) for k, v in session.weights.items())


@pytest.mark.parametrize("contexts", [1, 2])
def test_close_while_others_call(line: Path, contexts: int) -> None:
    for _ in range(5):
        session = load(line, weights="init", meanings=MEANINGS, contexts=contexts)
        expected = session.predict(x=data(4)).y.tobytes()
        start = threading.Barrier(THREADS + 2)

        def work(
            _: int, session: Session = session, start: threading.Barrier = start, expected: bytes = expected
        ) -> str:
            start.wait()
            while True:
                try:
                    assert session.predict(x=data(4)).y.tobytes() == expected
                except DslcError as error:
                    return error.code

        def close(_: int, session: Session = session, start: threading.Barrier = start) -> str:
            start.wait()
            time.sleep(0.002)
            session.close()
            return "closed"

        with ThreadPoolExecutor(THREADS + 2) as pool:
            jobs = [pool.submit(work, i) for i in range(THREADS)] + [pool.submit(close, i) for i in range(2)]
            assert [j.result(timeout=30) for j in jobs] == ["R309"] * THREADS + ["closed"] * 2
        session.close()


def test_an_exception_gives_the_context_back(line: Path) -> None:
    turns = iter([True, False, False])

    def fails_once(inputs: object, attrs: object) -> object:
        if next(turns):
            raise RuntimeError("in the middle")
        return MEANINGS["linear"](inputs, attrs)  # type: ignore[operator]

    with load(line, weights="init", meanings=MEANINGS | {"linear": fails_once}) as session:
        with pytest.raises(RuntimeError, match="in the middle") as caught:
            session.predict(x=data(1))
        assert caught.value.__notes__ == ["while running linear of linear linear.nn:1"]
        session.predict(x=data(1))


def test_a_pool_that_never_gave_back_would_be_seen() -> None:
    """The control of the tests above: with its return left out, a second caller waits."""
    pool = Pool([0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Turns, "release", lambda turns, hold: None)
        with pool.shared() as scope, scope:
            pass

    def call() -> None:
        with pool.shared() as scope, scope:
            pass

    [lost] = pool._turns.holders.values()
    waiter = threading.Thread(target=call, daemon=True)
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    lost.release()
    waiter.join(10)
    assert not waiter.is_alive()


CHILD = """
import os, sys, threading
import numpy as np
from artifacts.line_model import MEANINGS
from dslc.runtime.session.load import load
session = load(sys.argv[1], weights="init", meanings=MEANINGS)
x = np.ones((1, 3), np.float32)
session.predict(x=x)
file, checkpoint = sys.argv[1] + ".safetensors", sys.argv[1] + ".checkpoint"
session.weights.save(file)
session.save_checkpoint(checkpoint)
calls = {
    "predict": lambda: session.predict(x=x),
    "train": lambda: session.train_step(x=x),
    "weights": lambda: session.weights["w"],
    "put": lambda: session.weights.__setitem__("w", x),
    "load": lambda: session.weights.load(file),
    "save": lambda: session.weights.save(file),
    "checkpoint": lambda: session.save_checkpoint(checkpoint),
    "resume": lambda: session.load_checkpoint(checkpoint),
    "with": lambda: session.__enter__(),
    "state": lambda: session.state_tensors(),
}
pid = os.fork()
if pid == 0:
    said = []
    for name, call in calls.items():
        try:
            call()
            said.append(name + " ran")
        except Exception as error:
            said.append(getattr(error, "code", repr(error)))
    session.close()
    own = load(sys.argv[1], weights="init", meanings=MEANINGS)
    said.append("own" if own.predict(x=x).y.shape == (1, 2) else "bad")
    print(*said, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
session.predict(x=x)
print("parent", flush=True)
"""


def test_a_forked_child_refuses_and_may_load_its_own(tmp_path: Path) -> None:
    path = write_line(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], env=with_support(),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [" ".join(["R204"] * 10 + ["own"]), "parent"]


@pytest.mark.parametrize("contexts", [1, 3])
def test_closing_waits_for_every_context_in_use(contexts: int) -> None:
    pool = Pool(list(range(contexts)))
    begun, go = threading.Barrier(contexts + 1), threading.Event()
    order: list[str] = []

    def use() -> None:
        with pool.shared() as scope, scope:
            begun.wait(30)
            assert go.wait(30)
            order.append("used")

    def close() -> None:
        with pool.closing() as scope, scope:
            order.append("closed")

    threads = [threading.Thread(target=use) for _ in range(contexts)]
    closing = threading.Thread(target=close)
    for thread in threads:
        thread.start()
    begun.wait(30)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive() and order == []
    go.set()
    for thread in (*threads, closing):
        thread.join(30)
    assert order == ["used"] * contexts + ["closed"]
