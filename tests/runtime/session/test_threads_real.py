"""A built LeNet under many threads, closed under them, and after a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from places import MODELS

import dslc
from dslc.base.errors import DslcError
from dslc.compiler import pipeline
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.runtime.session.context_pool import Pool
from dslc.runtime.session.session import Session

pytestmark = pytest.mark.slow

MODEL = MODELS / "lenet.nn"
THREADS = 8
SIZES = (1, 2, 3, 4, 7)  # of batches; 1 and 4 are built, the others are padded or cut


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build") / "lenet.dslc"
    options = Options(provider="reference", sizes={"train": {"B": (4,)}, "predict": {"B": (1, 4)}})
    path.write_bytes(pipeline.build(check_file(MODEL), options).artifact)
    return path


def images(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).random((rows, 1, 28, 28), dtype=np.float32)


def wrong_bits(session: Session, turns: int) -> int:
    """How many of ``turns`` predictions a thread, with batches of mixed sizes, differ from those made one by one."""
    serial = {rows: session.predict(image=images(rows)).tobytes() for rows in SIZES}
    assert len(set(serial.values())) == len(SIZES)
    start = threading.Barrier(THREADS)
    given = {rows: images(rows) for rows in SIZES}

    def work(thread: int) -> int:
        start.wait()
        order = [SIZES[(thread + turn) % len(SIZES)] for turn in range(turns)]
        return sum(session.predict(image=given[rows]).tobytes() != serial[rows] for rows in order)

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("contexts", [1, 4])
def test_mixed_batches_give_the_bits_of_serial_calls(
    lenet: Path, contexts: int, fuzz_count: Callable[[int], int]
) -> None:
    with dslc.load(lenet, weights="init", contexts=contexts) as session:
        assert wrong_bits(session, fuzz_count(1000) // (1 if contexts == 4 else 4)) == 0


def test_a_context_used_by_two_would_be_seen(lenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with a pool that hands one context to all, bits differ or a call fails."""

    def unguarded(pool: Pool[object]) -> AbstractContextManager[AbstractContextManager[object]]:
        return nullcontext(nullcontext(pool._all[0]))

    with dslc.load(lenet, weights="init", contexts=1) as session:
        monkeypatch.setattr(Pool, "shared", unguarded)
        try:
            wrong = wrong_bits(session, 60)
        except (DslcError, ValueError):
            wrong = 1
        monkeypatch.undo()
        assert wrong > 0


def test_close_races(lenet: Path, fuzz_count: Callable[[int], int]) -> None:
    """Calls end with their bits or with R309, never otherwise, whenever the session is closed."""
    rng = np.random.default_rng(3)
    for _ in range(fuzz_count(40)):
        session = dslc.load(lenet, weights="init", contexts=3)
        expected = session.predict(image=images(3)).tobytes()
        start = threading.Barrier(THREADS + 1)

        def work(
            _: int, session: Session = session, start: threading.Barrier = start, expected: bytes = expected
        ) -> str:
            start.wait()
            while True:
                try:
                    assert session.predict(image=images(3)).tobytes() == expected
                except DslcError as error:
                    return error.code

        def close(delay: float, session: Session = session, start: threading.Barrier = start) -> str:
            start.wait()
            threading.Event().wait(delay)
            session.close()
            return "closed"

        with ThreadPoolExecutor(THREADS + 1) as pool:
            jobs = [pool.submit(work, i) for i in range(THREADS)] + [pool.submit(close, rng.uniform(0, 0.02))]
            assert [j.result(timeout=60) for j in jobs] == ["R309"] * THREADS + ["closed"]


CHILD = """
import os, sys
import numpy as np
import dslc
session = dslc.load(sys.argv[1], weights="init")
x = np.ones((2, 1, 28, 28), np.float32)
before = session.predict(image=x).tobytes()
pid = os.fork()
if pid == 0:
    said = []
    for call in (
        lambda: session.predict(image=x),
        lambda: session.train_step(image=np.ones((4, 1, 28, 28), np.float32), label=np.zeros(4, np.int32)),
        lambda: session.weights["c1.weight"],
        lambda: session.save_checkpoint("never"),
    ):
        try:
            call()
            said.append("ran")
        except Exception as error:
            said.append(getattr(error, "code", repr(error)))
    own = dslc.load(sys.argv[1], weights="init")
    said.append("same" if own.predict(image=x).tobytes() == before else "other")
    print(*said, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("same" if session.predict(image=x).tobytes() == before else "other")
"""


def test_a_fork_after_load(lenet: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(lenet)], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["R204 R204 R204 R204 same", "same"]
    assert not list(tmp_path.iterdir())
