"""Sockets by which ranks find each other: one that listens, and connections that have proved the secret."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from dslc.base.errors import RanksError
from dslc.runtime.ranks.contract import Place
from dslc.runtime.ranks.wire import WireError, admit

STRANGER: Final = 5.0  # seconds for a connection to prove the secret
_TRY: Final = 1.0  # seconds of a try to connect
_AGAIN: Final = 0.05  # seconds until a refused connection is tried again
_BACKLOG: Final = 128
_MAPPED: Final = "::ffff:"  # an IPv4 address, as a socket of IPv6 shows it


def listening(place: Place, port: int, host: str | None = None) -> socket.socket:
    """A socket that listens: on the loopback interface if rank 0 is reached through it, else where ``host`` says, or
    everywhere. RanksError R601."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host or place.host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        raise RanksError("R601", f"the host {place.host} is not known: {why}", place="MASTER_ADDR",
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
    gate.settimeout(STRANGER)
    return gate


def accepted(gate: socket.socket, place: Place) -> tuple[socket.socket, int]:
    """A connection that waits at the gate, and its rank. WireError if it does not know the secret."""
    try:
        link, _ = gate.accept()
    except OSError as error:  # it is gone
        raise WireError(str(error)) from error
    try:
        link.settimeout(STRANGER)
        return _ready(link), admit(link, place.secret)
    except WireError:
        link.close()
        raise


def dialled(at: tuple[str, int], left: Callable[[], float], check: Callable[[], None]) -> socket.socket:
    """A connection, which proves nothing yet. ``check`` is called before each try, and raises to give up. WireError
    when no time is left."""
    while True:
        check()
        try:
            return _ready(socket.create_connection(at, timeout=_TRY))
        except (OSError, UnicodeError) as error:  # TimeoutError and names that are not known (yet) included
            if not left():
                raise WireError(getattr(error, "strerror", None) or str(error)) from error
            time.sleep(_AGAIN)


def address_of(link: socket.socket) -> str:
    """The other side's address, as any host can use it."""
    address = str(link.getpeername()[0])
    return address.removeprefix(_MAPPED) if "." in address else address


def _ready(link: socket.socket) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
