"""Worker processes: their number changes nothing, and one that dies or hangs names the sample it was at."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interruption.interrupts import elsewhere, leaves_nothing, spread

from dslc.base.errors import DataError, ResourceError
from dslc.base.turns import Always
from dslc.runtime.data import workers as module
from dslc.runtime.data.augment.steps.crop import Crop
from dslc.runtime.data.augment.steps.flip import Flip
from dslc.runtime.data.rows import BadSample
from dslc.runtime.data.workers import DEPTH, Workers

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
ROWS = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(ROWS):
        path = tmp_path / "pets" / f"{number % 3}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 5, 3)).astype("u1")).save(path)
    np.save(tmp_path / "x.npy", rng.standard_normal((ROWS, 3)).astype("f4"))
    return tmp_path


@pytest.fixture
def data(folder: Path, opened: Any) -> Any:
    return opened(
        image=(f"{folder}/pets/:image", "f32", ("B", 3, 6, 5)),
        label=(f"{folder}/pets/:label", "i32", ("B",), (0, 3)),
        x=(f"{folder}/x.npy", "f32", ("B", 3)),
        augment={"image": (Flip(0.5), Crop(1))},
    )


def tasks(data: Any, epochs: int = 2, batch: int = 5) -> Iterator[tuple[np.ndarray, int]]:
    for epoch in range(epochs):
        order = data.order(1, epoch, shuffle=True)
        for start in range(0, ROWS - batch + 1, batch):
            yield order[start : start + batch], epoch


def test_any_number_of_workers_gives_the_same_batches(data: Any) -> None:
    wanted = [data.take(rows, epoch) for rows, epoch in tasks(data)]
    assert not np.array_equal(wanted[0]["image"], wanted[4]["image"])
    for count in (1, 2, 3):
        found = [{n: a.copy() for n, a in batch.items()} for batch in data.feed(tasks(data), count)]
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            assert one.keys() == other.keys()
            assert all(one[n].tobytes() == other[n].tobytes() and one[n].dtype == other[n].dtype for n in other)


def test_large_arrays_and_tokens_go_through_workers_too(
    folder: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(96, dtype="<u2").tofile(folder / "c.bin")
    for name in ("rows", "formats.tokens"):
        monkeypatch.setattr(f"dslc.runtime.data.{name}.AT_ONCE", 8)
    data = opened(x=(f"{folder}/x.npy", "f32", ("B", 3)), t=(f"{folder}/c.bin:u16", "i32", ("B", 4), (0, 100)))
    wanted = [data.take(rows, epoch) for rows, epoch in tasks(data, 1)]
    found = [{n: a.copy() for n, a in batch.items()} for batch in data.feed(tasks(data, 1), 2)]
    assert all(one[n].tobytes() == other[n].tobytes() for one, other in zip(found, wanted) for n in other)
    np.full(96, 200, "<u2").tofile(folder / "c.bin")
    with pytest.raises(DataError) as caught:
        list(data.feed(tasks(data, 1), 2))
    assert caught.value.code == "R103" and "the value 200" in caught.value.message


def test_a_run_that_ends_early_leaves_no_process(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*args: Any, **more: Any) -> Any:
        started.append(real(*args, **more))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    feed = data.feed(tasks(data), 2)
    next(feed)
    feed.close()
    assert len(started) == 2 and all(process.poll() is not None for process in started)


def pool(data: Any, **more: Any) -> Workers:
    work = Workers([data.columns["image"].wanted], rows=4, count=1, seed=7, training=True, **more)
    work.start()
    return work


def test_a_decoder_that_dies_names_its_image_and_others_go_on(data: Any) -> None:
    """A pipe in the place of an image is no image; a process that is killed at a row is as one that crashed there."""
    files = data.columns["image"].rows._files
    path = files[2]
    good = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    work = pool(data)
    try:
        worker = work._workers[0]
        work.ask(np.array([0, 1, 3]), 0)
        work.oldest(3)
        work.done()
        work.ask(np.array([0, 2, 1]), 0)
        with pytest.raises(BadSample) as caught:
            work.oldest(3)
        assert caught.value.row == 2 and "not a regular file" in caught.value.why
        path.unlink()
        path.write_bytes(good)
        os.kill(worker.process.pid, signal.SIGSTOP)
        work.ask_again(np.array([0, 2, 1]), 0)
        worker.head[module.SLOT], worker.head[module.ROW] = 1, 2  # as if it were at row 2
        os.kill(worker.process.pid, signal.SIGKILL)
        with pytest.raises(BadSample) as caught:
            work.oldest(3)
        assert caught.value.row == 2 and "has ended, killed by SIGKILL" in caught.value.why
        work.ask_again(np.array([0, 2, 1]), 0)
        assert np.array_equal(work.oldest(3)["image"], data.take(np.array([0, 2, 1]))["image"])
    finally:
        work.close()


def test_a_decoder_that_hangs_is_ended(data: Any) -> None:
    work = pool(data)
    try:
        worker = work._workers[0]
        work.ask(np.array([0]), 0)
        work.oldest(1)
        work.done()
        worker._patience = 0.5  # not before: a busy machine may take longer to start the process
        os.kill(worker.process.pid, signal.SIGSTOP)
        work.ask(np.array([5]), 0)
        worker.head[module.SLOT], worker.head[module.ROW] = 1, 5
        begun = time.perf_counter()
        with pytest.raises(BadSample) as caught:
            work.oldest(1)
        assert caught.value.row == 5 and "hung" in caught.value.why
        assert time.perf_counter() - begun < module._PATIENCE, "the patience of this pool counts, not the usual one"
    finally:
        work.close()


def test_a_worker_that_reads_nothing_cannot_stop_us(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped before it reads, and its task is longer than a pipe takes."""
    real = subprocess.Popen

    def stopped(*args: Any, **more: Any) -> Any:
        process = real(*args, **more)
        os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr(subprocess, "Popen", stopped)
    work = Workers([data.columns["image"].wanted], rows=4, count=1, seed=7, training=True, patience=0.5)
    work._task["more"] = "x" * (4 << 20)

    def ask() -> None:
        work.start()
        work.ask(np.array([0]), 0)
        work.oldest(1)

    try:
        error = elsewhere(ask)
        assert isinstance(error, ResourceError) and "hung" in error.message, error
    finally:
        work.close()


