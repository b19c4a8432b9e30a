"""Copies of large arrays by several threads: those of one."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from dslc.runtime.session import host_copies
from dslc.runtime.session.host_copies import copied, copy_into


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "_PART", 64)
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
    real = np.copyto

    def copyto(*args: Any, **given: Any) -> None:
        seen.add(threading.current_thread().name)
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
    idle = host_copies._idle[host_copies.fork.generation()]
    before = set(idle)
    assert len(before) >= 3
    for _ in range(5):
        with pytest.raises(TypeError):
            copy_into(np.zeros(1000, np.float32), np.zeros(1000))
        source = np.random.default_rng(1).standard_normal(5_000)
        np.testing.assert_array_equal(copied(source), source)
    assert set(idle) == before


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
    before = set(host_copies._idle[host_copies.fork.generation()])
    monkeypatch.setattr(host_copies.fork, "generation", lambda: -1)
    np.testing.assert_array_equal(copied(np.arange(5_000)), np.arange(5_000))
    assert before.isdisjoint(host_copies._idle.pop(-1))
