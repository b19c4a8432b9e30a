"""The start: ranks find each other and connect, each with each.

Rank 0 listens at the place that the launch contract names. Every other rank connects to it, says who it is and where it
listens itself; when all have come, rank 0 tells the addresses, and each rank connects to those below it. A mistake of
one rank is sent to all. A connection that does not know the secret is closed and does not count.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dslc.base.errors import RanksError
from dslc.runtime.ranks.contract import SECRET, START_SECONDS, Place
from dslc.runtime.ranks.wire import WireError, admit, deadline, greet, receive_text, send_text

_STRANGER: Final = 5.0  # seconds for a connection to prove the secret
_STRAGGLERS: Final = 2.0  # seconds after a mistake in which the other ranks may still join, and get to know of it
_AGAIN: Final = 0.05  # seconds until a refused connection is tried again
_LATER: Final = 5.0
_BACKLOG: Final = 128


@dataclass(frozen=True)
class Links:
    """The connections of a rank, by the other's rank. ``control``: from rank 0 to each, of the others to rank 0 alone;
    ``data``: each with each."""

    control: Mapping[int, socket.socket]
    data: Mapping[int, socket.socket]

    def close(self) -> None:
        for link in (*self.control.values(), *self.data.values()):
            link.close()


def connect(place: Place) -> Links:
    """Wait for all ranks. RanksError R601, the same on every rank that is reached."""
    left = deadline(place.start_seconds)
    return _lead(place, left) if place.rank == 0 else _follow(place, left)


def _lead(place: Place, left: Callable[[], float]) -> Links:
    gate = _listening(place, place.port)
    control: dict[int, socket.socket] = {}
    hosts: dict[int, tuple[str, int]] = {}
    try:
        with gate:
            wrong: RanksError | None = None
            until = left
            while len(control) < place.size - 1:
                link, rank = _admitted(gate, place, until, partial(_late, place, control, wrong))
                link.settimeout(max(left(), _STRANGER))
                try:
                    hello = receive_text(link)
                except WireError:
                    link.close()
                    raise
                found = _wrong(place, rank, control, hello)
                control[rank if found is None else -1 - len(control)] = link  # it gets to know what is wrong, too
                if found is None:
                    hosts[rank] = (link.getpeername()[0], int(hello["port"]))
                elif wrong is None:
                    wrong, until = found, deadline(min(left(), _STRAGGLERS))
            if wrong is not None:
                raise wrong
        with _listening(place, 0) as mesh:
            hosts[0] = (place.host, mesh.getsockname()[1])
            for link in control.values():
                send_text(link, {"hosts": {str(rank): list(at) for rank, at in hosts.items()}})
            return Links(control, _meshed(place, mesh, hosts, left))
    except RanksError as error:
        for link in control.values():
            try:
                send_text(link, {"refused": [error.message, error.place, error.help]})
            except WireError:
                continue  # it has ended
            finally:
                link.close()
        raise
    except WireError as error:
        for link in control.values():
            link.close()
        raise RanksError("R601", f"a process ended while it joined: {error}", place=f"{place.host}:{place.port}",
                         help="look at the messages of the other processes") from error  # fmt: skip


def _follow(place: Place, left: Callable[[], float]) -> Links:
    at = f"{place.host}:{place.port}"
    try:
        link = _connected(place, (place.host, place.port), left)
    except WireError as error:
        raise RanksError("R601", f"rank {place.rank} cannot join rank 0: {error}", place=at,
                         help=f"start all {place.size} processes with the same MASTER_ADDR, MASTER_PORT and {SECRET}",
                         ) from error  # fmt: skip
    try:
        here = link.getsockname()[0]
        with _listening(place, 0, here) as mesh:
            send_text(link, {"size": place.size, "port": mesh.getsockname()[1]})
            link.settimeout(place.start_seconds + _LATER)  # rank 0 tells who is missing
            told = receive_text(link)
            if "refused" in told:
                message, where, help = told["refused"]
                raise RanksError("R601", message, place=where, help=help)
            hosts = {int(rank): (str(host), int(port)) for rank, (host, port) in told["hosts"].items()}
            return Links({0: link}, _meshed(place, mesh, hosts, left))
    except RanksError:
        link.close()
        raise
    except (WireError, KeyError, TypeError, ValueError) as error:
        link.close()
        raise RanksError("R601", f"rank 0 ended while rank {place.rank} joined: {error}", place=at,
                         help="look at the messages of the other processes") from error  # fmt: skip


def _wrong(place: Place, rank: int, there: Mapping[int, socket.socket], hello: Mapping[str, Any]) -> RanksError | None:
    if hello.get("size") != place.size:
        return RanksError("R601", f"rank {rank} expects {hello.get('size')} processes, and rank 0 {place.size}",
                          place="WORLD_SIZE", help="start all processes with the same WORLD_SIZE")  # fmt: skip
    if not 0 < rank < place.size or rank in there:
        why = "came twice" if rank in there or rank == 0 else f"is not below {place.size}"
        return RanksError("R601", f"rank {rank} {why}", place="RANK", help="give each process a RANK of its own")
    return None


def _late(place: Place, there: Mapping[int, socket.socket], wrong: RanksError | None) -> RanksError:
    return wrong or _missing(place, there)


def _missing(place: Place, there: Mapping[int, socket.socket]) -> RanksError:
    missing = [rank for rank in range(1, place.size) if rank not in there]
    names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    said = f"{place.size - len(missing)} of {place.size} processes came in {place.start_seconds:g} s; missing: {names}"
    return RanksError("R601", said, place=f"{place.host}:{place.port}",
                      help=f"start each rank with the same secret; {START_SECONDS} allows more time")  # fmt: skip


def _listening(place: Place, port: int, host: str | None = None) -> socket.socket:
    """A socket that listens: on the loopback interface if rank 0 is reached through it, else where ``host`` says, or
    everywhere."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host or place.host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise RanksError("R601", f"the host {place.host} is not known: {error.strerror}", place="MASTER_ADDR",
                         help="set MASTER_ADDR to the host of rank 0") from error  # fmt: skip
    near = str(address[0]).startswith("127.") or address[0] == "::1"
    gate = socket.socket(family, socket.SOCK_STREAM)
    try:
        if port:  # connections of an earlier training may still be closing
            gate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        gate.bind((str(address[0]) if near or host is not None else "", port))
        gate.listen(_BACKLOG)
    except OSError as error:
        gate.close()
        raise RanksError("R601", f"rank {place.rank} cannot listen at port {port}: {error.strerror}",
                         place=f"{place.host}:{port}", help="choose another MASTER_PORT") from error  # fmt: skip
    return gate


