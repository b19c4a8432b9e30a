"""The start: ranks find rank 0, and get to know each other.

Rank 0 listens at the place that the launch contract names. Every other rank connects to it, says who it is and where it
listens itself; when all have come, rank 0 tells the addresses. A mistake, or the end, of one rank is sent to all. A
connection that does not know the secret is closed and does not count. ``mesh.py`` then connects each with each.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dslc.base.errors import RanksError
from dslc.base.version import VERSION
from dslc.runtime.ranks.contract import SECRET, START_SECONDS, Place
from dslc.runtime.ranks.sockets import STRANGER, accepted, address_of, dialled, listening
from dslc.runtime.ranks.watch import ended
from dslc.runtime.ranks.wire import AnotherSecret, WireError, deadline, greet, receive_text, send_text

_STRAGGLERS: Final = 2.0  # seconds after a mistake in which the other ranks may still join, and get to know of it
_LATER: Final = 5.0
_CODES: Final = ("R601", "R602", "R603")


@dataclass(frozen=True)
class Joined:
    """What a rank knows of the others. ``control``: its connections by rank: rank 0's to each, the others' to rank 0;
    ``hosts``: where each accepts connections; ``gate``: where this one does."""

    control: Mapping[int, socket.socket]
    hosts: Mapping[int, tuple[str, int]]
    gate: socket.socket


def join(place: Place) -> Joined:
    """Wait for all ranks. RanksError R601 to R603, the same on every rank that is reached."""
    left = deadline(place.start_seconds)
    return _lead(place, left) if place.rank == 0 else _follow(place, left)


def _lead(place: Place, left: Callable[[], float]) -> Joined:
    control: dict[int, socket.socket] = {}
    try:
        with listening(place, place.port) as gate:
            hosts = _hosts(place, gate, control, left)
        mesh = listening(place, 0)
        hosts[0] = (place.host, mesh.getsockname()[1])
        for link in control.values():
            with suppress(WireError):  # the watch says that it has ended
                send_text(link, {"hosts": {str(rank): list(at) for rank, at in hosts.items()}})
        return Joined(control, hosts, mesh)
    except RanksError as error:
        for link in control.values():
            with link, suppress(WireError):  # it has ended
                send_text(link, {"refused": [error.code, error.message, error.place, error.help]})
        raise


def _hosts(
    place: Place, gate: socket.socket, control: dict[int, socket.socket], left: Callable[[], float]
) -> dict[int, tuple[str, int]]:
    """Fill ``control`` with the ranks that come, wrong ones too, which get to know it. Returns where each accepts
    connections."""
    hosts: dict[int, tuple[str, int]] = {}
    wrong: RanksError | None = None
    until = left
    strangers = 0  # connections with another secret
    with selectors.DefaultSelector() as selector:
        selector.register(gate, selectors.EVENT_READ)
        while len(control) < place.size - 1:
            ready = selector.select(until())
            if not ready:
                raise wrong or _missing(place, hosts, strangers)
            for key, _ in ready:
                try:
                    if key.fileobj is not gate:  # a rank says nothing before it knows the addresses
                        selector.unregister(key.fileobj)
                        raise ended(key.data, place.size, "it closed the connection while others joined")
                    link, rank = accepted(gate, place)
                    port = _port_of(place, link, rank, hosts, left)
                    control[rank], hosts[rank] = link, (address_of(link), port)
                    selector.register(link, selectors.EVENT_READ, rank)
                except WireError as error:
                    strangers += isinstance(error, AnotherSecret)
                except RanksError as error:
                    if key.fileobj is gate:
                        control[-1 - len(control)] = link
                    if wrong is None:
                        wrong, until = error, deadline(min(left(), _STRAGGLERS))
    if wrong is not None:
        raise wrong
    return hosts


def _port_of(place: Place, link: socket.socket, rank: int, there: Collection[int], left: Callable[[], float]) -> int:
    """Where a rank that has come accepts connections. RanksError R601 or R602 if it does not fit, R603 if it ends."""
    link.settimeout(max(left(), STRANGER))
    try:
        hello = receive_text(link)
    except WireError as error:
        raise ended(rank, place.size, f"{error} while it joined") from error
    if hello.get("dslc") != VERSION:
        raise RanksError("R602", f"rank {rank} has dslc {str(hello.get('dslc'))[:40]}, and rank 0 {VERSION}",
                         place=f"rank {rank}", help="give all processes the same installation")  # fmt: skip
    if hello.get("size") != place.size:
        raise RanksError("R601", f"rank {rank} expects {hello.get('size')} processes, and rank 0 {place.size}",
                         place="WORLD_SIZE", help="start all processes with the same WORLD_SIZE")  # fmt: skip
    if not 0 < rank < place.size or rank in there:
        why = "came twice" if rank in there or rank == 0 else f"is not below {place.size}"
        raise RanksError("R601", f"rank {rank} {why}", place="RANK", help="give each process a RANK of its own")
    return int(hello["port"])


def _missing(place: Place, there: Collection[int], strangers: int) -> RanksError:
    missing = [rank for rank in range(1, place.size) if rank not in there]
    names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    said = f"{place.size - len(missing)} of {place.size} processes came in {place.start_seconds:g} s; missing: {names}"
    if strangers:
        said += f"; {strangers} connection{'s' if strangers > 1 else ''} had another secret"
    return RanksError("R601", said, place=f"{place.host}:{place.port}",
                      help=f"start each rank with the same secret; {START_SECONDS} allows more time")  # fmt: skip


def _follow(place: Place, left: Callable[[], float]) -> Joined:
    at = f"{place.host}:{place.port}"
    try:
        link = dialled((place.host, place.port), left, lambda: None)
    except WireError as error:
        raise _cannot_join(place, at, error) from error
    try:
        link.settimeout(max(left(), STRANGER))
        try:
            greet(link, place.secret, place.rank)
        except WireError as error:
            raise _cannot_join(place, at, error) from error
        mesh = listening(place, 0, link.getsockname()[0])
        try:
            send_text(link, {"dslc": VERSION, "size": place.size, "port": mesh.getsockname()[1]})
            link.settimeout(place.start_seconds + _LATER)  # rank 0 tells who is missing
            return Joined({0: link}, _told(receive_text(link)), mesh)
        except BaseException:
            mesh.close()
            raise
    except RanksError:
        link.close()
        raise
    except (WireError, KeyError, TypeError, ValueError) as error:
        link.close()
        raise ended(0, place.size, f"{error} while rank {place.rank} joined") from error


def _told(by_rank_0: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    if "refused" in by_rank_0:
        code, message, where, help = by_rank_0["refused"]
        if code in _CODES:
            raise RanksError(code, message, place=where, help=help)
    return {int(rank): (str(host), int(port)) for rank, (host, port) in by_rank_0["hosts"].items()}


def _cannot_join(place: Place, at: str, why: WireError) -> RanksError:
    help = f"start all {place.size} processes with the same MASTER_ADDR, MASTER_PORT and {SECRET}"
    return RanksError("R601", f"rank {place.rank} cannot join rank 0: {why}", place=at, help=help)
