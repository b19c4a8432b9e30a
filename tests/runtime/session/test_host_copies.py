"""Copies of large arrays by several threads: those of one."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from dslc.runtime.session import host_copies
from dslc.runtime.session.host_copies import copied, copy_into, copy_parts, parts_of


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "PART", 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (129,), (16, 9), (3, 5, 7), (1000, 33)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_a_copy_is_equal(shape: tuple[int, ...], dtype: Any) -> None:
    source = (np.random.default_rng(1).standard_normal(shape) * 100).astype(dtype)
    target = np.zeros(shape, dtype)
    copy_into(target, source)
    np.testing.assert_array_equal(target, source)
    again = copied(source)
    assert again.tobytes() == source.tobytes() and again.flags.owndata and again.flags.writeable
    turned = copied(source.T)
    np.testing.assert_array_equal(turned, source.T)
    assert turned.flags.c_contiguous


def test_several_threads_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    real, both = np.copyto, threading.Event()

    def copyto(*args: Any, **given: Any) -> None:
        seen.add(threading.current_thread().name)
        if len(seen) > 1:
            both.set()
        both.wait(60)  # the first thread takes one part only, until another one has begun
        real(*args, **given)

    monkeypatch.setattr(np, "copyto", copyto)
    copied(np.arange(10_000))
    assert len(seen) > 1
    seen.clear()
    copied(np.arange(10))
    assert seen == {threading.current_thread().name}


def test_nothing_is_converted_or_repeated() -> None:
    with pytest.raises(TypeError):
        copy_into(np.zeros(1000, np.float32), np.zeros(1000))
    with pytest.raises(ValueError):
        copy_into(np.zeros((10, 100)), np.zeros((11, 100)))


def test_threads_are_used_again_also_after_an_error() -> None:
    copied(np.arange(10_000))
    made = host_copies._helpers[host_copies.fork.generation()]._made
    assert len(made) >= 3
    for _ in range(50):
        with pytest.raises(TypeError):
            copy_into(np.zeros(1000, np.float32), np.zeros(1000))
        source = np.random.default_rng(1).standard_normal(5_000)
        np.testing.assert_array_equal(copied(source), source)
    assert len(made) <= host_copies._MOST


def test_threads_that_copy_at_the_same_time() -> None:
    sources = [np.full(20_000, n) for n in range(6)]
    found: dict[int, list[Any]] = {n: [] for n in range(6)}

    def copies(n: int) -> None:
        for _ in range(20):
            found[n].append(copied(sources[n]))

    threads = [threading.Thread(target=copies, args=(n,)) for n in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(each) == 20 and all((x == n).all() for x in each) for n, each in found.items())


def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    copied(np.arange(10_000))
    before = set(host_copies._helpers[host_copies.fork.generation()]._made)
    monkeypatch.setattr(host_copies.fork, "generation", lambda: -1)
    np.testing.assert_array_equal(copied(np.arange(5_000)), np.arange(5_000))
    assert before.isdisjoint(host_copies._helpers.pop(-1)._made)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads copy late: the caller's, which takes one part only until another one has begun, is done before."""
    real, begun = np.copyto, threading.Event()

    def copyto(*args: Any, **given: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(60)
        else:
            begun.set()
            time.sleep(5e-3)
        real(*args, **given)

    monkeypatch.setattr(np, "copyto", copyto)


@pytest.mark.usefixtures("late")
def test_each_part_is_told_after_its_copy() -> None:
    source, target = np.arange(4_000), np.zeros(4_000, np.int64)
    parts, told = parts_of(target, source), []

    def done(number: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        np.testing.assert_array_equal(*parts[number])
        told.append(number)

    copy_parts(parts, done)
    assert sorted(told) == [*range(len(parts))] and len(parts) > 4


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_copied_after_an_error(error: type[BaseException]) -> None:
    for _ in range(3):
        source, target = np.ones(20_000), np.zeros(20_000)

        def done(number: int) -> None:
            raise error

        with pytest.raises(error):
            copy_parts(parts_of(target, source), done)
        target[:] = 0  # the caller uses it again
        time.sleep(1e-2)
        assert not target.any()


def test_an_error_of_another_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failed = np.copyto, threading.Event()

    def copyto(*args: Any, **given: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            failed.set()
            raise MemoryError
        failed.wait(60)
        real(*args, **given)

    monkeypatch.setattr(np, "copyto", copyto)
    with pytest.raises(MemoryError):
        copied(np.arange(10_000))
