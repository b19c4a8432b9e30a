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


def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    copied(np.arange(10_000))
    before = dict(host_copies._pools)
    monkeypatch.setattr(host_copies.fork, "generation", lambda: -1)
    np.testing.assert_array_equal(copied(np.arange(5_000)), np.arange(5_000))
    pool = host_copies._pools.pop(-1)
    pool.shutdown()
    assert pool not in before.values()
