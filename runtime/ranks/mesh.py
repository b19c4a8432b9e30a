"""The connections of each rank with each, while the ranks already watch each other."""

from __future__ import annotations

import selectors
import socket

from dslc.base.errors import RanksError
from dslc.runtime.ranks.contract import START_SECONDS, Place
from dslc.runtime.ranks.join import Joined
from dslc.runtime.ranks.sockets import STRANGER, accepted, dialled
from dslc.runtime.ranks.watch import Watch
from dslc.runtime.ranks.wire import WireError, deadline, greet


def connect(place: Place, joined: Joined, data: dict[int, socket.socket], watch: Watch) -> None:
    """Fill ``data`` with connections: to the ranks below, from those above. RanksError R603: what the watch finds, or
    two ranks that do not reach each other."""
    left = deadline(place.start_seconds)
    with joined.gate as gate, selectors.DefaultSelector() as selector:
        for rank in range(place.rank):
            host, port = joined.hosts[rank]
            try:
                link = data[rank] = dialled((host, port), left, watch.check)
            except WireError as error:
                raise RanksError("R603", f"rank {place.rank} cannot connect to rank {rank}: {error}",
                                 place=f"{host}:{port}", help="hosts of ranks must reach each other at all ports",
                                 ) from error  # fmt: skip
            link.settimeout(max(left(), STRANGER))  # it may be connecting itself; at its end, the watch shuts this
            try:
                greet(link, place.secret, place.rank)
            except WireError as error:
                raise watch.lost(rank, str(error)) from error
        selector.register(gate, selectors.EVENT_READ)
        while missing := set(range(place.size)) - {place.rank, *data}:
            watch.check()
            if not left():
                said = f"rank {min(missing)} has not connected to rank {place.rank} in {place.start_seconds:g} s"
                raise RanksError("R603", said, place=f"rank {place.rank}", help=f"{START_SECONDS} allows more time")
            if not selector.select(0.1):
                continue
            try:
                link, rank = accepted(gate, place)
            except WireError:
                continue
            if rank in missing:
                data[rank] = link
            else:
                link.close()
