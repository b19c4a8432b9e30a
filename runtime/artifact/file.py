"""An artifact in memory: its header, its programs and their plans. ``docs/artifact.md`` describes the file.

``read_artifact`` is safe on hostile files; every value that an Artifact returns has been verified and checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dslc.base.canonical import uncollected
from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact import container
from dslc.runtime.artifact.container import Blob, Container
from dslc.runtime.artifact.header import check_header
from dslc.runtime.artifact.header_rules import interface_sha256
from dslc.runtime.artifact.header_schema import (
    FORMAT,
    PREPARE,
    WITH_EXTENTS,
    WITH_LOCK,
    WITH_PACKAGES,
    WITH_PREPARED,
    WRITERS,
)
from dslc.runtime.artifact.plan import Plan, plans_too_large
from dslc.runtime.artifact.plan_check import BlobInfo, check
from dslc.runtime.artifact.port_check import check_ports
from dslc.runtime.cpu.object_check import check_object
from dslc.runtime.extents import extents_of

__all__ = ["Artifact", "Blob", "Program", "artifact_id", "read_artifact", "write_artifact"]

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Program:
    """One entry for one target and one set of sizes. Region sizes are in bytes; ``context``: the offsets of states;
    ``turn``: the update that it is for, empty for the first or for all."""

    entry: str
    target: str
    provider: str
    sizes: Mapping[str, int]
    io_bytes: int
    work_bytes: int
    context_bytes: int
    plan: str
    lower_bound: int
    planned: int
    context: Mapping[str, int] = field(default_factory=dict)
    prepared_bytes: int = 0
    turn: str = ""

    def __str__(self) -> str:
        sizes = ",".join(f"{name}={value}" for name, value in sorted(self.sizes.items()))
        return f"{self.title}@{sizes}" if sizes else self.title

    @property
    def title(self) -> str:
        """The entry as users name it: ``train_step``, or ``train_step.NAME`` for the turn of a later update."""
        return f"{self.entry}.{self.turn}" if self.turn else self.entry


class Artifact:
    """Created by ``read_artifact`` or ``Artifact.of_bytes``. Keeps no file open; safe to share between threads.

    ``header`` is that of docs/artifact.md; ``id`` is ``sha256:`` and the SHA-256 of the header, which covers every byte
    of every blob; ``path`` is the file that it was read from, None for bytes in memory.
    """

    def __init__(self, content: Container, path: Path | None) -> None:
        self.header: Mapping[str, Any] = MappingProxyType(content.header)
        self.id = content.id
        self.path = path
        self._place = str(path) if path is not None else "artifact"
        self._content = content
        self._programs = tuple(
            Program(**{**p, "sizes": MappingProxyType(p["sizes"])}) for p in content.header["programs"]
        )
        self._infos = {b.name: BlobInfo(b.kind, len(b.data)) for b in content.blobs.values()}
        self._offsets = {b["name"]: content.blob_start + b["offset"] for b in content.header["blobs"]}
        self._extents = extents_of(content.header)
        self._plans: dict[int, Plan] = {}
        self._bound_plans()

    @classmethod
    def of_bytes(cls, data: bytes, *, place: str = "artifact", path: Path | None = None) -> Artifact:
        """Like ``read_artifact``, from bytes in memory. ``path``: a file with the same bytes."""
        return cls(container.unpack(data, lambda header: check_header(header, place), place=place), path)

    def all_programs(self) -> tuple[Program, ...]:
        """All programs, in the order of the header."""
        return self._programs

    def programs(self, entry: str, target: str | None = None) -> tuple[Program, ...]:
        """The programs of an entry (of one target), in the order of the header."""
        return tuple(p for p in self._programs if p.entry == entry and (target is None or p.target == target))

    def program(self, entry: str, sizes: Mapping[str, int], target: str = "cpu") -> Program:
        """The program of an entry for these sizes. ArtifactError R312 lists the sizes that were built."""
        listed = self.programs(entry, target)
        for program in listed:
            if program.sizes == dict(sizes):
                return program
        asked = ",".join(f"{name}={value}" for name, value in sorted(sizes.items()))
        built = "; ".join(str(p) for p in listed) or "none"
        raise ArtifactError(
            "R312",
            f"no program {entry}@{asked} for {target}; built: {built}",
            place=self._place,
            help="build the artifact with this size (--size) and target (--target)",
        )

    def blob(self, name: str) -> memoryview:
        """The verified bytes of a blob, read-only. KeyError for a name that the header does not list."""
        return memoryview(self._content.blobs[name].data).toreadonly()

    def blobs(self, kind: str) -> tuple[str, ...]:
        """The names of the blobs of a kind, in the order of the header."""
        return tuple(b["name"] for b in self.header["blobs"] if b["kind"] == kind)

    def plan(self, program: Program) -> Plan:
        """The plan of a program, decoded and checked at the first call, then cached. ArtifactError R301."""
        index = self._programs.index(program)
        found = self._plans.get(index)
        if found is None:
            found = self._plans[index] = self._checked_plan(program)
        return found

    def verify(self) -> None:
        """Check every object and every plan; the digests were verified on reading. ArtifactError R301."""
        for name in self.blobs("object"):
            check_object(self.blob(name), f"{self._place}: {name}")
        for program in self._programs:
            self._checked_plan(program)  # not cached: a hostile file must not fill the memory

    def _bound_plans(self) -> None:
        cause = plans_too_large([bytes(self.blob(name)) for name in self.blobs("plan")])
        if cause is not None:
            raise ArtifactError("R301", cause, place=self._place, help="build it for fewer sizes or targets")

    def _checked_plan(self, program: Program) -> Plan:
        with uncollected():
            return self._decoded(program)

    def _decoded(self, program: Program) -> Plan:
        where = f"{self._place}: {program.plan} of {program}"
        found = Plan.decode(self.blob(program.plan), place=self._place, offset=self._offsets[program.plan])
        check(
            found,
            self.header["state"]["bytes"],
            program.context_bytes,
            program.io_bytes,
            program.work_bytes,
            prepared_bytes=program.prepared_bytes,
            blobs=self._infos,
            extents=self._extents,
            writes_state=program.entry in WRITERS,
            prepares=program.entry == PREPARE,
            place=where,
        )
        check_ports(found, program.entry, program.sizes, self.header, place=where)
        return found


def read_artifact(path: str | os.PathLike[str], digest: str | None = None) -> Artifact:
    """Read and verify an artifact from a regular file, not a link. ``digest``: the id that it must have,
    ``sha256:...``.

    Raises ArtifactError: R301 damaged (with offset or field, and the rule), R302 another version, R303 an artifact with
    another id than ``digest``, R311 not readable; InputError R105 for a malformed ``digest``.
    """
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise InputError(
            "R105",
            f"`digest` is {digest[:80]!r}",
            place="digest=...",
            help="it is 'sha256:' and 64 hex digits, as `dslc info` prints it",
        )
    place = Path(path)
    artifact = Artifact(container.read(place, lambda header: check_header(header, str(place))), place)
    if digest is not None and artifact.id != digest:
        raise ArtifactError(
            "R303",
            f"this is {artifact.id}, not {digest}",
            place=str(place),
            help="pass the digest of this artifact (`dslc info`), or the artifact with this digest",
        )
    return artifact


def artifact_id(data: bytes) -> str:
    """The id of an artifact, from the bytes that ``write_artifact`` returned."""
    *_, digest = container.PREAMBLE.unpack_from(data)
    return f"sha256:{digest.hex()}"


def write_artifact(header: Mapping[str, Any], blobs: Sequence[Blob]) -> bytes:
    """The bytes of an artifact. The same input gives the same bytes; blobs keep their order.

    ``header`` is that of docs/artifact.md without ``blobs``, ``format`` and ``interface_sha256``, which are added here.
    The result, with every plan, is read back before it is returned. Raises ArtifactError R301.
    """
    try:
        digest = interface_sha256(header["interface"])
    except (KeyError, ValueError, TypeError) as error:
        raise ArtifactError("R301", f"no interface, or none that JSON holds: {error}", place="interface") from error
    # The lowest version that describes it, so that a reader refuses no artifact without need.
    since = {"packages": WITH_PACKAGES, "lock": WITH_LOCK}
    minor = max((minor for name, minor in since.items() if name in header), default=WITH_EXTENTS)
    if any(program.get("prepared_bytes") for program in header["programs"]):
        minor = WITH_PREPARED
    form = [FORMAT[0], minor]
    data = container.pack({**header, "format": form, "interface_sha256": digest}, blobs)
    Artifact.of_bytes(data).verify()
    return data
