"""What a build may obey: the blocks of one GPU from the project's lock, then from the tables that dslc ships."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from dslc.base.errors import BuildError, EnvironmentFault
from dslc.compiler.ir.choice import Choices, Measured, key_of, providers_of
from dslc.compiler.ir.program import Program
from dslc.compiler.lock.find import FILE
from dslc.compiler.lock.model import Block, Lock, target_of_gpu
from dslc.compiler.lock.text import format_lock

#: The entries that run once in a session or an epoch: nobody measures their problems, so a lock need not have them.
RARE: Final = frozenset({"init", "eval_finish", "prepare"})
_SHOWN: Final = 8  # keys of a message


@dataclass(frozen=True)
class Tuned:
    """The measured problems of one GPU. ``lock``: from the project's lock; ``table``: from the shipped tables.
    ``place``: the path of the lock, None without one. ``gpu``: empty if nothing was measured for the target.
    ``others``: the GPUs of the lock, if none is of the target."""

    gpu: str
    lock: Lock
    table: Lock
    place: str | None
    others: tuple[str, ...] = ()

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """By key; the lock's before the tables'."""
        return MappingProxyType({block.key: block for block in (*self.table.blocks, *self.lock.blocks)})

    @cached_property
    def choices(self) -> Choices:
        """The measured ways by key. Its digest is that of all blocks."""
        ways = {key: block.ways for key, block in self.blocks.items()}
        return Choices(MappingProxyType(ways), digest=digest_of(self.blocks.values()))


class Asked(Mapping[str, tuple[Measured, ...]]):
    """Measured ways by key, which remember for which keys a build asked."""

    def __init__(self, ways: Mapping[str, tuple[Measured, ...]]) -> None:
        self._ways = ways
        self.keys_asked: set[str] = set()

    def __getitem__(self, key: str) -> tuple[Measured, ...]:
        self.keys_asked.add(key)
        return self._ways[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ways)

    def __len__(self) -> int:
        return len(self._ways)


@dataclass(frozen=True)
class Origins:
    """Where the choices of one target's problems come from. ``lock``, ``table``, ``heuristic``: numbers of distinct
    problems. ``missing``: the keys of those that the lock lacks, sorted."""

    gpu: str
    lock: int
    table: int
    heuristic: int
    missing: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "missing": [*self.missing]}

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> Origins:
        """The inverse of ``as_json``."""
        return Origins(**{**data, "missing": tuple(data["missing"])})


def digest_of(blocks: Iterable[Block]) -> str:
    """The SHA-256 of the canonical text of a lock with these blocks, in hex."""
    return hashlib.sha256(format_lock(Lock.of(blocks)).encode()).hexdigest()


def tuned(target: str, lock: Lock | None, table: Lock, *, gpu: str | None, place: str | None) -> Tuned:
    """What was measured for a target. ``gpu``: a part of the GPU's name, or several joined by commas for several
    targets; None if there is only one.

    The project's lock decides for which GPU; without one for this target, the shipped tables do. BuildError E0608 if
    several GPUs are possible, or if ``gpu`` names none of them.
    """
    mine = lock or Lock()
    seen: list[str] = []
    others = () if any(target_of_gpu(name) == target for name in mine.gpus) else mine.gpus
    for source in (mine, table):
        names = [name for name in source.gpus if target_of_gpu(name) == target]
        found = names if gpu is None else _named(names, gpu)
        if len(found) > 1:
            raise _unclear(f"{len(found)} GPUs were measured for the target {target}: {'; '.join(found)}", found, place)
        if found:
            return Tuned(found[0], mine.on(found[0]), table.on(found[0]), place, others)
        seen += names
    if seen:
        raise _unclear(f"nothing was measured on a GPU {gpu!r:.100}; for {target} on: {'; '.join(seen)}", seen, place)
    return Tuned("", Lock(), Lock(), place, others)


def _named(names: Sequence[str], asked: str) -> list[str]:
    """The names that are meant: the equal one, else those that contain the text, else those that contain a part."""
    equal = [name for name in names if name == asked]
    parts = [part.strip().lower() for part in asked.split(",") if part.strip()]
    return (
        equal
        or [name for name in names if asked.lower() in name.lower()]
        or [name for name in names if any(part in name.lower() for part in parts)]
    )


def _unclear(cause: str, names: Sequence[str], place: str | None) -> BuildError:
    help = f"choose one: --gpu '{names[0].partition(',')[0]}', or `gpu` below `build:` in dslc.yaml"
    return BuildError("E0608", cause, place=place or "--gpu", help=help)


def origins(programs: Sequence[Program], target: str, found: Tuned | None) -> Origins:
    """Where the choices of a target's programs come from; ``found``: None if the build looked for none."""
    counts = {"lock": 0, "table": 0, "heuristic": 0}
    missing: list[str] = []
    there = Tuned("", Lock(), Lock(), None) if found is None else found
    locked = {block.key for block in there.lock.blocks}
    for key, providers in problems(programs, target).items():
        known = there.choices.best(key, providers) is not None
        counts["heuristic" if not known else "lock" if key in locked else "table"] += 1
        if not (known and key in locked):
            missing.append(key)
    return Origins(there.gpu, **counts, missing=tuple(sorted(missing)))


def problems(programs: Iterable[Program], target: str) -> dict[str, Collection[str]]:
    """The keys of the problems of a target's programs that run often, with the providers that may compute them."""
    found: dict[str, Collection[str]] = {}
    for program in programs:
        if program.target == target and program.entry not in RARE:
            providers = providers_of(program.vendor)
            found.update((key_of(node), providers) for node in program.computing)
    return found


def provenance(programs: Sequence[Program], found: Mapping[str, Tuned]) -> dict[str, Any]:
    """What the header says about the measurements that a build obeyed, by target: the GPU, the digest of the blocks of
    all problems in its programs, their number, and the versions with which they were measured. Without the targets
    that have none."""
    said: dict[str, Any] = {}
    for target, there in found.items():
        keys = {key_of(n) for p in programs if p.target == target for n in p.computing}
        used = [block for key, block in there.blocks.items() if key in keys]
        if used:
            versions = sorted({block.versions for block in used})
            said[target] = {"gpu": there.gpu, "sha256": digest_of(used), "blocks": len(used), "versions": versions}
    return said


def require(found: Mapping[str, Origins], tuned: Mapping[str, Tuned]) -> None:
    """Raise EnvironmentFault R210, with the keys, if the lock lacks problems of a target."""
    for target, each in found.items():
        if not each.missing:
            continue
        if target in tuned and tuned[target].others:
            raise EnvironmentFault(
                "R210",
                f"the lock has no measurements for {target}, only those of {'; '.join(tuned[target].others)}",
                place=tuned[target].place,
                help=f"run `dslc tune` on a GPU of {target}, which adds to the lock; or build without --locked",
            )
        shown = "; ".join(each.missing[:_SHOWN])
        more = f"; and {len(each.missing) - _SHOWN:,} more" if len(each.missing) > _SHOWN else ""
        count = f"{len(each.missing):,} problem{'s' if len(each.missing) > 1 else ''}"
        on = f" on {each.gpu}" if each.gpu else f" for {target}"
        raise EnvironmentFault(
            "R210",
            f"the lock lacks {count} of this build{on}: {shown}{more}",
            place=tuned[target].place if target in tuned else FILE,
            help="measure what is missing with `dslc tune`, the same file and options; or build without --locked",
        )