def _admitted(
    gate: socket.socket, place: Place, left: Callable[[], float], late: Callable[[], RanksError]
) -> tuple[socket.socket, int]:
    """The next connection that knows the secret, and its rank; raises ``late`` when no time is left."""
    while True:
        gate.settimeout(left() or 0.001)
        try:
            link, _ = gate.accept()
        except OSError as error:  # TimeoutError included
            raise late() from error
        try:
            link.settimeout(_STRANGER)
            return _ready(link), admit(link, place.secret)
        except WireError:
            link.close()


def _connected(place: Place, at: tuple[str, int], left: Callable[[], float]) -> socket.socket:
    """A connection that has proved the secret on both sides. WireError when no time is left."""
    while True:
        try:
            link = socket.create_connection(at, timeout=max(left(), _AGAIN))
        except OSError as error:
            if not left():
                raise WireError(error.strerror or str(error)) from error
            time.sleep(_AGAIN)
            continue
        try:
            link.settimeout(max(left(), _STRANGER))
            greet(link, place.secret, place.rank)
            return _ready(link)
        except (WireError, OSError):
            link.close()
            raise


def _ready(link: socket.socket) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def _meshed(
    place: Place, mesh: socket.socket, hosts: Mapping[int, tuple[str, int]], left: Callable[[], float]
) -> dict[int, socket.socket]:
    """The connections of each with each: to the ranks below, from those above."""
    data: dict[int, socket.socket] = {}
    try:
        for rank in range(place.rank):
            data[rank] = _connected(place, hosts[rank], left)
        while len(data) < place.size - 1:
            link, rank = _admitted(mesh, place, left, lambda: _missing(place, data))
            if not place.rank < rank < place.size or rank in data:
                link.close()
                continue
            data[rank] = link
    except (RanksError, WireError):
        for link in data.values():
            link.close()
        raise
    return data