def test_a_long_task_arrives_whole(data: Any) -> None:
    work = Workers([data.columns["image"].wanted], rows=4, count=1, seed=7, training=True)
    work._task["more"] = "x" * (4 << 20)
    try:
        work.start()
        work.ask(np.array([2]), 0)
        assert np.array_equal(work.oldest(1)["image"], data.take(np.array([2]))["image"])
    finally:
        work.close()


@pytest.mark.slow
def test_an_interrupt_at_any_point_leaves_no_worker(data: Any, folder: Path) -> None:
    def read() -> list[bytes]:
        feed = data.feed(tasks(data, 1), 2)
        with Always(feed.close), Always(feed.close):
            return [batch["image"].tobytes() for batch in feed]

    leaves_nothing(read, folder, spread(8), least=500)


def test_a_process_that_cannot_begin_is_no_bad_sample(data: Any, folder: Path) -> None:
    for path in folder.glob("pets/*/*.png"):
        path.unlink()
    work = pool(data)
    try:
        work.ask(np.array([0]), 0)
        with pytest.raises(DataError) as caught:
            work.oldest(1)
        assert caught.value.code == "R106"
    finally:
        work.close()


def test_there_is_room_for_so_many_tasks(data: Any) -> None:
    work = pool(data)
    try:
        for number in range(DEPTH):
            assert work.room
            work.ask(np.array([number]), 0)
        assert not work.room
        for number in range(DEPTH):
            assert np.array_equal(work.oldest(1)["image"], data.take(np.array([number]))["image"])
            work.done()
        assert work.room
    finally:
        work.close()


def test_a_crash_is_laid_to_the_row_that_was_read_and_later_tasks_are_done(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSLC_FAILPOINT", "data.row:2:kill")  # in each process, the second row that it reads
    work = pool(data)
    try:
        work.ask(np.array([4, 9, 1]), 0)
        work.ask(np.array([7]), 0)
        with pytest.raises(BadSample) as caught:
            work.oldest(3)
        assert caught.value.row == 9 and caught.value.why.endswith("killed by SIGKILL")
        work.done()
        assert np.array_equal(work.oldest(1)["image"], data.take(np.array([7]))["image"])
    finally:
        work.close()
