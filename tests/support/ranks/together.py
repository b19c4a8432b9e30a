"""Runs a function as each of several ranks, in threads of this process, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from dslc.runtime.ranks.contract import Place
from dslc.runtime.ranks.group import Group

T = TypeVar("T")
SECRET = b"a secret of the tests"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def places(size: int, **changed: Any) -> list[Place]:
    given = {"seconds": 15.0, "start_seconds": 20.0, **changed}
    port = free_port()
    return [Place(rank, size, rank, size, "127.0.0.1", port, SECRET, **given) for rank in range(size)]


def together(there: list[Place], work: Callable[[Group], T]) -> list[Future[T]]:
    """The ended calls of ``work`` by rank; ``result()`` gives what it returned or raises its error."""

    def as_rank(place: Place) -> T:
        with Group(place) as group:
            return work(group)

    with ThreadPoolExecutor(len(there)) as pool:
        return [pool.submit(as_rank, place) for place in there]


def total(group: Group, vector: Any, numbers: Any) -> Any:
    """The sum of all ranks' vectors, of which each adds a part, and the rows of their numbers."""
    spans = [slice(len(vector) * r // group.size, len(vector) * (r + 1) // group.size) for r in range(group.size)]
    found = np.empty_like(vector)
    found[spans[group.rank]] = group.summed(vector, spans)
    group.spread(found, [[span] for span in spans])
    rows = group.gathered(np.ascontiguousarray(numbers, np.float64).reshape(-1).view(np.uint8))
    return found, rows.view(np.float64).reshape(-1, numbers.shape[1])
