"""Cases that no list holds: those of the tables with drawn sizes, as many of each family. Needs no package.

``drawn-SEED-COUNT`` names such a sweep, as ``gpu`` and ``cpu`` name the listed ones. The same name gives the same
cases. A row's shape holds its sizes.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from types import ModuleType
from typing import Final

from op_sweep.case import SIZES, Case, Sizes
from op_sweep.cases import TABLES, every

_NAME: Final = re.compile(r"drawn-(\d+)-(\d+)")
_LEAST, _MOST = 1 << 16, 1 << 25  # elements of the largest input
_DRAWS: Final = 6  # sizes of each table, from which a function's case is chosen
_ROWS: Final = ("huge", "tiny", "odd", "one", "tall", "wide")
_IMAGES: Final = ("huge", "tiny", "odd", "one", "many channels")


def checked(sizes: str) -> str:
    """The name of a sweep, for a parser of arguments."""
    if sizes not in SIZES and not _NAME.fullmatch(sizes):
        raise argparse.ArgumentTypeError(f"no sizes `{sizes}`: name {', '.join(SIZES)}, or drawn-SEED-COUNT")
    return sizes


def cases_of(sizes: str) -> list[Case]:
    """The cases of a sweep with a checked name."""
    found = _NAME.fullmatch(sizes)
    return _drawn(int(found[1]), int(found[2])) if found else every(SIZES[sizes])


class _Drawn(Sizes):
    """Shapes under the names of the lists, drawn: about half of the sizes are odd."""

    def __init__(self, rng: random.Random) -> None:
        side, channels = rng.randint(7, 64), 8 * rng.randint(1, 20)
        super().__init__(1 << rng.randint(19, 23), side, channels, rng.randint(200, 2500), rng.randint(100, 900))
        object.__setattr__(self, "_rng", rng)

    def _size(self, low: float, high: float) -> int:
        """Between powers of two."""
        rng: random.Random = vars(self)["_rng"]
        n = int(2 ** rng.uniform(low, high))
        return max(1, n + rng.choice([0, 0, 1, -1, 3]) if rng.random() < 0.6 else -(-n // 8) * 8)

    def _pair(self) -> tuple[int, int]:
        rows = self._size(2, 16)
        return rows, max(2, self._size(18, 23.5) // rows | self._size(0, 1) % 2)

    def flat(self) -> dict[str, tuple[int, int]]:
        return {name: self._pair() for name in _ROWS}

    def lines(self) -> dict[str, tuple[tuple[int, ...], int]]:
        before, along = self._size(1, 5), self._size(2, 12)
        middle = before, along, max(2, (1 << 22) // (before * along) | 1)
        rows: dict[str, tuple[tuple[int, ...], int]] = {name: (self._pair(), 1) for name in _ROWS}
        return rows | {"first axis": (self._pair(), 0), "middle axis": (middle, 1)}

    def images(self) -> dict[str, tuple[int, int, int, int]]:
        return {name: self._image() for name in _IMAGES}

    def _image(self) -> tuple[int, int, int, int]:
        channels, height, width = 8 * self._size(0, 4.5), self._size(2.6, 6.2), self._size(2.6, 6.2)
        return max(1, self._size(19, 23) // (channels * height * width)), channels, height, width


def _drawn(seed: int, count: int) -> list[Case]:
    """``count`` cases, one of a function, or fewer if the functions end."""
    rng = random.Random(seed)
    families = [_of_table(table, rng) for table in TABLES]
    turns = [case for turn in range(max(map(len, families))) for family in families for case in family[turn : turn + 1]]
    return turns[:count]


def _of_table(table: ModuleType, rng: random.Random) -> Sequence[Case]:
    """A case of each function of a table, in a drawn order."""
    found: dict[str, list[Case]] = {}
    for _ in range(_DRAWS):
        for case in table.cases(_Drawn(rng)):
            if _LEAST <= max(prod(x.shape) for x in case.inputs.values()) <= _MOST:
                found.setdefault(case.function, []).append(case)
    names = sorted(found)
    rng.shuffle(names)
    return [_with_sizes(rng.choice(found[name])) for name in names]


def _with_sizes(case: Case) -> Case:
    sizes = " ".join("x".join(map(str, x.shape)) for x in case.inputs.values())
    return replace(case, shape=f"{case.shape} {sizes}")
