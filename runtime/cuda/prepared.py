"""What a library chose for an artifact on a GPU, kept in the private cache so that a later load need not ask it again.

An entry holds for one artifact, GPU, driver and version of the library, all of which decide its name; each choice is
found by the whole problem that it is for. ``dslc warm`` writes entries, loads read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dslc.base import canonical
from dslc.base.errors import ResourceError
from dslc.base.version import VERSION

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.runtime.cuda.device import Device

_MOST_VALUES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Choice:
    """``name``: of a plan, for people; ``data``: an algorithm, or a plan, as the library wrote it."""

    name: str
    data: bytes


class Prepared:
    """The choices of one library. ``cache``: where entries are read, None for none."""

    def __init__(self, cache: Cache | None, library: str, version: str, artifact: str, device: Device) -> None:
        machine = (device.name, device.target, str(device.multiprocessors), str(device.driver.version()))
        self._kind, self._fields = library, (VERSION, artifact, *machine, version)
        payload = cache.get(self._kind, self._fields) if cache is not None else None
        self._choices: dict[str, Choice] = {} if payload is None else _read(payload)
        self.used = 0

    def get(self, problem: object) -> Choice | None:
        found = self._choices.get(repr(problem))
        self.used += found is not None
        return found

    def add(self, problem: object, make: Callable[[], Choice]) -> None:
        """Take what ``make`` gives where there is no choice for the problem yet."""
        if repr(problem) not in self._choices:
            self._choices[repr(problem)] = make()

    def drop(self, problem: object) -> None:
        del self._choices[repr(problem)]
        self.used -= 1

    def keep(self, cache: Cache) -> int:
        """Write the entry; the number of its choices. ResourceError R402 where it cannot be written."""
        if cache.get(self._kind, self._fields) != (payload := self._payload()):
            cache.put(self._kind, self._fields, payload)
        if cache.get(self._kind, self._fields) != payload:
            raise ResourceError(
                "R402",
                "what the libraries chose cannot be kept",
                place=str(cache.folder or "the cache"),
                help="name a folder that you alone can write to: DSLC_CACHE_DIR=/path",
            )
        return len(self._choices)

    def _payload(self) -> bytes:
        rows: list[Sequence[str]] = [(p, c.name, c.data.hex()) for p, c in sorted(self._choices.items())]
        return canonical.dumps({"choices": [list(row) for row in rows]})


def _read(payload: bytes) -> dict[str, Choice]:
    """The cache has verified that these are the bytes that ``keep`` wrote."""
    found = canonical.loads(payload, place="cache", offset=0, max_values=_MOST_VALUES)
    return {problem: Choice(name, bytes.fromhex(data)) for problem, name, data in found["choices"]}
