"""An NCCL of the fake driver, whose ranks are threads of this process: the calls of nccl4py that the runtime makes.

Names and arguments are those of ``nccl.core`` and ``nccl.bindings.nccl`` 0.6. What a rank sends is taken when its
stream has come so far, and arrives in the order of the calls between two ranks, as in NCCL.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_gpu.fake_driver import FakeDriver, Stream

_SECONDS = 30.0  # until a rank gives up to wait for another one


class NCCLError(Exception):
    """What the bindings raise."""


class _Handle:
    """``nccl.bindings.nccl.Comm``"""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle


class FakeNccl:
    """``core`` and ``bindings``; ``sent``: the bytes that each rank has sent, ``groups``: how many groups of calls,
    ``refuse``: each of them fails."""

    def __init__(self, fake: FakeDriver) -> None:
        self.fake = fake
        self.sent: dict[int, int] = defaultdict(int)
        self.groups = 0
        self.aborted = 0
        self.refuse = False
        self._numbers = itertools.count(1)
        self._ranks: dict[int, tuple[bytes, int]] = {}  # handle -> the communicator's name, rank
        self._links: dict[tuple[bytes, int, int], queue.Queue[bytes]] = defaultdict(queue.Queue)
        self._meeting: dict[bytes, threading.Barrier] = {}
        self._lock = threading.Lock()
        self._local = threading.local()
        self.bindings = SimpleNamespace(
            NCCLError=NCCLError, Comm=_Handle, get_version=lambda: 23203, group_start=self._start, group_end=self._end,
            send=self._call("send"), recv=self._call("recv"),
        )  # fmt: skip
        self.core = SimpleNamespace(
            __version__="0.6.0", UINT8=1, get_unique_id=self._unique_id, UniqueId=SimpleNamespace(from_bytes=bytes),
            Communicator=SimpleNamespace(init=self._init),
        )  # fmt: skip

    def _unique_id(self) -> bytes:
        return next(self._numbers).to_bytes(128, "little")

    def _init(self, size: int, rank: int, name: bytes) -> Any:
        """Waits for all ranks of the name, as NCCL does."""
        with self._lock:
            meeting = self._meeting.setdefault(name, threading.Barrier(size))
            handle = next(self._numbers)
            self._ranks[handle] = name, rank
        meeting.wait(_SECONDS)
        return SimpleNamespace(ptr=handle, abort=self._abort)

    def _abort(self) -> None:
        with self._lock:
            self.aborted += 1

    def _start(self) -> None:
        self._local.calls = []
        with self._lock:
            self.groups += 1

    def _call(self, kind: str) -> Callable[..., None]:
        def call(address: int, count: int, dtype: int, peer: int, communicator: _Handle, stream: int) -> None:
            assert dtype == 1 and count > 0 and isinstance(stream, int)
            self._local.calls.append((kind, address, count, peer, communicator.handle, stream))

        return call

    def _end(self) -> None:
        if self.refuse:
            raise NCCLError("UnhandledCudaError (1): unhandled cuda error")
        for kind, address, count, peer, handle, stream in self._local.calls:
            if kind == "send":
                name, rank = self._ranks[handle]
                self._link(name, rank, peer).put(self._memory(address, count, stream).tobytes())
                self.sent[rank] += count
        for kind, address, count, peer, handle, stream in self._local.calls:
            if kind == "recv":
                name, rank = self._ranks[handle]
                data = self._link(name, peer, rank).get(timeout=_SECONDS)
                assert len(data) == count, "two ranks do not agree on the size of a message"
                with self.fake._lock:
                    self.fake._put(stream, partial(self._arrive, address, np.frombuffer(data, np.uint8)))

    def _link(self, name: bytes, sender: int, receiver: int) -> queue.Queue[bytes]:
        with self._lock:  # a ``defaultdict`` can make two queues for two threads that miss the same key
            return self._links[name, sender, receiver]

    def _arrive(self, address: int, data: np.ndarray) -> None:
        self.fake.array(address, "u1", len(data))[:] = data

    def _memory(self, address: int, count: int, stream: int) -> np.ndarray:
        """Device memory, after all that is on the stream."""
        with self.fake._lock:
            self.fake._drain(self.fake._get(stream, Stream))
            return self.fake.array(address, "u1", count)
