"""Libraries' choices for an artifact on a GPU, stored in the private cache so that later loads need not ask again.

An entry belongs to one artifact, GPU, driver and library version, which all determine its name; a choice is looked up
by its complete problem. ``dslc warm`` writes entries, loads read them.
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
    """``name``: of a plan, for people; ``data``: an algorithm or a plan, serialised by the library."""

    name: str
    data: bytes


class Prepared:
    """The choices of one library. ``cache``: the source of stored entries, None for none."""

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
        """Add the result of ``make`` unless the problem already has a choice."""
        if repr(problem) not in self._choices:
            self._choices[repr(problem)] = make()

    def drop(self, problem: object) -> None:
        del self._choices[repr(problem)]
        self.used -= 1

    def keep(self, cache: Cache) -> int:
        """Write the entry; returns the number of its choices. ResourceError R402 if it cannot be written."""
        if cache.get(self._kind, self._fields) != (payload := self._payload()):
            cache.put(self._kind, self._fields, payload)
        if cache.get(self._kind, self._fields) != payload:
            raise ResourceError(
                "R402",
                "the libraries' choices cannot be stored",
                place=str(cache.folder or "the cache"),
                help="name a folder that only you can write to: DSLC_CACHE_DIR=/path",
            )
        return len(self._choices)

    def _payload(self) -> bytes:
        rows: list[Sequence[str]] = [(p, c.name, c.data.hex()) for p, c in sorted(self._choices.items())]
        return canonical.dumps({"choices": [list(row) for row in rows]})


def _read(payload: bytes) -> dict[str, Choice]:
    """Parses the bytes that ``keep`` wrote, as verified by the cache."""
    found = canonical.loads(payload, place="cache", offset=0, max_values=_MOST_VALUES)
    return {problem: Choice(name, bytes.fromhex(data)) for problem, name, data in found["choices"]}
