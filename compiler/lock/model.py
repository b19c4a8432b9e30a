"""A lock as data: one block for each problem and GPU, sorted. Immutable; numbers have the digits that text keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from dslc.base.visible import one_line
from dslc.compiler.ir.choice import Measured

#: Digits that a time keeps: a tenth of the smallest difference that a choice depends on (1 %).
TIME_DIGITS: Final = 4
#: Digits of a spread and of an error, which nobody compares more closely.
OTHER_DIGITS: Final = 3
#: Characters that a reason and the versions keep.
MAX_TEXT: Final = 400


def rounded(value: float, digits: int) -> float:
    """The float nearest to ``value`` that a decimal number of so many digits denotes."""
    return float(f"{value:.{digits - 1}e}")


@dataclass(frozen=True, slots=True)
class Block:
    """What was measured for one problem on one GPU.

    ``key``: of the problem, see ``key_of``. ``gpu``: the GPU's name, its number of multiprocessors and its target:
    ``NVIDIA H200, 132 SMs, sm_90``. ``ways``: best first. ``default``: what a build without a lock takes; None if it
    was rejected or is not known. ``spread``: (75th - 25th percentile) / median of the winner's rounds. ``error``: the
    winner's largest difference from the reference, less a unit of rounding, in units of the reference's root mean
    square. ``rejected``: for each refused way its text and the reason, and why a library lists no ways, or how many
    were not tried. ``versions``: of the libraries, the driver and dslc.
    """

    key: str
    gpu: str
    ways: tuple[Measured, ...]
    default: Measured | None = None
    spread: float = 0.0
    error: float = 0.0
    rejected: tuple[str, ...] = ()
    versions: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "ways", tuple(map(_rounded, self.ways)))
        put(self, "default", None if self.default is None else _rounded(self.default))
        put(self, "spread", rounded(self.spread, OTHER_DIGITS))
        put(self, "error", rounded(self.error, OTHER_DIGITS))
        put(self, "rejected", tuple(map(_one_line, self.rejected)))
        put(self, "versions", _one_line(self.versions))

    @property
    def place(self) -> tuple[str, str]:
        """The problem and the GPU; no two blocks of a lock have the same."""
        return self.key, self.gpu

    @property
    def target(self) -> str:
        """The target of the GPU, such as ``sm_90``."""
        return target_of_gpu(self.gpu)

    @property
    def gain(self) -> float | None:
        """The default's time divided by the winner's; None without a default."""
        return None if self.default is None else self.default.seconds / self.ways[0].seconds


def target_of_gpu(gpu: str) -> str:
    """``sm_90`` of ``NVIDIA H200, 132 SMs, sm_90``."""
    return gpu.rpartition(", ")[2]


def _one_line(text: str) -> str:
    """Any text, such as a library's message, as the line that a file keeps."""
    return one_line(text)[:MAX_TEXT]


def _rounded(way: Measured) -> Measured:
    return replace(way, seconds=rounded(way.seconds, TIME_DIGITS))


@dataclass(frozen=True)
class Lock:
    """Blocks, sorted by key and GPU, each place once. ``Lock.of`` makes one of blocks in any order."""

    blocks: tuple[Block, ...] = ()

    @staticmethod
    def of(blocks: Iterable[Block]) -> Lock:
        """The lock of these blocks; of two with the same place, the later one."""
        found = {block.place: block for block in blocks}
        return Lock(tuple(found[place] for place in sorted(found)))

    def merged(self, newer: Lock | Iterable[Block]) -> Lock:
        """The blocks of both; of a place that both hold, the newer one."""
        return Lock.of((*self.blocks, *(newer.blocks if isinstance(newer, Lock) else newer)))

    def on(self, gpu: str) -> Lock:
        """The part that was measured on a GPU."""
        return Lock(tuple(block for block in self.blocks if block.gpu == gpu))

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs on which it was measured, sorted."""
        return tuple(sorted({block.gpu for block in self.blocks}))

    @cached_property
    def by_place(self) -> Mapping[tuple[str, str], Block]:
        """The blocks by (key, GPU)."""
        return MappingProxyType({block.place: block for block in self.blocks})

    def get(self, key: str, gpu: str) -> Block | None:
        """The block of a problem on a GPU, if it was measured there."""
        return self.by_place.get((key, gpu))
