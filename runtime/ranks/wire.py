"""Frames on sockets: a header of fixed size, then as many bytes as it says. Nothing that arrives is executed.

Who connects proves that it knows the secret, and so does who accepts, before either reads anything else; the secret
itself is not sent. A frame's kind and length are checked before its bytes are read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

MOST_TEXT: Final = 1 << 20  # bytes of a frame of JSON
_HEADER: Final = struct.Struct("<4sB3xQ")
_MAGIC: Final = b"dsl1"
TEXT: Final = 1
DATA: Final = 2
_NONCE: Final = 32
_HELLO: Final = struct.Struct(f"<{_NONCE}s32sI")
_CHUNK: Final = 1 << 20  # bytes of one send or receive


class WireError(Exception):
    """The other side ended, or does not speak as it should; the text says why."""


class AnotherSecret(WireError):
    """The other side does not know this side's secret, or this one not the other's."""


def send_text(to: socket.socket, data: Mapping[str, Any]) -> None:
    """Send a JSON object. WireError if the other side is gone."""
    body = json.dumps(data).encode()
    _send(to, _HEADER.pack(_MAGIC, TEXT, len(body)) + body)


def _send(to: socket.socket, content: bytes) -> None:
    try:
        to.sendall(content)
    except OSError as error:  # TimeoutError included
        raise WireError(error.strerror or str(error) or "the connection is closed") from error


def receive_text(source: socket.socket) -> dict[str, Any]:
    """The next frame, a JSON object of at most ``MOST_TEXT`` bytes. WireError for anything else."""
    magic, kind, length = _HEADER.unpack(receive(source, _HEADER.size))
    if magic != _MAGIC or kind != TEXT or length > MOST_TEXT:
        raise WireError("it sent something else than a message")
    try:
        found = json.loads(receive(source, length))
    except (ValueError, RecursionError) as error:
        raise WireError("it sent a message that cannot be read") from error
    if not isinstance(found, dict):
        raise WireError("it sent a message that cannot be read")
    return found


def receive(source: socket.socket, count: int) -> bytes:
    """Exactly ``count`` bytes. WireError if the other side ends or the socket's timeout passes."""
    found = bytearray()
    while len(found) < count:
        try:
            part = source.recv(min(count - len(found), _CHUNK))
        except OSError as error:  # TimeoutError included
            raise WireError(str(error) or "the connection is closed") from error
        if not part:
            raise WireError("it closed the connection")
        found += part
    return bytes(found)


def _proof(secret: bytes, side: bytes, *parts: bytes) -> bytes:
    return hmac.new(secret, side + b"".join(parts), hashlib.sha256).digest()


def greet(to: socket.socket, secret: bytes, rank: int) -> None:
    """The part of who connects: prove the secret, and check the other side's proof. WireError if it has another."""
    nonce, number = os.urandom(_NONCE), struct.pack("<I", rank)
    theirs = receive(to, len(_MAGIC) + _NONCE)
    if theirs[: len(_MAGIC)] != _MAGIC:
        raise WireError("it is no process of dslc")
    their_nonce = theirs[len(_MAGIC) :]
    _send(to, _HELLO.pack(nonce, _proof(secret, b"client", their_nonce, nonce, number), rank))
    try:
        proof = receive(to, 32)
    except WireError as error:
        raise AnotherSecret(f"{error}, as with another secret") from error
    if not hmac.compare_digest(proof, _proof(secret, b"server", their_nonce, nonce, number)):
        raise AnotherSecret("it has another secret")


def admit(to: socket.socket, secret: bytes) -> int:
    """The part of who accepts: returns the rank of a process that knows the secret. WireError for a stranger."""
    nonce = os.urandom(_NONCE)
    _send(to, _MAGIC + nonce)
    their_nonce, proof, rank = _HELLO.unpack(receive(to, _HELLO.size))
    number = struct.pack("<I", rank)
    if not hmac.compare_digest(proof, _proof(secret, b"client", nonce, their_nonce, number)):
        raise AnotherSecret("it has another secret")
    _send(to, _proof(secret, b"server", nonce, their_nonce, number))
    return int(rank)


def swap(
    sockets: Mapping[int, socket.socket],
    send: Mapping[int, memoryview],
    receive: Mapping[int, memoryview],
    check: Callable[[Collection[int]], None],
) -> None:
    """Send each rank its bytes while receiving from each rank exactly as many as ``receive`` has room for.

    Neither waits for the other, so no order of ranks can block. ``check`` is called whenever nothing moved for a while,
    with the ranks that are waited for, and raises to give up. WireError names the rank in its arguments: (rank, text).
    """
    out = {rank: [memoryview(_HEADER.pack(_MAGIC, DATA, len(v))), v] for rank, v in send.items()}
    heads = {rank: bytearray() for rank in receive}
    into = {rank: [v, 0] for rank, v in receive.items()}
    with selectors.DefaultSelector() as selector:
        for rank in {*out, *into}:
            sockets[rank].setblocking(False)
            events = (selectors.EVENT_WRITE if rank in out else 0) | (selectors.EVENT_READ if rank in into else 0)
            selector.register(sockets[rank], events, rank)
        while out or into:
            ready = selector.select(0.1)
            if not ready:
                check({*out, *into})
            for key, events in ready:
                rank = key.data
                try:
                    if events & selectors.EVENT_WRITE and rank in out:
                        _send_some(sockets[rank], out, rank)
                    if events & selectors.EVENT_READ and rank in into:
                        _receive_some(sockets[rank], heads, into, rank)
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise WireError(rank, error.strerror or "the connection is closed") from error
                wanted = (selectors.EVENT_WRITE if rank in out else 0) | (selectors.EVENT_READ if rank in into else 0)
                if not wanted:
                    selector.unregister(key.fileobj)
                elif wanted != key.events:
                    selector.modify(key.fileobj, wanted, rank)


def _send_some(to: socket.socket, out: dict[int, list[memoryview]], rank: int) -> None:
    parts = out[rank]
    sent = to.send(parts[0][:_CHUNK]) if len(parts[0]) else 0
    parts[0] = parts[0][sent:]
    while parts and not len(parts[0]):
        del parts[0]
    if not parts:
        del out[rank]


def _receive_some(source: socket.socket, heads: dict[int, bytearray], into: dict[int, list[Any]], rank: int) -> None:
    head, (view, at) = heads[rank], into[rank]
    if len(head) < _HEADER.size:
        part = source.recv(_HEADER.size - len(head))
        if not part:
            raise WireError(rank, "it closed the connection")
        head += part
        if len(head) == _HEADER.size and _HEADER.unpack(head) != (_MAGIC, DATA, len(view)):
            raise WireError(rank, "it sent something else than the expected part of a sum")
    else:
        count = source.recv_into(view[at : at + _CHUNK])
        if not count:
            raise WireError(rank, "it closed the connection")
        into[rank][1] = at + count
    if len(head) == _HEADER.size and into[rank][1] == len(view):
        del into[rank]


def deadline(seconds: float) -> Callable[[], float]:
    """The seconds that are left, at least 0."""
    end = time.monotonic() + seconds
    return lambda: max(0.0, end - time.monotonic())
