"""What the ranks of a training exchange: the sums over all shards, rank 0's commands, and whether they agree."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dslc.base.errors import RanksError
from dslc.runtime.ranks.contract import Place
from dslc.runtime.ranks.join import join
from dslc.runtime.ranks.mesh import connect
from dslc.runtime.ranks.watch import Watch
from dslc.runtime.ranks.wire import WireError, deadline, receive_text, send_text, swap
from dslc.runtime.session.calls.shard_sum import added

_NOT_SET: Final = "not set"


class Group:
    """All ranks, as this one sees them; ``with Group(place) as group`` waits for them. RanksError R601 to R603.

    Each call is made by all ranks in the same order. An exception that leaves the ``with`` is sent to the others."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rank, self.size = place.rank, place.size
        joined = join(place)
        self._control = joined.control
        self._data: dict[int, socket.socket] = {}
        self._watch = Watch(place, self._control, self._data)
        self._watch.start()
        with ExitStack() as held:
            held.push(self.__exit__)
            connect(place, joined, self._data, self._watch)
            held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._watch.report(error)
        self._watch.close()
        for link in (*self._control.values(), *self._data.values()):
            link.close()

    def summed(self, vector: NDArray[Any], spans: Sequence[slice]) -> NDArray[Any]:
        """This rank's part of the sum of all ranks' vectors by the tree of ``added``. ``spans``: the part of each rank.

        Rank r gets the r-th part of every vector, and adds them: bits are moved, and only ``added`` computes."""
        mine = vector[spans[self.rank]]
        pieces = [mine if r == self.rank else np.empty_like(mine) for r in range(self.size)]
        self._swap({r: vector[spans[r]] for r in self._others}, {r: pieces[r] for r in self._others})
        return added(pieces)

    def spread(self, vector: NDArray[Any], spans: Sequence[Sequence[slice]]) -> None:
        """Write into each rank's vector the elements that another rank has: ``spans`` are those of each rank."""
        for turn in range(max(map(len, spans))):
            own = [vector[span] for span in spans[self.rank][turn : turn + 1]]
            theirs = {r: vector[span] for r in self._others for span in spans[r][turn : turn + 1]}
            self._swap({r: part for r in self._others for part in own}, theirs)

    def gathered(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """All ranks' rows, in their order: u8[bytes] -> u8[size, bytes]."""
        rows = np.empty((self.size, *row.shape), np.uint8)
        rows[self.rank] = row
        self._swap(dict.fromkeys(self._others, row), {r: rows[r] for r in self._others})
        return rows

    def agree(self, facts: Mapping[str, str]) -> None:
        """Compare what must be equal on all ranks, by name. RanksError R602 on every rank, naming the first rank and
        fact that differ."""
        if self.rank != 0:
            self._send(0, dict(facts))
            answer = self._receive(0)
        else:
            found = [_difference(facts, self._receive(rank), rank) for rank in self._others]
            answer = {"differs": next((each for each in found if each is not None), None)}
            for rank in self._others:
                self._send(rank, answer)
        if answer.get("differs") is not None:
            raise RanksError("R602", str(answer["differs"]), place=f"rank {self.rank}",
                             help="give all processes the same files, configuration and installation")  # fmt: skip

    def command(self, what: Mapping[str, Any], tensors: Sequence[NDArray[Any]] = ()) -> None:
        """Rank 0: tell all others what to do, and send them tensors."""
        for rank in self._others:
            self._send(rank, what)
        for tensor in tensors:
            if tensor.size:
                self._swap(dict.fromkeys(self._others, tensor), {})

    def commanded(self) -> dict[str, Any]:
        """The others: the next command of rank 0, however long it takes."""
        return self._receive(0)

    def take(self, tensors: Sequence[NDArray[Any]]) -> None:
        """The others: fill arrays with the tensors of a command."""
        for tensor in tensors:
            if tensor.size:
                self._swap({}, {0: tensor})

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _swap(self, send: Mapping[int, NDArray[Any]], receive: Mapping[int, NDArray[Any]]) -> None:
        late = deadline(self.place.step_seconds)

        def check(waiting: Collection[int]) -> None:
            self._watch.check()
            if not late():
                raise self._watch.idle(min(waiting))

        try:
            out, into = ({rank: _bytes(array) for rank, array in each.items()} for each in (send, receive))
            swap(self._data, out, into, check)
        except WireError as error:
            raise self._watch.lost(*error.args) from error

    def _send(self, rank: int, message: Mapping[str, Any]) -> None:
        self._watch.check()
        link = self._data[rank]
        link.settimeout(self.place.seconds)
        try:
            send_text(link, message)
        except WireError as error:
            raise self._watch.lost(rank, str(error)) from error

    def _receive(self, rank: int) -> dict[str, Any]:
        link = self._data[rank]
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_READ)
            while not selector.select(0.1):
                self._watch.check()
        link.settimeout(self.place.seconds)
        try:
            return receive_text(link)
        except WireError as error:
            raise self._watch.lost(rank, str(error)) from error


def _bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of a dense array, not a copy."""
    assert array.flags.c_contiguous
    return memoryview(array.reshape(-1).view(np.uint8).data)


def _difference(facts: Mapping[str, str], theirs: Mapping[str, Any], rank: int) -> str | None:
    for name in dict.fromkeys((*facts, *theirs)):
        mine, other = facts.get(name, _NOT_SET), str(theirs.get(name, _NOT_SET))
        if mine != other:
            return f"{name} of rank {rank} is {other[:80]}, that of rank 0 is {mine}"
    return None
