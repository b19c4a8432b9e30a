"""The launch contract: which rank this process is, and where rank 0 waits, from environment variables.

``RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT`` as torchrun and Kubernetes' JobSet set them. Those of Slurm
(``srun``) and MPI (``mpirun``) are mapped to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dslc.base.errors import RanksError

SECRET: Final = "DSLC_RANKS_SECRET"
SECONDS: Final = "DSLC_RANKS_SECONDS"
STEP_SECONDS: Final = "DSLC_RANKS_STEP_SECONDS"
START_SECONDS: Final = "DSLC_RANKS_START_SECONDS"
MOST_RANKS: Final = 1024
PORT: Final = 29_471  # if nobody names one
_LEAST_SECRET: Final = 16  # characters
#: (the launcher, the variables of its rank, number of ranks, rank and number of ranks on this host). In an allocation
#: of Slurm without `srun` there is no step, so a command that is typed there is alone.
_LAUNCHERS: Final = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)  # fmt: skip
#: what else says that there are several processes
_OF_SEVERAL: Final = ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Place:
    """``rank`` of ``size`` ranks, of which ``local_size`` are on this host. Rank 0 waits at ``host`` and ``port``.

    ``seconds``: how long a rank may be silent before all end; ``start_seconds``: how long ranks wait for each other at
    the start; ``step_seconds``: how long in a step."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    secret: bytes
    seconds: float = 30.0
    start_seconds: float = 120.0
    step_seconds: float = 600.0


def place_of(environment: Mapping[str, str]) -> Place | None:
    """This process's place; None if it is alone. RanksError R601 for variables that do not fit together."""
    found = next((names for names in _LAUNCHERS if names[2] in environment), None)
    if found is None:
        _require_no_rank(environment)
        return None
    launcher, rank, size, local_rank, local_size = found
    count = _number(environment, size, 1, MOST_RANKS)
    if count == 1:
        return None
    if rank not in environment:
        raise RanksError("R601", f"{size} is {count}, but {rank} is not set", place=rank,
                         help=f"unset {size} to train alone, or set {rank} from 0 to {count - 1}")  # fmt: skip
    number = _number(environment, rank, 0, count - 1)
    here = _number(environment, local_rank, 0, count - 1) if local_rank in environment else number
    of_host = environment.get(local_size, "")
    there = re.match(r"[1-9][0-9]{0,3}", of_host)
    secret = environment.get(SECRET, "")
    if len(secret) < _LEAST_SECRET:
        said = f"{SECRET} has {len(secret)} of at least {_LEAST_SECRET} characters"
        help = f"give all {count} processes the same: export {SECRET}=$(openssl rand -hex 16)"
        raise RanksError("R601", said, place=SECRET, help=help)
    return Place(
        number,
        count,
        here,
        int(there[0]) if there else count,
        _host(environment, launcher, count),
        _port(environment),
        secret.encode(errors="surrogateescape"),
        _seconds(environment, SECONDS, Place.seconds),
        _seconds(environment, START_SECONDS, Place.start_seconds),
        _seconds(environment, STEP_SECONDS, Place.step_seconds),
    )


def lost_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that describe this process's place among several, though it is alone: no launcher's number of ranks
    is set."""
    if any(size in environment for _, _, size, _, _ in _LAUNCHERS):
        return ()
    return tuple(name for name in _OF_SEVERAL if name in environment)


def _require_no_rank(environment: Mapping[str, str]) -> None:
    """RanksError R601 for a rank without the number of ranks: of several processes, each would train alone. The script
    of a batch job of Slurm is rank 0 of no step, and alone."""
    for launcher, rank, size, *_ in _LAUNCHERS:
        if rank in environment and not (launcher == "Slurm" and environment[rank] == "0"):
            raise RanksError("R601", f"{rank} is {environment[rank][:40]}, but {size} is not set", place=size,
                             help=f"set {size} to the number of processes, or unset {rank} to train alone")  # fmt: skip


def _number(environment: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = environment[name]
    if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
        raise RanksError("R601", f"{name} is {text[:40]!r}", place=name, help=f"it is a number from {low} to {high}")
    return int(text)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    return _number(environment, name, 1, 86_400) if name in environment else default


def _host(environment: Mapping[str, str], launcher: str, count: int) -> str:
    if host := environment.get("MASTER_ADDR"):
        return host
    if launcher == "Slurm" and (nodes := environment.get("SLURM_STEP_NODELIST")):
        return first_node(nodes)
    local = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") or environment.get("MPI_LOCALNRANKS")
    if local is not None and local == str(count):
        return "127.0.0.1"
    raise RanksError("R601", "MASTER_ADDR is not set", place="MASTER_ADDR",
                     help="set it to the host of rank 0; on one host: MASTER_ADDR=127.0.0.1")  # fmt: skip


def _port(environment: Mapping[str, str]) -> int:
    """MASTER_PORT, or the next one if torchrun itself listens there."""
    port = _number(environment, "MASTER_PORT", 1, 65_535) if "MASTER_PORT" in environment else PORT
    taken = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return (port + 1 if port < 65_535 else port - 1) if taken else port


def first_node(nodes: str) -> str:
    """The first host of Slurm's list: ``gpu[003-007,9],cpu1`` -> ``gpu003``. RanksError R601 for another text."""
    found = re.match(r"([A-Za-z0-9.-]+)(?:\[([0-9]+)[-,\]0-9]*)?", nodes)
    if found is None:
        raise RanksError("R601", f"SLURM_STEP_NODELIST is {nodes[:40]!r}", place="SLURM_STEP_NODELIST",
                         help="set MASTER_ADDR to the host of rank 0")  # fmt: skip
    return found[1] + (found[2] or "")
