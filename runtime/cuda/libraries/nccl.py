"""Moves bytes between the GPUs of several processes, by NCCL through the package nccl4py. It adds nothing."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from dslc.base.errors import EnvironmentFault, RanksError
from dslc.base.version import install_extra
from dslc.base.words import reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.session.calls.shard_sum import Exchange

#: Addresses in device memory and their sizes in bytes.
Pieces: TypeAlias = Sequence[tuple[int, int]]
_ID_BYTES: Final = 128


def load_nccl() -> Any:
    """The package's calls, with the library loaded: ``core`` and ``bindings``. EnvironmentFault R205 if one of them is
    not installed."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # multicast is of no use without sums
    try:
        from nccl import core
        from nccl.bindings import nccl as bindings

        bindings.get_version()  # loads the library
    except (ImportError, RuntimeError, OSError) as error:  # RuntimeError: the library is not found
        raise EnvironmentFault("R205", f"NCCL cannot be loaded: {reason(error)}",
                               help=f"{install_extra('nccl')}, or train with one process") from error  # fmt: skip
    return SimpleNamespace(core=core, bindings=bindings)


def nccl_version() -> str:
    """``2.32.3`` and the package's version. EnvironmentFault R205 if one of them is not installed."""
    nccl = load_nccl()
    number = int(nccl.bindings.get_version())
    library = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{library}, nccl4py {nccl.core.__version__}"


class Nccl:
    """The communicator of a GPU with those of the other processes. Its calls enqueue work, which begins when all
    processes have made the same call; the device's context is current.

    Raises EnvironmentFault R205, and RanksError R603 for what NCCL refuses."""

    def __init__(self, device: Device, group: Exchange) -> None:
        """All processes of the group call this together."""
        nccl = load_nccl()
        self._bindings, self._core = nccl.bindings, nccl.core
        name = bytes(_ID_BYTES)
        with device:
            try:
                if group.rank == 0:
                    name = bytes(nccl.core.get_unique_id())
                here = hashlib.sha256(f"{platform.node()} {device.bus_id}".encode()).digest()
                rows = group.gathered(np.frombuffer(name + here, np.uint8))
                require_own_gpus(rows[:, _ID_BYTES:], device)
                first = nccl.core.UniqueId.from_bytes(bytearray(rows[0, :_ID_BYTES].tobytes()))
                self._communicator: Any = nccl.core.Communicator.init(group.size, group.rank, first)
            except self._bindings.NCCLError as error:
                raise self._refused(error) from error
        self._handle = self._bindings.Comm(self._communicator.ptr)
        self._bytes = int(nccl.core.UINT8)

    def swap(self, key: Hashable, send: Mapping[int, Pieces], receive: Mapping[int, Pieces], stream: Any) -> None:
        """As ``Transport`` says; NCCL needs no key."""
        calls, stream = self._bindings, int(stream)
        try:
            calls.group_start()
            for rank, pieces in send.items():
                for address, size in pieces:
                    if size:
                        calls.send(address, size, self._bytes, rank, self._handle, stream)
            for rank, pieces in receive.items():
                for address, size in pieces:
                    if size:
                        calls.recv(address, size, self._bytes, rank, self._handle, stream)
            calls.group_end()
        except calls.NCCLError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Nothing is in flight. A repeated call does nothing."""
        self._communicator.abort()  # not `destroy`, which waits for the other processes

    def _refused(self, error: Exception) -> RanksError:
        return RanksError("R603", f"NCCL failed: {reason(error)}", place="NCCL",
                          help="NCCL_DEBUG=WARN makes it say more; look at the other processes' messages")  # fmt: skip


def require_own_gpus(places: NDArray[np.uint8], device: Device) -> None:
    """RanksError R601 if two processes use one GPU."""
    seen: dict[bytes, int] = {}
    for rank, place in enumerate(places):
        other = seen.setdefault(place.tobytes(), rank)
        if other != rank:
            raise RanksError("R601", f"ranks {other} and {rank} use the same GPU", place=str(device),
                             help="start as many processes on a host as it has GPUs")  # fmt: skip
